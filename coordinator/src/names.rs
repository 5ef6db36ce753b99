//! Resolves names of this machine and of Redis. A statically linked program calls the system's `getent` if the resolver needs
//! modules that it cannot load.

use std::fs;
use std::io::{self, Read as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use c3po_shared::names;

/// The deadline of `getent`.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often its exit is polled.
const LOOK: Duration = Duration::from_millis(10);
/// Whether the C library is statically linked.
const OWN_LIBRARY: bool = cfg!(target_feature = "crt-static");

/// Returns the addresses of a host, which may itself be an address. It blocks as long as the system's resolver does; `getent`
/// has a deadline.
pub(crate) fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(itself) = names::itself(host, port) {
        return Ok(vec![itself]);
    }
    if OWN_LIBRARY && names::need_modules(&fs::read_to_string(names::NSSWITCH).unwrap_or_default())
    {
        return by_getent(host, port);
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

fn by_getent(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let [program, database] = names::GETENT;
    let mut getent = Command::new(program);
    getent.args([database, host]);
    names::answered(output(getent, DEADLINE), host, port)
}

/// Runs a program whose output fits into a pipe. Returns its output.
///
/// Errors: it does not start, or is killed at the deadline.
fn output(mut program: Command, deadline: Duration) -> Result<Vec<u8>, String> {
    let told = |error: io::Error| error.to_string();
    let began = Instant::now();
    let mut running = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(told)?;
    while running.try_wait().map_err(told)?.is_none() {
        if began.elapsed() >= deadline {
            running.kill().and_then(|()| running.wait()).map_err(told)?;
            return Err(format!("no answer within {deadline:?}"));
        }
        sleep(LOOK);
    }
    let mut printed = Vec::new();
    if let Some(mut pipe) = running.stdout {
        pipe.read_to_end(&mut printed).map_err(told)?;
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_itself_and_a_name_is_looked_up() {
        let itself: SocketAddr = "[fe80::1]:6379".parse().expect("an address");
        assert_eq!(addresses("fe80::1", 6379).expect("an address"), [itself]);
        let local = addresses("localhost", 6379).expect("addresses");
        assert!(
            !local.is_empty() && local.iter().all(|found| found.ip().is_loopback()),
            "{local:?}"
        );
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_its_deadline() {
        let mut hangs = Command::new("sleep");
        hangs.arg("60");
        let began = Instant::now();
        assert_eq!(
            output(hangs, Duration::from_millis(50)),
            Err("no answer within 50ms".to_owned())
        );
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "it was waited for"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_program_of_the_system_knows_the_same_names() {
        let local = by_getent("localhost", 6379).expect("addresses");
        assert!(
            !local.is_empty() && local.iter().all(|found| found.ip().is_loopback()),
            "{local:?}"
        );
        let nobody = by_getent("c3po.invalid", 6379)
            .expect_err("no such name")
            .to_string();
        assert!(
            nobody.contains("no address found for c3po.invalid"),
            "{nobody}"
        );
    }
}
