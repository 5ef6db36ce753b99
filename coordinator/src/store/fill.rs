//! How full the embedded store is: its file, and the disk that this is on.

/// How much the embedded store takes and may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// How many bytes of its file are in use.
    pub bytes: u64,
    /// How many may be; `None` for as many as the disk has.
    pub max: Option<u64>,
    /// How many bytes it could still take: what is free on the disk, and in the file itself.
    pub free: u64,
    /// How many of these it leaves free.
    pub floor: u64,
}

impl Fill {
    /// Returns why it takes no new messages, where that is so.
    pub fn refuses(&self) -> Option<String> {
        match self.max {
            Some(max) if self.bytes >= max => {
                Some(format!("its messages take {} of {max} bytes (--store-max)", self.bytes))
            }
            _ if self.free < self.floor => {
                Some(format!("{} bytes are free on its disk, and {} are left free", self.free, self.floor))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_refuses_at_its_size_and_at_the_floor_of_its_disk() {
        let refuses = |bytes, max, free| Fill { bytes, max, free, floor: 64 }.refuses();
        assert_eq!(refuses(1_000, None, 64), None);
        assert_eq!(refuses(999, Some(1_000), 64), None);
        let size = refuses(1_000, Some(1_000), 64).unwrap_or_default();
        assert!(size.contains("1000 of 1000") && size.contains("--store-max"), "{size}");
        let disk = refuses(0, Some(1_000), 63).unwrap_or_default();
        assert!(disk.contains("63 bytes are free"), "{disk}");
    }
}
