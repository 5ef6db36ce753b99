//! Host name lookup in a program with its own C library. Decides whether that library can do the lookup, and parses the
//! output of the system's `getent ahosts NAME`.
//!
//! A statically linked C library cannot load the modules of `/etc/nsswitch.conf` (mDNS for `.local`, systemd-resolved). If
//! the system has another version of the library, loading one aborts the program.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The services that are built into every C library.
const BUILT_IN: [&str; 2] = ["files", "dns"];

/// The file that lists the services for host name lookup.
pub const NSSWITCH: &str = "/etc/nsswitch.conf";
/// The system's lookup program and its first argument; the host name follows.
pub const GETENT: [&str; 2] = ["getent", "ahosts"];
/// The variables that lead the system's C library to other names than the person wrote: search domains, options, aliases.
pub const STEERING: [&str; 3] = ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"];

/// Returns the first of the [`STEERING`] variables that has a value. An empty one leads nowhere else.
pub fn steering(value: impl Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let is_set = |name: &&str| value(name).is_some_and(|value| !value.is_empty());
    STEERING.into_iter().find(is_set)
}

/// Returns the error of a look-up by `getent` without that variable, which is set, with what to do.
pub fn failed_without(variable: &str, error: &io::Error) -> io::Error {
    let [getent, _] = GETENT;
    io::Error::other(format!(
        "{error}. {variable} is set, so c3po asks `{getent}` without that variable: install `{getent}` if it is missing, \
         write the full name or the IP address of the host into the coordinator's URL, or unset {variable}"
    ))
}

/// Returns the address if the host is an IP address, or `localhost`: 127.0.0.1. The system may resolve that to `[::1]` as well,
/// where another user may listen.
pub fn itself(host: &str, port: u16) -> Option<SocketAddr> {
    let address = if host.eq_ignore_ascii_case("localhost") {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    } else {
        host.parse().ok()
    };
    address.map(|address| SocketAddr::new(address, port))
}

/// Returns the addresses in the output of `getent`.
///
/// Errors: `getent` failed, or its output has no address.
pub fn answered(
    answer: Result<Vec<u8>, String>,
    host: &str,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    let failed =
        |why: String| io::Error::other(format!("failed to lookup address information: {why}"));
    let answer = answer.map_err(|why| failed(format!("getent: {why}")))?;
    let addresses = addresses(&String::from_utf8_lossy(&answer));
    if addresses.is_empty() {
        return Err(failed(format!("no address found for {host}")));
    }
    Ok(addresses
        .into_iter()
        .map(|address| SocketAddr::new(address, port))
        .collect())
}

/// Returns whether this text of `/etc/nsswitch.conf` uses modules to look up hosts.
pub fn need_modules(nsswitch: &str) -> bool {
    let lines = nsswitch
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim_start());
    let Some(services) = lines
        .filter_map(|line| line.strip_prefix("hosts:"))
        .next_back()
    else {
        return false;
    };
    // Text in brackets is an action, and may contain spaces.
    let named = services
        .split('[')
        .map(|part| part.rsplit(']').next().unwrap_or_default());
    named
        .flat_map(str::split_whitespace)
        .any(|service| !BUILT_IN.contains(&service))
}

/// Returns the addresses in the output of `getent ahosts`, in order and without duplicates.
fn addresses(answer: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in answer
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_dns_need_no_modules_and_everything_else_does() {
        let check = |nsswitch: &str, expected: bool| {
            assert_eq!(need_modules(nsswitch), expected, "{nsswitch}")
        };
        check("", false);
        check(
            "passwd: files systemd\nhosts: files dns\nnetworks: files\n",
            false,
        );
        check(
            "hosts:\tfiles [!UNAVAIL=return SUCCESS=continue] dns # mdns4",
            false,
        );
        check("#hosts: mdns4\nhosts: files", false);
        check("hosts: files mdns4_minimal [NOTFOUND=return] dns", true);
        check("hosts:files myhostname resolve [!UNAVAIL=return] dns", true);
        check("hosts: [SUCCESS=return] wins", true);
    }

    #[test]
    fn a_variable_without_a_value_leads_nowhere_else() {
        let check = |set: &[(&str, &str)], expected: Option<&str>| {
            let value = |name: &str| {
                let found = set.iter().find(|(named, _)| *named == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(steering(value), expected, "{set:?}");
        };
        check(&[], None);
        check(&[("PATH", "/bin")], None);
        check(&[("RES_OPTIONS", ""), ("LOCALDOMAIN", "")], None);
        check(
            &[("LOCALDOMAIN", ""), ("RES_OPTIONS", "timeout:1")],
            Some("RES_OPTIONS"),
        );
        check(&[("HOSTALIASES", "/tmp/hosts")], Some("HOSTALIASES"));
    }

    #[test]
    fn a_failed_look_up_names_the_variable_that_it_goes_without() {
        let error = failed_without("RES_OPTIONS", &io::Error::other("getent: gone")).to_string();
        for part in [
            "getent: gone. RES_OPTIONS is set",
            "install `getent`",
            "unset RES_OPTIONS",
        ] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }

    #[test]
    fn an_address_is_itself_and_localhost_is_one_address() {
        let check = |host: &str, expected: Option<&str>| {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(itself(host, 8420), expected, "{host}");
        };
        check("::1", Some("[::1]:8420"));
        check("LOCALHOST", Some("127.0.0.1:8420"));
        check("nas", None);
    }

    #[test]
    fn the_addresses_of_an_answer_are_read_once_each() {
        let answer = "192.168.1.7     STREAM nas.local\n192.168.1.7     DGRAM  \nfe80::1         STREAM \nnonsense\n\n";
        let expected: Vec<IpAddr> = ["192.168.1.7", "fe80::1"]
            .map(|text| text.parse().expect("an address"))
            .into();
        assert_eq!(addresses(answer), expected);
        assert!(addresses("").is_empty());
    }

    #[test]
    fn an_answer_is_addresses_with_the_port_or_an_error_that_names_the_host() {
        let nas = answered(
            Ok(b"192.168.1.7 STREAM nas.local\n".to_vec()),
            "nas.local",
            8420,
        )
        .expect("an address");
        assert_eq!(nas, ["192.168.1.7:8420".parse().expect("an address")]);
        let why = |answer| {
            answered(answer, "nas.local", 8420)
                .expect_err("none")
                .to_string()
        };
        assert_eq!(
            why(Ok(Vec::new())),
            "failed to lookup address information: no address found for nas.local"
        );
        assert_eq!(
            why(Err("gone".into())),
            "failed to lookup address information: getent: gone"
        );
        assert_eq!(
            itself("fe80::1", 6379),
            Some("[fe80::1]:6379".parse().expect("an address"))
        );
        assert_eq!(itself("nas", 6379), None);
    }
}
