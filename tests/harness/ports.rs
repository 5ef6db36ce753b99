//! Ports for servers that need one before they start.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};

/// The range of ports for servers, and how many of them are tried.
const PORTS: Range<u16> = 12_000..22_000;
const PORT_ATTEMPTS: usize = 100;

/// Returns a free port. Another test may take it first, but no outgoing connection can: it is below the ephemeral ports of
/// Linux. So is a cluster's second port, which is 10,000 higher.
pub(crate) fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..PORT_ATTEMPTS)
        .map(|_| any_port())
        .find(is_free)
        .context("a free port")
}

fn any_port() -> u16 {
    let chance = RandomState::new().build_hasher().finish();
    let nth = chance % u64::from(PORTS.end - PORTS.start);
    PORTS.start + u16::try_from(nth).unwrap_or_default()
}
