//! The slot map of a cluster: 16,384 slots, each on one master.

use redis::{RedisError, ServerErrorKind, Value};

use crate::config::ServerAddress;

/// The number of slots.
const SLOTS: u16 = 16_384;

/// The masters of the slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// First slot, last slot and master of each range, in order.
    ranges: Vec<(u16, u16, ServerAddress)>,
}

/// A redirect from a server that does not have the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot has moved to this server permanently.
    Moved(ServerAddress),
    /// The slot is being moved; only this command goes to this server.
    Ask(ServerAddress),
}

impl Slots {
    /// Parses the reply to `CLUSTER SLOTS` from that server. Returns `None` if the reply is malformed.
    pub(super) fn read(answer: &Value, asked: &ServerAddress) -> Option<Self> {
        let mut ranges = list(answer)?
            .iter()
            .map(|range| read_range(range, asked))
            .collect::<Option<Vec<_>>>()?;
        ranges.sort_by_key(|(first, ..)| *first);
        Some(Self { ranges })
    }

    /// Returns the master of the slot.
    pub(super) fn master(&self, slot: u16) -> Option<&ServerAddress> {
        let behind = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, server) = self.ranges.get(behind.checked_sub(1)?)?;
        (slot <= *last).then_some(server)
    }

    /// Returns every master once, sorted.
    pub(super) fn masters(&self) -> Vec<ServerAddress> {
        let mut masters: Vec<ServerAddress> = self
            .ranges
            .iter()
            .map(|(_, _, server)| server.clone())
            .collect();
        masters.sort();
        masters.dedup();
        masters
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    if let Value::Array(list) = value {
        Some(list)
    } else {
        None
    }
}

fn read_range(range: &Value, asked: &ServerAddress) -> Option<(u16, u16, ServerAddress)> {
    let [first, last, master, ..] = list(range)? else {
        return None;
    };
    let [host, port, ..] = list(master)? else {
        return None;
    };
    let number = |value: &Value| redis::from_redis_value_ref::<u16>(value).ok();
    // A server without an announced name has the address that was asked.
    let named = match host {
        Value::Nil => None,
        host => redis::from_redis_value_ref::<String>(host)
            .ok()
            .filter(|host| !host.is_empty() && host != "?"),
    };
    let server = ServerAddress {
        host: named.unwrap_or_else(|| asked.host.clone()),
        port: number(port)?,
    };
    Some((number(first)?, number(last)?, server))
}

/// Returns the redirect that the error contains, if any. `asked` is the server that returned it.
pub(super) fn redirect(error: &RedisError, asked: &ServerAddress) -> Option<Redirect> {
    let (place, _) = error.redirect_node()?;
    let (host, port) = place.rsplit_once(':')?;
    let host = if host.is_empty() {
        &asked.host
    } else {
        host.trim_start_matches('[').trim_end_matches(']')
    };
    let server = ServerAddress {
        host: host.to_owned(),
        port: port.parse().ok()?,
    };
    match error.kind() {
        redis::ErrorKind::Server(ServerErrorKind::Moved) => Some(Redirect::Moved(server)),
        _ => Some(Redirect::Ask(server)),
    }
}

/// Returns the slot of a key, computed from the text between its first braces unless that is empty.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|tag| !tag.is_empty())
    });
    checksum(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            let shifted = sum << 1;
            if sum & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerAddress {
        ServerAddress {
            host: "nas".into(),
            port,
        }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![
                host,
                Value::Int(port),
                Value::BulkString(b"id".to_vec()),
            ]),
        ])
    }

    #[test]
    fn a_key_has_the_slot_that_redis_gives_it() {
        let check = |key: &str, expected: u16| assert_eq!(slot(key.as_bytes()), expected, "{key}");
        // The expected values come from `CLUSTER KEYSLOT` of Redis 7.0.15.
        check("123456789", 12_739);
        check("foo", 12_182);
        check("c3po:{foo}:agent", 12_182);
        check("{}foo", slot(b"{}foo"));
        check("", 0);
        assert_eq!(slot(b"c3po:{a}:agent"), slot(b"a"));
        assert_ne!(slot(b"c3po:{}:agent"), slot(b""));
    }

    #[test]
    fn the_map_of_a_cluster_is_read() {
        let host = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = Value::Array(vec![
            range(100, 200, host("b"), 2),
            range(0, 99, Value::Nil, 1),
            range(300, 300, host(""), 1),
        ]);
        let slots = Slots::read(&answer, &server(9)).expect("a map");
        let check = |slot, expected: Option<&str>| {
            assert_eq!(
                slots.master(slot).map(ServerAddress::to_string).as_deref(),
                expected,
                "{slot}"
            );
        };
        check(0, Some("nas:1"));
        check(99, Some("nas:1"));
        check(100, Some("b:2"));
        check(200, Some("b:2"));
        check(201, None);
        check(300, Some("nas:1"));
        check(16_383, None);
        assert_eq!(slots.masters().len(), 2);
        assert_eq!(Slots::read(&Value::Okay, &server(9)), None);
        assert_eq!(Slots::default().master(0), None);
    }
}
