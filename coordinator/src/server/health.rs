//! Asking a running coordinator whether it is well, for container health checks: one plain HTTP request.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

/// How long the answer may take, each for connecting, writing and reading.
const DEADLINE: Duration = Duration::from_secs(3);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 4_096;

/// Asks the coordinator that listens on `listen`. Returns what it says of itself where it is well.
pub(crate) fn ask(listen: SocketAddr) -> anyhow::Result<String> {
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)
        .with_context(|| format!("no coordinator answers at {address}"))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    write!(stream, "GET /api/health HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer).context("reading the answer")?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    if answer.split_whitespace().nth(1) != Some("200") {
        bail!("the coordinator at {address} is not well: {body}");
    }
    Ok(body)
}

/// Whoever listens on all addresses is reached on loopback.
fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
