//! Downloads for new hosts: the join script to be piped into a shell, and the program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::BytesMut;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::shell_word;
use data_encoding::HEXLOWER;
use futures_util::stream;
use ring::digest::{Context, SHA256};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::AppState;
use super::endpoint::{InPath, Media, Plain, Refused};

/// The path of the script.
pub(super) const SCRIPT_PATH: &str = "/join.sh";
/// The script template. It is completed with the address of this coordinator, the flags of curl, and the available programs.
const SCRIPT: &str = include_str!("join.sh");
/// The URL of the source repository.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// The folder inside the data folder with programs for other machines, as `SYSTEM-PROCESSOR/c3po`.
const FOLDER: &str = "downloads";
/// The name of the program.
const PROGRAM: &str = "c3po";
/// The limit of concurrent downloads.
const AT_ONCE: usize = 4;
/// The deadline for a download over a slow line.
const FETCH_MAX: Duration = Duration::from_secs(600);
/// How much of a program is read into memory at once, in bytes.
const PIECE: usize = 64 << 10;

/// The programs that hosts can download.
#[derive(Debug)]
pub(super) struct Downloads {
    /// The program beside the coordinator's own, which the build puts there.
    own: Option<PathBuf>,
    /// The folder with programs that an operator added.
    folder: PathBuf,
    /// The checksums, each with the stamp of its file. The lock is held while a file is read, so that each file is read once.
    sums: Mutex<BTreeMap<String, (Stamp, String)>>,
    places: Arc<Semaphore>,
}

/// The length and modification time of a file, which change with its content.
type Stamp = (u64, SystemTime);

impl Downloads {
    /// Makes the downloads of a coordinator with that data folder.
    pub(super) fn new(data_dir: &Path) -> Self {
        let own = std::env::current_exe()
            .ok()
            .map(|program| program.with_file_name(PROGRAM));
        let folder = data_dir.join(FOLDER);
        Self {
            own,
            folder,
            sums: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the present programs by system and processor, such as `linux-x86_64`.
    async fn programs(&self) -> io::Result<BTreeMap<String, PathBuf>> {
        let (own, folder) = (self.own.clone(), self.folder.clone());
        spawn_blocking(move || programs_in(own, &folder))
            .await
            .map_err(io::Error::other)
    }

    /// Returns the script for a coordinator at that URL, with these flags for curl.
    async fn script(&self, url: &str, curl: &str) -> io::Result<String> {
        let mut sums = String::new();
        let programs = self.programs().await?;
        for (machine, program) in &programs {
            let sum = self.sum(machine, program).await?;
            sums.push_str(&format!("    {machine}) sum={sum} ;;\n"));
        }
        let machines = match programs.into_keys().collect::<Vec<_>>() {
            none if none.is_empty() => "none at all".to_owned(),
            machines => format!("those for {}", machines.join(", ")),
        };
        let script = SCRIPT
            .replace("@REPOSITORY@", REPOSITORY)
            .replace("@MACHINES@", &machines);
        Ok(script
            .replace("@URL@", &shell_word(url))
            .replace("@CURL@", curl)
            .replace("@SUMS@", sums.trim_end()))
    }

    async fn sum(&self, machine: &str, program: &Path) -> io::Result<String> {
        let mut sums = self.sums.lock().await;
        let now = stamp(&tokio::fs::metadata(program).await?)?;
        if let Some((then, sum)) = sums.get(machine)
            && *then == now
        {
            return Ok(sum.clone());
        }
        let program = program.to_owned();
        let summed = spawn_blocking(move || summed(&program))
            .await
            .map_err(io::Error::other)??;
        let sum = summed.1.clone();
        sums.insert(machine.to_owned(), summed);
        Ok(sum)
    }
}

/// Returns the stamp and checksum of a file.
fn summed(program: &Path) -> io::Result<(Stamp, String)> {
    let mut file = fs::File::open(program)?;
    let (stamp, mut context, mut piece) = (
        stamp(&file.metadata()?)?,
        Context::new(&SHA256),
        vec![0; PIECE],
    );
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((stamp, HEXLOWER.encode(context.finish().as_ref()))),
            length => context.update(&piece[..length]),
        }
    }
}

fn stamp(metadata: &fs::Metadata) -> io::Result<Stamp> {
    Ok((metadata.len(), metadata.modified()?))
}

/// Returns the programs in a folder, with our own added unless the folder has one for this machine.
fn programs_in(own: Option<PathBuf>, folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut programs: BTreeMap<_, _> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().ok()?,
                entry.path().join(PROGRAM),
            ))
        })
        .filter(|(machine, _)| {
            machine
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        })
        .collect();
    programs.retain(|_, program| program.is_file());
    if let Some(own) = own.filter(|own| own.is_file()) {
        programs
            .entry(format!(
                "{}-{}",
                std::env::consts::OS,
                std::env::consts::ARCH
            ))
            .or_insert(own);
    }
    programs
}

/// A shell script.
#[derive(Debug)]
pub(super) struct Script;

impl Media for Script {
    const TYPE: &'static str = "text/x-shellscript; charset=utf-8";
}

/// `GET /join.sh`
pub(super) async fn script(State(server): State<AppState>) -> Result<Plain<Script>, Refused> {
    let script = server
        .downloads
        .script(&server.joins.url(), &server.joins.curl())
        .await;
    Ok(script.map(Plain::new).map_err(|error| unreadable(&error))?)
}

/// A system and processor, as a part of a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct For {
    #[schemars(example = "linux-x86_64")]
    machine: String,
}

/// The bytes of a program.
#[derive(Debug)]
pub(super) struct Bytes;

impl Media for Bytes {
    const TYPE: &'static str = "application/octet-stream";
}

/// `GET /download/{machine}/c3po`
pub(super) async fn program(
    State(server): State<AppState>,
    InPath(For { machine }): InPath<For>,
) -> Result<Plain<Bytes>, Refused> {
    let programs = server
        .downloads
        .programs()
        .await
        .map_err(|error| unreadable(&error))?;
    let Some(program) = programs.get(&machine) else {
        let error = "this coordinator has no c3po program for that kind of machine";
        let refusal = Refusal::new(ErrorCode::NotSupported, error).suggest(
            "Put it into downloads/SYSTEM-PROCESSOR/c3po in the coordinator's data folder, or build it on the new host.",
        );
        return Err(Refused::with(StatusCode::NOT_FOUND, refusal));
    };
    let Ok(place) = Arc::clone(&server.downloads.places).try_acquire_owned() else {
        let error = format!(
            "{AT_ONCE} hosts are downloading it, which is the limit; try again in a minute"
        );
        return Err(Refusal::new(ErrorCode::RateLimited, error).into());
    };
    let file = File::open(program)
        .await
        .map_err(|error| unreadable(&error))?;
    Ok(Plain::new(pieces(file, place)))
}

/// Streams the file in pieces. Its download slot is released at the end, or when the client disconnects.
fn pieces(file: File, place: OwnedSemaphorePermit) -> Body {
    let until = Instant::now() + FETCH_MAX;
    Body::from_stream(stream::try_unfold(
        (file, place),
        move |(mut file, place)| async move {
            if Instant::now() >= until {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            let mut piece = BytesMut::with_capacity(PIECE);
            let length = file.read_buf(&mut piece).await?;
            Ok((length > 0).then(|| (piece.freeze(), (file, place))))
        },
    ))
}

fn unreadable(error: &io::Error) -> Refusal {
    tracing::warn!("the program for hosts cannot be read: {error}");
    Refusal::new(ErrorCode::Internal, "the program for hosts cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_the_coordinators_and_in_its_data_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, downloads) = (folder.path().join(PROGRAM), folder.path().join(FOLDER));
        let put = |machine: &str| {
            fs::create_dir_all(downloads.join(machine)).expect("a folder");
            fs::write(downloads.join(machine).join(PROGRAM), machine).expect("a file");
        };
        let found = || programs_in(Some(own.clone()), &downloads);
        assert!(found().is_empty());
        put("macos-aarch64");
        fs::create_dir_all(downloads.join("linux-riscv64")).expect("a folder without a program");
        assert_eq!(found().into_keys().collect::<Vec<_>>(), ["macos-aarch64"]);
        fs::write(&own, "own").expect("a file");
        assert!(found().len() == 2 && found().values().any(|program| *program == own));
        put(&format!(
            "{}-{}",
            std::env::consts::OS,
            std::env::consts::ARCH
        ));
        assert!(
            found().len() == 2 && found().values().all(|program| *program != own),
            "it takes precedence"
        );
    }
}
