//! The control socket for commands on the same machine. Access to the file grants every right except acting as an agent.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use axum::{Extension, Router};
use c3po_shared::text::shell_word;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::auth::Principal;

/// The name of the program.
const NAME: &str = "c3po-coordinator";

/// The listening end.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The inode of the socket file, because a successor may have replaced the file.
    inode: u64,
}

impl ControlSocket {
    /// Binds the control socket of the coordinator on that port. A socket left by a killed coordinator is replaced: holding
    /// the port proves that there is no other.
    pub(super) fn bind(data_dir: &Path, port: u16) -> anyhow::Result<Self> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir);
        made.with_context(|| format!("creating {}", data_dir.display()))?;
        let path = place(data_dir, port);
        // Bound in a private folder, and moved once its mode is restricted. The name is short, because socket paths have a
        // small limit.
        let private = data_dir.join(format!(".c{port}"));
        match fs::remove_dir_all(&private) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", private.display()));
            }
            _ => {}
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&private)
            .with_context(|| format!("creating {}", private.display()))?;
        let made = private.join("s");
        let listener = UnixListener::bind(&made)
            .with_context(|| format!("listening on {}", made.display()))?;
        fs::set_permissions(&made, Permissions::from_mode(0o600))
            .context("removing the permissions of other users from the control socket")?;
        fs::rename(&made, &path).with_context(|| format!("replacing {}", path.display()))?;
        fs::remove_dir(&private).with_context(|| format!("removing {}", private.display()))?;
        let inode = fs::metadata(&path)
            .with_context(|| format!("looking at {}", path.display()))?
            .ino();
        Ok(Self {
            listener,
            path,
            inode,
        })
    }

    /// Serves the same paths as the port to local commands until `stop` is cancelled.
    pub(super) async fn serve(self, routes: Router, stop: CancellationToken) {
        let routes = routes.layer(Extension(Arc::new(Principal::local())));
        let serving =
            axum::serve(self.listener, routes).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = serving.await {
            tracing::warn!("the control socket is gone: {error}");
        }
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // If this fails, the next coordinator replaces the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the path of the socket of the coordinator that listens on that port.
pub(crate) fn place(data_dir: &Path, port: u16) -> PathBuf {
    data_dir.join(format!("control-{port}.sock"))
}

/// The command line for local commands to a coordinator, ready to be pasted.
#[derive(Debug, Clone)]
pub(crate) struct PrintedCommand {
    program: String,
    options: String,
}

impl PrintedCommand {
    /// Makes the command line for the coordinator that listens there. It begins with `command`, or else with this program:
    /// its name if a shell found it, otherwise its path.
    pub(crate) fn new(command: Option<&str>, data_dir: &Path, listen: SocketAddr) -> Self {
        let program = command.map_or_else(this_program, str::to_owned);
        let options = format!(
            "--data-dir {} --listen {listen}",
            shell_word(&data_dir.display().to_string())
        );
        Self { program, options }
    }

    /// Returns the command line with these words.
    pub(crate) fn line(&self, words: &str) -> String {
        format!("{} {words} {}", self.program, self.options)
    }
}

/// Returns the name or path by which this program was called.
pub(crate) fn this_program() -> String {
    let is_path = std::env::args_os()
        .next()
        .is_some_and(|called| Path::new(&called).components().count() > 1);
    let path = std::env::current_exe().ok().filter(|_| is_path);
    path.map_or_else(
        || NAME.to_owned(),
        |path| shell_word(&path.display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn only_its_user_reaches_it_and_a_successor_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let bind = || ControlSocket::bind(folder.path(), 8420).expect("a socket");
        let (first, path) = (bind(), place(folder.path(), 8420));
        assert_eq!(
            fs::metadata(&path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        let second = bind();
        let over = CancellationToken::new();
        over.cancel();
        first.serve(Router::new(), over.clone()).await;
        assert!(UnixStream::connect(&path).is_ok(), "the successor's stays");
        second.serve(Router::new(), over).await;
        assert_eq!(
            fs::read_dir(folder.path()).expect("a folder").count(),
            0,
            "nothing stays"
        );
    }

    #[test]
    fn a_command_leads_to_the_coordinator_that_printed_it() {
        let check = |command: Option<&str>, data_dir: &str, expected: &str| {
            let listen = "0.0.0.0:8440".parse().expect("an address");
            let line = PrintedCommand::new(command, Path::new(data_dir), listen).line("keys list");
            assert!(line.ends_with(expected), "{line}");
        };
        check(
            Some("c3po-coordinator"),
            "/data",
            "c3po-coordinator keys list --data-dir /data --listen 0.0.0.0:8440",
        );
        let in_docker = "docker compose exec coordinator c3po-coordinator";
        check(
            Some(in_docker),
            "/data",
            &format!("{in_docker} keys list --data-dir /data --listen 0.0.0.0:8440"),
        );
        check(
            None,
            "/home/ann's/c3po",
            r" keys list --data-dir '/home/ann'\''s/c3po' --listen 0.0.0.0:8440",
        );
    }
}
