//! Standard input and output, opened in the fastest way for their kind.
//!
//! Clients give their servers sockets or pipes, which the runtime can wait for by itself; other kinds need threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The source of the client's messages.
pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// The destination of the answers.
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// The kind of a file descriptor.
#[derive(Debug, PartialEq)]
enum Sort {
    Socket,
    Pipe,
    Other,
}

/// Opens standard input and output.
pub(super) fn open() -> io::Result<(Input, Output)> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    Ok((input(stdin.as_fd())?, output(stdout.as_fd())?))
}

fn input(fd: BorrowedFd<'_>) -> io::Result<Input> {
    Ok(match sort(fd)? {
        Sort::Socket => Box::new(socket(fd.try_clone_to_owned()?)?),
        Sort::Pipe => Box::new(pipe::Receiver::from_owned_fd(fd.try_clone_to_owned()?)?),
        Sort::Other => Box::new(tokio::io::stdin()),
    })
}

fn output(fd: BorrowedFd<'_>) -> io::Result<Output> {
    Ok(match sort(fd)? {
        Sort::Socket => Box::new(socket(fd.try_clone_to_owned()?)?),
        Sort::Pipe => Box::new(pipe::Sender::from_owned_fd(fd.try_clone_to_owned()?)?),
        Sort::Other => Box::new(tokio::io::stdout()),
    })
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

fn sort(fd: BorrowedFd<'_>) -> io::Result<Sort> {
    let kind = std::fs::File::from(fd.try_clone_to_owned()?)
        .metadata()?
        .file_type();
    Ok(if kind.is_socket() {
        Sort::Socket
    } else if kind.is_fifo() {
        Sort::Pipe
    } else {
        Sort::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_sorted_into_sockets_pipes_and_others() {
        let (socket, _other) = StdUnixStream::pair().unwrap();
        assert_eq!(sort(socket.as_fd()).unwrap(), Sort::Socket);
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(sort(reader.as_fd()).unwrap(), Sort::Pipe);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(sort(file.as_fd()).unwrap(), Sort::Other);
    }
}
