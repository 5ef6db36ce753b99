//! The coordinator's own socket, for commands on its machine: whoever may open the file may do everything but be an agent.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use axum::{Extension, Router};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::auth::Principal;

/// The listening end.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is: a successor's may lie there in the end.
    inode: u64,
}

impl Socket {
    /// Takes the place of the coordinator that listens on that port. What a killed one left there is replaced: the port
    /// is ours.
    pub(super) fn bind(data_dir: &Path, port: u16) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
        made.with_context(|| format!("making {}", data_dir.display()))?;
        let path = place(data_dir, port);
        // Made where nobody else comes, and moved once it is closed to others. The name is short, as those of sockets are.
        let private = data_dir.join(format!(".c{port}"));
        match fs::remove_dir_all(&private) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", private.display()));
            }
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&private).with_context(|| format!("making {}", private.display()))?;
        let made = private.join("s");
        let listener = UnixListener::bind(&made).with_context(|| format!("listening on {}", made.display()))?;
        fs::set_permissions(&made, Permissions::from_mode(0o600)).context("closing the control socket to others")?;
        fs::rename(&made, &path).with_context(|| format!("replacing {}", path.display()))?;
        fs::remove_dir(&private).with_context(|| format!("removing {}", private.display()))?;
        let inode = fs::metadata(&path).with_context(|| format!("looking at {}", path.display()))?.ino();
        Ok(Self { listener, path, inode })
    }

    /// Serves the same paths as the port, for somebody of this machine, until `stop` is cancelled.
    pub(super) async fn serve(self, routes: Router, stop: CancellationToken) {
        let routes = routes.layer(Extension(Arc::new(Principal::local())));
        let serving = axum::serve(self.listener, routes).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = serving.await {
            tracing::warn!("the control socket is gone: {error}");
        }
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // The next one replaces it in any case.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the path of the socket of the coordinator that listens on that port.
pub(crate) fn place(data_dir: &Path, port: u16) -> PathBuf {
    data_dir.join(format!("control-{port}.sock"))
}

/// Returns the options that lead the coordinator's own commands to the one that listens there.
pub(crate) fn options(data_dir: &Path, listen: SocketAddr) -> String {
    format!("--data-dir {} --listen {listen}", data_dir.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn only_its_user_reaches_it_and_a_successor_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let bind = || Socket::bind(folder.path(), 8420).expect("a socket");
        let (first, path) = (bind(), place(folder.path(), 8420));
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        let second = bind();
        let over = CancellationToken::new();
        over.cancel();
        first.serve(Router::new(), over.clone()).await;
        assert!(UnixStream::connect(&path).is_ok(), "the successor's stays");
        second.serve(Router::new(), over).await;
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing stays");
    }
}
