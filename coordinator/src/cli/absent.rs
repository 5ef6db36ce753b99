//! The error for a command that reaches no coordinator, with a suggestion.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use c3po_shared::text::shell_word;
use rustix::process::geteuid;

/// The data folder of the service that `install-server` sets up.
const SERVICE: &str = "/var/lib/c3po";
/// Prefix and suffix of the socket's file name around the port.
const SOCKET: (&str, &str) = ("control-", ".sock");

/// Refuses a socket that a process of another user holds: others may be able to write in the folder, and a foreign program
/// would confirm every command. Root and its processes are trusted.
pub(super) fn check_peer(stream: &tokio::net::UnixStream, path: &Path) -> anyhow::Result<()> {
    let (peer, user) = (stream.peer_cred()?.uid(), geteuid().as_raw());
    anyhow::ensure!(
        peer == user || peer == 0 || user == 0,
        "{} is held by a process of uid {peer}, and this command runs as uid {user}: run it as the user of the \
         coordinator, or pass the --data-dir of your own coordinator",
        path.display()
    );
    Ok(())
}

/// Returns the error for an unusable socket at that path, listing the coordinators of the data folder.
pub(super) fn refusal(error: io::Error, data_dir: &Path, path: &Path) -> anyhow::Error {
    let service = Path::new(SERVICE);
    let has_service = service.is_dir() && data_dir != service;
    let text = said(
        error.kind(),
        path,
        &ports(data_dir),
        has_service.then_some(service),
    );
    anyhow::Error::new(error).context(text)
}

/// Returns the ports of the coordinators that accept connections on a socket in that folder.
fn ports(data_dir: &Path) -> Vec<u16> {
    let names = std::fs::read_dir(data_dir).into_iter().flatten().flatten();
    let living = names.filter(|entry| UnixStream::connect(entry.path()).is_ok());
    let mut ports: Vec<_> = living
        .filter_map(|entry| port(entry.file_name().to_str()?))
        .collect();
    ports.sort_unstable();
    ports
}

fn port(name: &str) -> Option<u16> {
    name.strip_prefix(SOCKET.0)?
        .strip_suffix(SOCKET.1)?
        .parse()
        .ok()
}

fn said(kind: io::ErrorKind, path: &Path, ports: &[u16], service: Option<&Path>) -> String {
    let (shown, others) = (
        path.display(),
        ports
            .iter()
            .map(|port| format!("`--listen 127.0.0.1:{port}`")),
    );
    if kind == io::ErrorKind::PermissionDenied {
        return format!(
            "this user has no access to {shown}: run the same command as the coordinator's user, or with sudo"
        );
    }
    let mut text = format!("no coordinator is listening on {shown}; ");
    let others: Vec<_> = others.collect();
    text += &match (others.is_empty(), service) {
        (false, _) => format!("add {} for one that is running", others.join(" or ")),
        (true, Some(service)) => {
            format!(
                "add `--data-dir {}` for the service of this machine",
                shell_word(&service.display().to_string())
            )
        }
        (true, None) => "pass the --data-dir and --listen it was started with".to_owned(),
    };
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_error_for_an_absent_coordinator_names_the_one_that_runs() {
        let check = |kind, ports: &[u16], service: Option<&str>, expected: &str| {
            let text = said(
                kind,
                Path::new("/d/control-8420.sock"),
                ports,
                service.map(Path::new),
            );
            assert!(
                text.contains("/d/control-8420.sock") && text.ends_with(expected),
                "{text}"
            );
        };
        let (missing, denied) = (io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied);
        check(
            missing,
            &[],
            None,
            "; pass the --data-dir and --listen it was started with",
        );
        check(
            missing,
            &[8440],
            Some(SERVICE),
            "; add `--listen 127.0.0.1:8440` for one that is running",
        );
        check(
            missing,
            &[1, 2],
            None,
            "; add `--listen 127.0.0.1:1` or `--listen 127.0.0.1:2` for one that is running",
        );
        check(
            missing,
            &[],
            Some(SERVICE),
            "; add `--data-dir /var/lib/c3po` for the service of this machine",
        );
        check(denied, &[8440], Some(SERVICE), "or with sudo");
    }

    #[test]
    fn only_sockets_that_take_connections_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let bind = |port: u16| {
            UnixListener::bind(crate::server::control_socket(folder.path(), port))
                .expect("a socket")
        };
        let (living, dead) = (bind(8440), bind(8441));
        drop(dead);
        std::fs::write(folder.path().join("control-8442.sock"), "").expect("a file");
        assert_eq!(ports(folder.path()), [8440]);
        drop(living);
    }
}
