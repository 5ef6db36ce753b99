//! The client's transcript of a session: evidence of what its conversation holds, beside the hooks and never alone.
//!
//! Each line is an object with an id and its parent's, and the conversation is the chain from the last one upward: after a
//! rewind or an interrupted turn a part of the file is no longer in it. The format is the client's own. Lines that are not
//! understood are passed over, and where nothing is understood there is no evidence.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use c3po_shared::ids::MessageId;
use serde::Deserialize;
use uuid::Uuid;

/// How much of a file is read at most: the end of a longer one, of which nothing was read before.
const READ_MAX: u64 = 64 << 20;

/// What was read of one file.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    path: PathBuf,
    read: u64,
    lines: HashMap<Uuid, Line>,
    last: Option<Uuid>,
}

/// One line that is a part of a conversation.
#[derive(Debug)]
struct Line {
    parent: Option<Uuid>,
    /// The messages that it names.
    ids: Vec<MessageId>,
}

/// The members of a line that are read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    uuid: Uuid,
    #[serde(default)]
    parent_uuid: Option<Uuid>,
    #[serde(default)]
    is_sidechain: bool,
}

impl Transcript {
    /// Reads on in that file, and returns which messages the conversation names. Blocks.
    ///
    /// Errors: it cannot be read, or holds nothing that is understood.
    pub(super) fn conversation(&mut self, path: &Path) -> io::Result<HashSet<MessageId>> {
        if self.path != path {
            *self = Self { path: path.to_owned(), ..Self::default() };
        }
        self.read_on()?;
        let mut ids = HashSet::new();
        let mut next = self.last;
        // A line is taken out of what is left, so that a file that refers to itself ends as well.
        let mut left: HashSet<Uuid> = self.lines.keys().copied().collect();
        while let Some(uuid) = next.take_if(|uuid| left.remove(uuid)) {
            let Some(line) = self.lines.get(&uuid) else { break };
            ids.extend(line.ids.iter().cloned());
            next = line.parent;
        }
        if self.last.is_some() { Ok(ids) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn read_on(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        if length < self.read {
            // It was written anew.
            *self = Self { path: std::mem::take(&mut self.path), ..Self::default() };
        }
        self.read = self.read.max(length.saturating_sub(READ_MAX));
        file.seek(SeekFrom::Start(self.read))?;
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                // The rest of it is still being written.
                return Ok(());
            }
            self.read += length as u64;
            self.add(&line);
        }
    }

    fn add(&mut self, line: &[u8]) {
        let Ok(link) = serde_json::from_slice::<Link>(line) else { return };
        if link.is_sidechain {
            return;
        }
        let ids = ids_in(&String::from_utf8_lossy(line));
        self.lines.insert(link.uuid, Line { parent: link.parent_uuid, ids });
        self.last = Some(link.uuid);
    }
}

/// Returns the messages that a text names, each once.
fn ids_in(text: &str) -> Vec<MessageId> {
    let mut ids: Vec<MessageId> = Vec::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    for word in text.split(|c| !is_part(c)).filter(|word| word.contains("::")) {
        // A sentence may end behind it.
        if let Ok(id) = word.trim_end_matches(['.', ':']).parse()
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    ids
}
