//! Ports for servers that have to be given one before they start.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};

/// Where servers listen that are given their port, and how many of these are tried.
const PORTS: Range<u16> = 12_000..22_000;
const PORT_ATTEMPTS: usize = 100;

/// Returns a port that nobody listens on. Another test may take it before it is used, and no connection can: it is
/// below the ports that Linux gives to those, and so is the one of a cluster, 10,000 above it.
pub(crate) fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..PORT_ATTEMPTS).map(|_| any_port()).find(is_free).context("a free port")
}

fn any_port() -> u16 {
    let chance = RandomState::new().build_hasher().finish();
    let nth = chance % u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(nth).unwrap_or_default()
}
