//! Asking a running coordinator whether it is well, for container health checks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use super::control::{self, exchange};
use crate::config::ConfigError;

/// How long the answer of the port may take, each for connecting, writing and reading.
const DEADLINE: Duration = Duration::from_secs(3);
/// What a port with TLS says to whoever speaks plainly.
const SPEAKS_TLS: u16 = 400;

/// Asks the coordinator that listens on `listen`. Returns what it says of itself where it is well.
///
/// The port has to answer in any case. Where it speaks TLS, that it does is all that can be heard there without knowing
/// its certificate, and the same coordinator's own socket says the rest.
pub(crate) fn ask(
    listen: SocketAddr,
    data_dir: impl FnOnce() -> Result<PathBuf, ConfigError>,
) -> anyhow::Result<String> {
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let said = exchange(connect(address)?, "GET", "/api/health", "").with_context(|| format!("asking {address}"))?;
    let said = if said.status == SPEAKS_TLS { control::health(&data_dir()?, listen)? } else { said };
    if said.status != 200 {
        bail!("the coordinator at {address} is not well: {}", said.body);
    }
    Ok(said.body)
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, DEADLINE)
        .with_context(|| format!("no coordinator answers at {address}"))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// Whoever listens on all addresses is reached on loopback.
fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
