//! The answering side of the socket: binds it, answers each connection, and removes it at the end.

use std::convert::Infallible;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Desk;
use super::protocol::{Answer, Event, LINE_MAX, Name, PRINTED};
use super::rendezvous::{Rendezvous, own_uid, places_in};
use crate::config::Sockets;

/// The most connections at once. A session fires a few hooks at a time, and subagents some more.
const CONNECTIONS_MAX: usize = 256;
/// Deadline for an event to arrive. A hook itself has 200 ms.
const READ_MAX: Duration = Duration::from_secs(1);
/// Deadline for writing an answer.
const WRITE_MAX: Duration = Duration::from_secs(1);
/// How long a hook may take to print.
const PRINT_MAX: Duration = Duration::from_secs(2);
/// How long hooks in progress may take at the end.
const GRACE: Duration = Duration::from_millis(30);
/// How often a proxy checks whether the proxy that holds its socket is gone.
const TURN: Duration = Duration::from_millis(500);
/// How long a proxy waits for the lock of a folder. Another proxy holds it for milliseconds.
const LOCK_MAX: Duration = Duration::from_secs(3);
/// How often a proxy checks whether the file of its socket is still there.
const LOOKED: Duration = Duration::from_secs(2);
/// The pause after a failed accept. It fails when too many files are open, which lasts a while.
const RECOVERY: Duration = Duration::from_millis(100);

/// Answers the hooks of a session until `stop`. If the socket cannot be bound, this is logged and hooks print nothing.
///
/// One proxy listens beside each client. A second one, as during a server's restart, waits until the first has ended. If the
/// file of the socket is removed, as with the folder of a user who logs out, or another process keeps its folder locked, another
/// one is made in a folder that hooks know.
pub async fn serve<D: Desk>(
    desk: Arc<D>,
    mut place: Rendezvous,
    sockets: Sockets,
    stop: CancellationToken,
) {
    let (tracker, abandon) = (TaskTracker::new(), CancellationToken::new());
    let serving = async {
        loop {
            let socket = match HookSocket::bind(&place, &sockets).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // Its folder was removed, also while it waited for another proxy.
                    sleep(TURN).await;
                    place = Rendezvous::beside(place.client(), &sockets)?;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    place = place.next(&sockets)?;
                    tracing::warn!("{error}: hooks are answered at {}", place.path().display());
                    continue;
                }
                bound => bound?,
            };
            tokio::select! {
                () = attend_all(&socket, &desk, &tracker, &abandon, &stop) => {}
                () = socket.is_lost() => {}
            }
            drop(socket);
            tracing::warn!("{} was removed", place.path().display());
            place = Rendezvous::beside(place.client(), &sockets)?;
        }
    };
    let ended: Option<io::Result<Infallible>> = stop.run_until_cancelled(serving).await;
    if let Some(Err(error)) = ended {
        tracing::warn!("the hooks of this session get no answers: {error}");
    }
    tracker.close();
    // Unfinished answers are abandoned after that.
    let _ = timeout(GRACE, tracker.wait()).await;
    abandon.cancel();
    tracker.wait().await;
}

/// Answers each connection. Never returns.
async fn attend_all<D: Desk>(
    socket: &HookSocket,
    desk: &Arc<D>,
    tracker: &TaskTracker,
    abandon: &CancellationToken,
    stop: &CancellationToken,
) {
    loop {
        match socket.listener.accept().await {
            Ok((stream, _)) if is_welcome(&stream) && tracker.len() < CONNECTIONS_MAX => {
                let (desk, stop) = (desk.clone(), stop.clone());
                let attending = async move { attend(&*desk, stream, &stop).await };
                tracker.spawn(abandon.clone().run_until_cancelled_owned(attending));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!("a hook could not be accepted: {error}");
                sleep(RECOVERY).await;
            }
        }
    }
}

/// A bound socket. Its file is removed on drop.
struct HookSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The file's device and number.
    file: (u64, u64),
}

impl HookSocket {
    /// Binds the socket as soon as no other process listens there.
    ///
    /// Errors: it cannot be bound; `WouldBlock` if another process keeps its folder locked.
    async fn bind(place: &Rendezvous, sockets: &Sockets) -> io::Result<Self> {
        let (mut waits, mut locked) = (false, Duration::ZERO);
        loop {
            let bound = bind_in_turn(place, sockets).await;
            let at = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", place.path().display()))
            };
            match bound.map_err(at)? {
                Turn::Own(socket) => return Ok(socket),
                Turn::OfListener => locked = Duration::ZERO,
                Turn::OfLock if locked < LOCK_MAX => locked += TURN,
                Turn::OfLock => {
                    let why = "another process keeps its folder locked";
                    return Err(at(io::Error::new(ErrorKind::WouldBlock, why)));
                }
            }
            if !waits && locked.is_zero() {
                waits = true;
                tracing::warn!(
                    "another proxy answers the hooks of process {}: waiting until it ends",
                    place.client()
                );
            }
            sleep(TURN).await;
        }
    }

    /// Waits until the file is no longer its own, so that no hook finds it.
    async fn is_lost(&self) {
        while self.is_there() {
            sleep(LOOKED).await;
        }
    }

    fn is_there(&self) -> bool {
        file_at(&self.path).is_ok_and(|file| file == self.file)
    }
}

impl Drop for HookSocket {
    fn drop(&mut self) {
        // Before the listener closes: another proxy may replace a file without a listener at any time. If it cannot be removed,
        // the next proxy does it.
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and number of the file at that path.
fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Whose turn it is to listen.
enum Turn {
    Own(HookSocket),
    /// A process listens there, or beside the same client in another folder.
    OfListener,
    /// A process holds the lock of the folder, and none listens there.
    OfLock,
}

/// Binds the socket, unless another process listens there or holds the lock.
async fn bind_in_turn(place: &Rendezvous, sockets: &Sockets) -> io::Result<Turn> {
    let folder = place.path().parent().unwrap_or(Path::new("/"));
    // While it is held, no other process looks, removes or binds in this folder. It is never waited for: its holder may be
    // stopped.
    let lock = File::open(folder)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if is_attended_anywhere(place, sockets).await => {
            return Ok(Turn::OfListener);
        }
        Err(TryLockError::WouldBlock) => return Ok(Turn::OfLock),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    for left in places_in(folder)
        .into_iter()
        .filter(Rendezvous::is_orphaned)
    {
        if !is_attended(left.path()).await {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(left.path());
        }
    }
    if is_attended_anywhere(place, sockets).await {
        return Ok(Turn::OfListener);
    }
    match fs::remove_file(place.path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(place.path())?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o600))?;
    Ok(Turn::Own(HookSocket {
        listener,
        path: place.path().to_owned(),
        file: file_at(place.path())?,
    }))
}

/// Returns whether a process listens beside the same client, in this folder or another one.
async fn is_attended_anywhere(place: &Rendezvous, sockets: &Sockets) -> bool {
    let mut paths = place.everywhere(sockets);
    // Also in a folder that others can use meanwhile.
    paths.push(place.path().to_owned());
    for path in paths {
        if is_attended(&path).await {
            return true;
        }
    }
    false
}

/// Returns whether a process listens there, even a stopped one that does not answer.
async fn is_attended(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound
        ),
    }
}

/// Returns whether the peer is this user.
pub(crate) fn is_welcome(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own_uid())
}

/// Reads one event and answers it.
async fn attend<D: Desk>(desk: &D, stream: UnixStream, stop: &CancellationToken) {
    let mut stream = BufReader::new(stream);
    let Ok(Some(event)) = timeout(READ_MAX, heard(&mut stream)).await else {
        return;
    };
    let waits = event.name == Name::Wait;
    let answer = tokio::select! {
        biased;
        answer = desk.heard(event) => answer,
        () = gone(&mut stream) => return,
        () = stop.cancelled(), if waits => return,
    };
    let promise = Promise {
        desk,
        number: answer.offer,
    };
    if !matches!(
        timeout(WRITE_MAX, say(&mut stream, &answer)).await,
        Ok(Ok(()))
    ) || promise.number.is_none()
    {
        return;
    }
    if let Ok(Some(line)) = timeout(PRINT_MAX, line(&mut stream)).await
        && line == PRINTED.as_bytes()
    {
        promise.printed();
    }
}

/// Ensures that an offer in progress ends as printed or as not printed in every case.
struct Promise<'a, D: Desk> {
    desk: &'a D,
    number: Option<u64>,
}

impl<D: Desk> Promise<'_, D> {
    fn printed(mut self) {
        if let Some(number) = self.number.take() {
            self.desk.printed(number);
        }
    }
}

impl<D: Desk> Drop for Promise<'_, D> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.desk.not_printed(number);
        }
    }
}

async fn heard(stream: &mut BufReader<UnixStream>) -> Option<Event> {
    let line = line(stream).await?;
    let event = serde_json::from_slice(&line);
    event
        .inspect_err(|error| tracing::debug!("a hook sent an invalid event: {error}"))
        .ok()
}

/// Returns the next line without its end; `None` if it is too long or the peer is gone.
async fn line(stream: &mut BufReader<UnixStream>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    stream
        .take(LINE_MAX as u64)
        .read_until(b'\n', &mut line)
        .await
        .ok()?;
    (line.pop() == Some(b'\n')).then_some(line)
}

async fn say(stream: &mut BufReader<UnixStream>, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.get_mut().write_all(&line).await
}

/// Waits until the peer is gone. A peer that writes before its answer is not one of our hooks.
async fn gone(stream: &mut BufReader<UnixStream>) {
    // After an end, an error or further input there is no hook to answer.
    let _ = stream.fill_buf().await;
}
