//! The health check of a running coordinator, for containers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Method, StatusCode};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::{absent, exchange};
use crate::config::ServeFlags;
use crate::server::control_socket;

/// The deadline for connecting, and for the response.
const DEADLINE: Duration = Duration::from_secs(3);
/// The status of a TLS port in response to plain HTTP.
const SPEAKS_TLS: StatusCode = StatusCode::BAD_REQUEST;

/// Checks the coordinator with these settings. Returns its response if it is healthy.
///
/// The port must respond in any case. If it uses TLS, its certificate is unknown here, so the health is read from the control
/// socket of the same coordinator.
pub async fn ask(settings: &ServeFlags) -> anyhow::Result<String> {
    let (listen, question) = (settings.listen, || {
        (Method::GET, "/api/health", String::new())
    });
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let connecting = timeout(DEADLINE, TcpStream::connect(address))
        .await
        .map_err(std::io::Error::from)
        .flatten();
    let stream = connecting.with_context(|| format!("no coordinator is running at {address}"))?;
    let mut answer = exchange(stream, question(), DEADLINE)
        .await
        .with_context(|| format!("asking {address}"))?;
    if answer.status == SPEAKS_TLS {
        let path = control_socket(&settings.data_dir()?, listen.port());
        let stream = UnixStream::connect(&path).await.with_context(|| {
            format!(
                "no coordinator is listening on {}; pass the --data-dir it was started with",
                path.display()
            )
        })?;
        absent::check_peer(&stream, &path)?;
        answer = exchange(stream, question(), DEADLINE)
            .await
            .with_context(|| format!("asking {}", path.display()))?;
    }
    if answer.status != StatusCode::OK {
        bail!(
            "the coordinator at {address} is not healthy: {}",
            answer.body
        );
    }
    Ok(answer.body)
}

/// Returns the address to connect to: loopback for a coordinator that listens on all addresses.
fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
