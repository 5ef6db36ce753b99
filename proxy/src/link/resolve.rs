//! The addresses of a coordinator's host. The system's `getent` finds them if a statically linked C library would need modules
//! of the system, or if the environment would lead this process to other names: it runs without those variables.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;

use c3po_shared::names;
use tokio::net::lookup_host;
use tokio::process::Command;

use crate::config::resolver_steering;

/// Whether the C library is part of this program.
const OWN_LIBRARY: bool = cfg!(target_feature = "crt-static");

/// Returns the addresses of a host name or of an IP address. The caller sets the deadline.
pub(super) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(itself) = names::itself(host, port) {
        return Ok(vec![itself]);
    }
    let steering = resolver_steering();
    if steering.is_some() || needs_modules().await {
        let found = by_getent(host, port).await;
        return found.map_err(|error| match steering {
            Some(variable) => names::failed_without(variable, &error),
            None => error,
        });
    }
    Ok(lookup_host((host, port)).await?.collect())
}

/// Returns whether the C library of this program would need modules that it cannot load.
async fn needs_modules() -> bool {
    OWN_LIBRARY
        && names::need_modules(
            &tokio::fs::read_to_string(names::NSSWITCH)
                .await
                .unwrap_or_default(),
        )
}

async fn by_getent(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let [program, database] = names::GETENT;
    let mut getent = Command::new(program);
    for name in names::STEERING {
        getent.env_remove(name);
    }
    getent
        .args([database, host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let answer = getent
        .output()
        .await
        .map(|output| output.stdout)
        .map_err(|error| error.to_string());
    names::answered(answer, host, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_itself_and_a_name_is_looked_up() {
        let itself: SocketAddr = "[fe80::1]:8420".parse().expect("an address");
        assert_eq!(
            addresses("fe80::1", 8420).await.expect("an address"),
            [itself]
        );
        let local = addresses("localhost", 8420).await.expect("addresses");
        assert!(
            !local.is_empty() && local.iter().all(|found| found.ip().is_loopback()),
            "{local:?}"
        );
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_program_of_the_system_knows_the_same_names() {
        let local = by_getent("localhost", 8420).await.expect("addresses");
        assert!(
            !local.is_empty() && local.iter().all(|found| found.ip().is_loopback()),
            "{local:?}"
        );
        let nobody = by_getent("c3po.invalid", 8420)
            .await
            .expect_err("no such name")
            .to_string();
        assert!(
            nobody.contains("no address found for c3po.invalid"),
            "{nobody}"
        );
    }
}
