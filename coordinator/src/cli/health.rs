//! Asking a running coordinator whether it is well, for container health checks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Method, StatusCode};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::exchange;
use crate::config::ServeFlags;
use crate::server::control_socket;

/// How long connecting may take, and the answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// The answer of a port with TLS to plain HTTP.
const SPEAKS_TLS: StatusCode = StatusCode::BAD_REQUEST;

/// Asks the coordinator that these settings start. Returns its answer if it is well.
///
/// The port must answer in any case. If it speaks TLS, nothing more can be learned there without knowing its certificate,
/// and the same coordinator's own socket has the rest.
pub async fn ask(settings: &ServeFlags) -> anyhow::Result<String> {
    let (listen, question) = (settings.listen, || (Method::GET, "/api/health", String::new()));
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let connecting = timeout(DEADLINE, TcpStream::connect(address)).await.map_err(std::io::Error::from).flatten();
    let stream = connecting.with_context(|| format!("no coordinator answers at {address}"))?;
    let mut answer = exchange(stream, question(), DEADLINE).await.with_context(|| format!("asking {address}"))?;
    if answer.status == SPEAKS_TLS {
        let path = control_socket(&settings.data_dir()?, listen.port());
        let stream = UnixStream::connect(&path).await.with_context(|| {
            format!("no coordinator is listening on {}; pass the --data-dir it was started with", path.display())
        })?;
        answer = exchange(stream, question(), DEADLINE).await.with_context(|| format!("asking {}", path.display()))?;
    }
    if answer.status != StatusCode::OK {
        bail!("the coordinator at {address} is not well: {}", answer.body);
    }
    Ok(answer.body)
}

/// A coordinator that listens on all addresses is reached on loopback.
fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
