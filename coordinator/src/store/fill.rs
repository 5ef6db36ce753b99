//! How full the embedded store is: its file and its disk.

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
                "its messages use {} of {max} bytes (--store-max)",
                self.bytes
            )),
            _ if self.free < self.floor => Some(format!(
                "{} bytes are free on its disk, and {} must stay free",
                self.free, self.floor
            )),
            _ => None,
        }
    }
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
    }
}
