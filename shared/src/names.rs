//! Names of hosts in a program that brings its own C library: whether that library may look them up, and how the answer
//! of the system's own program (`getent ahosts NAME`) is read.
//!
//! A C library within the program cannot load the modules of `/etc/nsswitch.conf` (mDNS for `.local`, systemd-resolved): if
//! the system has another version of the library, trying it aborts the program.

use std::net::IpAddr;

/// The services that every C library has within itself.
const BUILT_IN: [&str; 2] = ["files", "dns"];

/// Returns whether this text of `/etc/nsswitch.conf` has names of hosts looked up by modules.
pub fn need_modules(nsswitch: &str) -> bool {
    let lines = nsswitch.lines().map(|line| line.split('#').next().unwrap_or_default().trim_start());
    let Some(services) = lines.filter_map(|line| line.strip_prefix("hosts:")).next_back() else { return false };
    // What stands in brackets are actions; they may hold spaces.
    let named = services.split('[').map(|part| part.rsplit(']').next().unwrap_or_default());
    named.flat_map(str::split_whitespace).any(|service| !BUILT_IN.contains(&service))
}

/// Returns the addresses in an answer of `getent ahosts`, each once, in its order.
pub fn addresses(answer: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in answer.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
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
        let check = |nsswitch: &str, expected: bool| assert_eq!(need_modules(nsswitch), expected, "{nsswitch}");
        check("", false);
        check("passwd: files systemd\nhosts: files dns\nnetworks: files\n", false);
        check("hosts:\tfiles [!UNAVAIL=return SUCCESS=continue] dns # mdns4", false);
        check("#hosts: mdns4\nhosts: files", false);
        check("hosts: files mdns4_minimal [NOTFOUND=return] dns", true);
        check("hosts:files myhostname resolve [!UNAVAIL=return] dns", true);
        check("hosts: [SUCCESS=return] wins", true);
    }

    #[test]
    fn the_addresses_of_an_answer_are_read_once_each() {
        let answer = "192.168.1.7     STREAM nas.local\n192.168.1.7     DGRAM  \nfe80::1         STREAM \nnonsense\n\n";
        let expected: Vec<IpAddr> = ["192.168.1.7", "fe80::1"].map(|text| text.parse().expect("an address")).into();
        assert_eq!(addresses(answer), expected);
        assert!(addresses("").is_empty());
    }
}
