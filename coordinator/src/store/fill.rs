//! How full the embedded store is, its file and its disk, and the replies that a full store accepts.

use c3po_shared::limits::SHORT_REPLY_BYTES;

use super::Send;

/// The part of the limit, or of the reserve, that is little: much more than a group of entries of the log.
const TIGHT_PART: u64 = 8;

/// The space that the embedded store uses and may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The bytes of its file that are in use.
    pub bytes: u64,
    /// The limit of these bytes; `None` if only the disk limits them.
    pub max: Option<u64>,
    /// The bytes still available: free space on the disk and in the file itself.
    pub free: u64,
    /// How many of the free bytes are reserved.
    pub floor: u64,
}

impl Fill {
    /// Returns why the store refuses new messages, or `None` if it accepts them.
    pub fn refuses(&self) -> Option<String> {
        match self.max {
            Some(max) if self.bytes >= max => Some(format!(
                "it uses {} of {max} bytes (--store-max)",
                self.bytes
            )),
            _ if self.free < self.floor => Some(format!(
                "{} bytes are free on its disk, and {} must stay free",
                self.free, self.floor
            )),
            _ => None,
        }
    }

    /// Returns whether little is left until it refuses new messages, or nothing: the log shrinks then.
    pub fn is_tight(&self) -> bool {
        let tight = |max: u64| self.bytes >= max - max / TIGHT_PART;
        self.max.is_some_and(tight) || self.free < self.floor + self.floor / TIGHT_PART
    }

    /// Returns whether short replies have used up their half of the reserve. The other half is for answers of people,
    /// acknowledgements, receipts, sessions and revocations.
    pub fn is_spent(&self) -> bool {
        self.free < self.floor / 2
    }

    /// Returns whether receipts and the texts of agents have used up their part of the reserve too.
    pub fn is_scarce(&self) -> bool {
        self.free < self.floor / 4
    }
}

impl Send {
    /// Returns whether it is an answer of people, for which the asker waits: it may use the whole reserve.
    pub(super) fn is_of_people(&self) -> bool {
        self.message.from_agent.is_human()
    }
}

/// Returns whether a reply with an envelope of that length in bytes may use a part of the reserve.
pub(super) fn is_short(envelope: usize) -> bool {
    envelope <= SHORT_REPLY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_refuses_at_its_size_and_at_the_floor_of_its_disk() {
        let refuses = |bytes, max, free| {
            Fill {
                bytes,
                max,
                free,
                floor: 64,
            }
            .refuses()
        };
        assert_eq!(refuses(1_000, None, 64), None);
        assert_eq!(refuses(999, Some(1_000), 64), None);
        let size = refuses(1_000, Some(1_000), 64).unwrap_or_default();
        assert!(
            size.contains("1000 of 1000") && size.contains("--store-max"),
            "{size}"
        );
        let disk = refuses(0, Some(1_000), 63).unwrap_or_default();
        assert!(disk.contains("63 bytes are free"), "{disk}");
        for (free, tight, spent, scarce) in [
            (72, false, false, false),
            (71, true, false, false),
            (32, true, false, false),
            (31, true, true, false),
            (16, true, true, false),
            (15, true, true, true),
        ] {
            let fill = Fill {
                bytes: 0,
                max: None,
                free,
                floor: 64,
            };
            let found = (fill.is_tight(), fill.is_spent(), fill.is_scarce());
            assert_eq!(found, (tight, spent, scarce), "{free}");
            let used = Fill {
                bytes: 1_000 - free,
                max: Some(1_000),
                free: u64::MAX / 2,
                floor: 64,
            };
            assert_eq!(used.is_tight(), free <= 125, "{free}");
        }
    }
}
