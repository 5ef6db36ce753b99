//! The addresses behind a name: of this machine, and of a Redis. A program with a C library of its own asks the system's
//! `getent` where that library would need modules of the system.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

use c3po_shared::names;

/// Says which services look up names.
const NSSWITCH: &str = "/etc/nsswitch.conf";
/// Whether the C library is a part of this program.
const OWN_LIBRARY: bool = cfg!(target_feature = "crt-static");

/// Returns the addresses of a host, which may be one itself. It takes as long as the system's resolver does.
pub(crate) fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if OWN_LIBRARY && names::need_modules(&fs::read_to_string(NSSWITCH).unwrap_or_default()) {
        return by_getent(host, port);
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

fn by_getent(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let failed = |why: String| io::Error::other(format!("failed to lookup address information: {why}"));
    let mut getent = Command::new("getent");
    getent.args(["ahosts", host]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = getent.output().map_err(|error| failed(format!("getent: {error}")))?;
    let addresses = names::addresses(&String::from_utf8_lossy(&output.stdout));
    if addresses.is_empty() {
        return Err(failed(format!("this system knows no address of {host}")));
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_itself_and_a_name_is_looked_up() {
        let itself: SocketAddr = "[fe80::1]:6379".parse().expect("an address");
        assert_eq!(addresses("fe80::1", 6379).expect("an address"), [itself]);
        let local = addresses("localhost", 6379).expect("addresses");
        assert!(!local.is_empty() && local.iter().all(|found| found.ip().is_loopback()), "{local:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_program_of_the_system_knows_the_same_names() {
        let local = by_getent("localhost", 6379).expect("addresses");
        assert!(!local.is_empty() && local.iter().all(|found| found.ip().is_loopback()), "{local:?}");
        let nobody = by_getent("c3po.invalid", 6379).expect_err("no such name").to_string();
        assert!(nobody.contains("knows no address of c3po.invalid"), "{nobody}");
    }
}
