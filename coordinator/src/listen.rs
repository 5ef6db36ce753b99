//! The listen address: an address and a port, or a local host name and a port.

use std::net::SocketAddr;

use crate::names;

/// Parses a value of `--listen`. A name is resolved, with a preference for IPv4.
///
/// Errors: it is neither an address nor a name. The error describes the format.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(match text.parse::<u16>() {
        Ok(_) => ("", text),
        Err(_) => (text, ""),
    });
    match (host, port) {
        ("", _) => Err(format!(
            "it needs an address before the port: 127.0.0.1:{port} serves only this machine, 0.0.0.0:{port} serves the \
             network"
        )),
        (host, "") => Err(format!("it needs a port: {host}:8420")),
        (host, number) => match number.parse() {
            Err(_) => Err(format!("{number:?} is not a port: {host}:8420")),
            Ok(port) => resolve(host, port).map_err(|why| {
                format!("{host} is not an address of this machine ({why}): 0.0.0.0:{port} serves the whole network")
            }),
        },
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let found = names::addresses(host, port).map_err(|error| error.to_string())?;
    let first = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    first
        .copied()
        .ok_or_else(|| "the name has no address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_of_this_machine_are_read() {
        let check = |text: &str, expected: &str| {
            assert_eq!(listen_address(text), Ok(expected.parse().unwrap()))
        };
        check("127.0.0.1:8440", "127.0.0.1:8440");
        check("[::1]:8440", "[::1]:8440");
        check("localhost:8440", "127.0.0.1:8440");
    }

    #[test]
    fn an_incomplete_address_is_refused_with_the_one_to_write() {
        let check = |text: &str, expected: &str| {
            let refusal = listen_address(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        };
        check(
            "8440",
            "127.0.0.1:8440 serves only this machine, 0.0.0.0:8440 serves the network",
        );
        check(":8440", "127.0.0.1:8440 serves only this machine");
        check("nas", "nas:8420");
        check("nas:", "nas:8420");
        check("nas:http", "\"http\" is not a port: nas:8420");
        check("nas.invalid:8440", "0.0.0.0:8440 serves the whole network");
    }
}
