//! The records of TLS, followed by their headers (RFC 8446, section 5.1), so that a flood of short ones takes turns with other
//! connections: each costs about as much as a long one, and may have no content at all.

/// The bytes of a header: type, version, and the length of what follows.
const HEADER: usize = 5;
/// How much may be read at once beyond the present record, in bytes.
const BEYOND_MAX: usize = 512;
/// After how many records, and after how many bytes in them, others have their turn. Decrypting these takes less than a tenth
/// of a millisecond.
const IN_TURN_MAX: usize = 16;
const BYTES_MAX: usize = 32 << 10;

/// The position in the stream of records of one client.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The header that is being read, and how much of it there is.
    header: [u8; HEADER],
    known: usize,
    /// The bytes that follow of the record.
    left: usize,
    /// How many records were read in this turn, and how many bytes.
    in_turn: usize,
    bytes: usize,
}

impl Records {
    /// Returns how many bytes may be read at once.
    pub(super) fn most(&self) -> usize {
        self.left.max(BEYOND_MAX)
    }

    /// Returns whether so much was read that others have their turn.
    pub(super) fn is_turn_over(&self) -> bool {
        self.in_turn >= IN_TURN_MAX || self.bytes >= BYTES_MAX
    }

    /// Begins the next turn.
    pub(super) fn begin_turn(&mut self) {
        (self.in_turn, self.bytes) = (0, 0);
    }

    /// Follows bytes that were read.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            if self.left > 0 {
                let part = bytes.len().min(self.left);
                self.left -= part;
                bytes = &bytes[part..];
                continue;
            }
            let part = bytes.len().min(HEADER - self.known);
            self.header[self.known..self.known + part].copy_from_slice(&bytes[..part]);
            self.known += part;
            bytes = &bytes[part..];
            if self.known == HEADER {
                self.known = 0;
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                self.in_turn += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(length: u16) -> Vec<u8> {
        let mut record = vec![23, 3, 3];
        record.extend(length.to_be_bytes());
        record.extend(vec![0; usize::from(length)]);
        record
    }

    #[test]
    fn a_turn_has_some_records_however_they_are_cut() {
        let bytes: Vec<u8> = [0, 22, 600, 1].into_iter().flat_map(record).collect();
        for size in [1, 3, 7, 1_000] {
            let mut records = Records::default();
            bytes.chunks(size).for_each(|part| records.note(part));
            assert_eq!((records.in_turn, records.left, records.known), (4, 0, 0));
        }
    }

    #[test]
    fn a_long_record_is_read_to_its_end_and_little_beyond_it() {
        let mut records = Records::default();
        assert_eq!(records.most(), BEYOND_MAX);
        records.note(&record(16_000)[..100]);
        assert_eq!(records.most(), 16_000 + HEADER - 100);
        records.note(&vec![0; 16_000 - 100]);
        assert_eq!(records.most(), BEYOND_MAX);
    }
}
