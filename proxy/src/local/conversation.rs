//! The client side of the socket. It blocks, and serves processes that send one event.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use super::protocol::{Answer, Event, LINE_MAX, PRINTED};
#[cfg(target_os = "linux")]
use super::rendezvous::own_uid;

/// One event and its answer.
#[derive(Debug)]
pub struct Conversation {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Conversation {
    /// Sends an event to the first proxy that listens at one of those paths. Blocks until that proxy reads it.
    ///
    /// Errors: no process of this user listens there.
    pub fn begin(sockets: &[impl AsRef<Path>], event: &Event) -> io::Result<Self> {
        let mut stream = connect(sockets)?;
        if !is_of_this_user(&stream) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(Self {
            stream: BufReader::new(stream),
            line: Vec::new(),
        })
    }

    /// Waits for the answer. Blocks until the proxy sends it.
    ///
    /// Errors: the proxy goes away, or sends a malformed answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let room = u64::try_from(LINE_MAX.saturating_sub(self.line.len())).unwrap_or(0);
        self.stream
            .by_ref()
            .take(room)
            .read_until(b'\n', &mut self.line)?;
        if self.line.pop() != Some(b'\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&self.line)?)
    }

    /// Reports that the answer was printed.
    ///
    /// Errors: the proxy is gone.
    pub fn printed(mut self) -> io::Result<()> {
        self.stream
            .get_mut()
            .write_all(format!("{PRINTED}\n").as_bytes())
    }
}

fn connect(sockets: &[impl AsRef<Path>]) -> io::Result<UnixStream> {
    let mut refused = ErrorKind::NotFound.into();
    for socket in sockets {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Returns whether a process of this user listens at the other end: another user may have replaced the folder of the socket since
/// it was looked at, where the folder above is open to others. Other systems than Linux do not report the user here.
fn is_of_this_user(stream: &UnixStream) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.as_raw() == own_uid());
    #[cfg(not(target_os = "linux"))]
    return stream.peer_addr().is_ok();
}

/// Asks the first proxy that listens at one of those paths, and waits so long for its answer.
///
/// Errors: no process listens there, or there is no answer in time.
pub fn ask(sockets: &[impl AsRef<Path>], event: Event, within: Duration) -> io::Result<Answer> {
    let (sender, answer) = sync_channel(1);
    let sockets: Vec<PathBuf> = sockets
        .iter()
        .map(|path| path.as_ref().to_owned())
        .collect();
    // `connect` has no deadline, and blocks if the proxy is stopped and its backlog is full.
    thread::spawn(move || {
        let outcome = Conversation::begin(&sockets, &event)
            .and_then(|mut conversation| conversation.answer());
        // After the deadline there is no receiver.
        let _ = sender.send(outcome);
    });
    answer
        .recv_timeout(within)
        .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}
