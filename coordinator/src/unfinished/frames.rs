//! The frames of a WebSocket, followed by their headers (RFC 6455, section 5.2), so that nothing is read beyond a long message,
//! and a flood of short ones takes turns with other connections: a message may have any number of empty ones.

/// A message with a longer frame counts as long: the buffers of the connection grow to the frame's length.
pub(super) const LONG: u64 = 16 << 10;
/// The bytes of every header. They determine the length of the rest.
const HEADER_MIN: usize = 2;
/// After how many frames others have their turn. Parsing these takes less than a tenth of a millisecond.
const IN_TURN_MAX: usize = 128;

/// The position in the stream of frames of one client.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The header that is being read.
    header: Vec<u8>,
    /// The bytes that follow of the frame.
    left: u64,
    /// Whether the frame is the last one of its message.
    is_last: bool,
    /// Whether the message has a long frame.
    is_long: bool,
    /// Whether the stream stands exactly behind a long message.
    is_behind_long: bool,
    /// How many frames began since others had their turn, also long ago.
    in_turn: usize,
}

impl Frames {
    /// Returns how many bytes may be read at once: no limit, unless the present message is long.
    pub(super) fn most(&self) -> usize {
        if !self.is_long {
            return usize::MAX;
        }
        match self.left {
            0 => header_length(&self.header) - self.header.len(),
            left => usize::try_from(left).unwrap_or(usize::MAX),
        }
    }

    /// Follows bytes that were read.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        while let Some(byte) = bytes.first() {
            self.is_behind_long = false;
            if self.left > 0 {
                let part = bytes
                    .len()
                    .min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= part as u64;
                bytes = &bytes[part..];
            } else {
                self.header.push(*byte);
                bytes = &bytes[1..];
                if self.header.len() < header_length(&self.header) {
                    continue;
                }
                self.begin();
            }
            if self.left == 0 && self.is_last {
                self.is_behind_long = std::mem::take(&mut self.is_long);
            }
        }
    }

    /// Returns whether the stream stands exactly behind a long message.
    pub(super) fn is_behind_long(&self) -> bool {
        self.is_behind_long
    }

    /// Returns whether so many frames began that others have their turn.
    pub(super) fn is_turn_over(&self) -> bool {
        self.in_turn >= IN_TURN_MAX
    }

    /// Begins the next turn.
    pub(super) fn begin_turn(&mut self) {
        self.in_turn = 0;
    }

    /// Begins the frame whose header is complete.
    fn begin(&mut self) {
        self.left = match self.header[1] & 0x7f {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => u64::from_be_bytes(self.header[2..10].try_into().expect("it is complete")),
            short => u64::from(short),
        };
        // A control frame may stand between the frames of a message and is not part of it.
        let is_control = self.header[0] & 0x08 != 0;
        self.is_last = !is_control && self.header[0] & 0x80 != 0;
        self.is_long |= self.left > LONG;
        self.header.clear();
        self.in_turn += 1;
    }
}

/// Returns the length of a header that begins like this, as far as it is known.
fn header_length(header: &[u8]) -> usize {
    let Some(second) = header.get(1) else {
        return HEADER_MIN;
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    HEADER_MIN + length + mask
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 1;
    const CONTINUATION: u8 = 0;
    const PING: u8 = 9;
    const FIN: u8 = 0x80;

    /// Returns a masked frame.
    fn frame(first: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![first];
        match length {
            0..126 => frame.push(0x80 | u8::try_from(length).expect("short")),
            126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(length).expect("fits").to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([7; 4]);
        frame.extend(vec![b'x'; length]);
        frame
    }

    /// Reads the stream in pieces of at most `piece` bytes. Returns where it stands behind long messages.
    fn ends(stream: &[u8], piece: usize) -> Vec<usize> {
        let (mut frames, mut at, mut ends) = (Frames::default(), 0, Vec::new());
        while at < stream.len() {
            let part = piece.min(frames.most()).min(stream.len() - at);
            assert!(part > 0, "it goes on");
            frames.note(&stream[at..at + part]);
            at += part;
            if frames.is_behind_long() {
                ends.push(at);
            }
        }
        ends
    }

    #[test]
    fn nothing_is_read_beyond_a_long_message_however_it_arrives() {
        let long = usize::try_from(LONG).expect("it fits") + 1;
        let whole = frame(FIN | TEXT, long);
        let largest = frame(FIN | TEXT, 1 << 20);
        let parts = [
            frame(TEXT, long),
            frame(FIN | PING, 5),
            frame(FIN | CONTINUATION, 3),
        ]
        .concat();
        let empty = [frame(TEXT, long), frame(FIN | CONTINUATION, 0)].concat();
        let short = [
            frame(FIN | TEXT, 0),
            frame(FIN | TEXT, 200),
            frame(TEXT, 9),
            frame(FIN | CONTINUATION, 300),
        ]
        .concat();
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for message in [
            &short, &whole, &short, &largest, &parts, &whole, &empty, &short,
        ] {
            stream.extend(message);
            if *message != short {
                expected.push(stream.len());
            }
        }
        // The WebSocket reads a kilobyte at a time.
        for piece in [1, 3, 1024, 4096] {
            assert_eq!(ends(&stream, piece), expected, "pieces of {piece}");
        }
    }
}
