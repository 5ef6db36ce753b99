//! Downloads for new hosts: the join script to be piped into a shell, and the program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
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
use rustix::process::geteuid;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::AppState;
use super::endpoint::{InPath, Media, Plain, Refused};
use crate::files::{Exposure, is_own_group, refused, standing};
use crate::trusted;

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
    /// The last look's warnings: each is logged once.
    warnings: StdMutex<Vec<String>>,
    places: Arc<Semaphore>,
}

/// The length and modification time of a file, which change with its content.
type Stamp = (u64, SystemTime);

impl Downloads {
    /// Makes the downloads of a coordinator with that data folder. Logs which programs it does not offer.
    pub(super) fn new(data_dir: &Path) -> Self {
        let own = std::env::current_exe()
            .ok()
            .map(|program| program.with_file_name(PROGRAM));
        let folder = data_dir.join(FOLDER);
        let (_, warnings) = programs_in(own.clone(), &folder);
        let downloads = Self {
            own,
            folder,
            sums: Mutex::default(),
            warnings: StdMutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        };
        downloads.warn(warnings);
        downloads
    }

    /// Logs the warnings that the last look did not have.
    fn warn(&self, warnings: Vec<String>) {
        let mut known = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!("{warning}");
        }
        *known = warnings;
    }

    /// Returns the present programs by system and processor, such as `linux-x86_64`.
    async fn programs(&self) -> io::Result<BTreeMap<String, PathBuf>> {
        let (own, folder) = (self.own.clone(), self.folder.clone());
        let look = spawn_blocking(move || programs_in(own, &folder)).await;
        let (programs, warnings) = look.map_err(io::Error::other)?;
        self.warn(warnings);
        Ok(programs)
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

/// Returns the programs in a folder, with our own added unless the folder has one for this machine, and a warning about each
/// that other users could have written or replaced. Such a program is not offered: hosts run it as their users.
fn programs_in(own: Option<PathBuf>, folder: &Path) -> (BTreeMap<String, PathBuf>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut is_offered = |program: &Path, checked: io::Result<()>| {
        let Err(error) = checked else { return true };
        warnings.push(format!(
            "hosts cannot download {}: {error}. If others could have written it and you cannot check it, delete it; put it \
             there again, and run `chmod go-w` on it",
            program.display()
        ));
        false
    };
    let mut programs = named_programs(folder);
    programs.retain(|_, program| is_offered(program, check_added(program)));
    if let Some(own) = own.filter(|own| own.is_file())
        && is_offered(&own, check_own(&own))
    {
        programs
            .entry(format!(
                "{}-{}",
                std::env::consts::OS,
                std::env::consts::ARCH
            ))
            .or_insert(own);
    }
    (programs, warnings)
}

/// Returns the programs in a folder by their machines.
fn named_programs(folder: &Path) -> BTreeMap<String, PathBuf> {
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
    programs
}

/// Checks that only this user or root can have written or replaced a program that an operator added.
fn check_added(program: &Path) -> io::Result<()> {
    trusted::read_required(program, 0, geteuid().as_raw()).map(drop)
}

/// Returns the metadata of the coordinator's program, also after another file took its place.
fn own_program() -> io::Result<fs::Metadata> {
    fs::metadata("/proc/self/exe").or_else(|_| fs::metadata(std::env::current_exe()?))
}

/// Checks that others cannot write to our own program. It may also belong to the owner of the coordinator's program. Its folder
/// is not checked: another user who can replace a file there could replace the coordinator too.
fn check_own(program: &Path) -> io::Result<()> {
    let user = geteuid().as_raw();
    let installer = own_program()?.uid();
    let found = fs::metadata(program)?;
    let judge = if found.uid() == installer {
        installer
    } else {
        user
    };
    let own_group = if is_own_group(found.uid(), found.gid(), judge) {
        0o020
    } else {
        0
    };
    match standing(found.uid(), found.mode() & !own_group, judge) {
        Exposure::Private | Exposure::Readable => Ok(()),
        Exposure::Writable => Err(refused("other users can write to it")),
        Exposure::Foreign => Err(refused(&format!("it belongs to uid {}", found.uid()))),
    }
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_found_beside_the_coordinators_and_in_its_data_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, downloads) = (folder.path().join(PROGRAM), folder.path().join(FOLDER));
        let put = |machine: &str| {
            fs::create_dir_all(downloads.join(machine)).expect("a folder");
            fs::write(downloads.join(machine).join(PROGRAM), machine).expect("a file");
        };
        let found = || programs_in(Some(own.clone()), &downloads).0;
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

    #[test]
    fn programs_that_others_could_have_put_there_are_not_offered() {
        let place = tempfile::tempdir().expect("a folder");
        let (own, downloads) = (place.path().join(PROGRAM), place.path().join(FOLDER));
        let machine = downloads.join("linux-riscv64");
        let added = machine.join(PROGRAM);
        fs::create_dir_all(&machine).expect("folders");
        for program in [&own, &added] {
            fs::write(program, "a program").expect("written");
        }
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        };
        let check = |offered: &[&Path], reasons: &[&str]| {
            let (programs, warnings) = programs_in(Some(own.clone()), &downloads);
            let found: Vec<_> = programs.values().map(PathBuf::as_path).collect();
            assert!(
                found.len() == offered.len() && offered.iter().all(|path| found.contains(path)),
                "{found:?}"
            );
            assert_eq!(warnings.len(), reasons.len(), "{warnings:?}");
            for (warning, reason) in warnings.iter().zip(reasons) {
                assert!(
                    warning.contains(reason) && warning.contains("put it there again"),
                    "{warning}"
                );
            }
        };
        let modes = |of_own, of_added, of_folder| {
            set(&own, of_own);
            set(&added, of_added);
            set(&downloads, of_folder);
        };
        modes(0o755, 0o755, 0o755);
        check(&[&own, &added], &[]);
        modes(0o755, 0o777, 0o755);
        check(&[&own], &["linux-riscv64/c3po is writable by other users"]);
        modes(0o755, 0o755, 0o777);
        check(&[&own], &["downloads is writable by other users"]);
        modes(0o757, 0o755, 0o755);
        check(&[&added], &["other users can write to it"]);
        modes(0o755, 0o755, 0o755);
        // Only root can give a file away.
        if std::os::unix::fs::chown(&own, Some(12_345), None).is_ok() {
            std::os::unix::fs::chown(&machine, Some(12_345), None).expect("root");
            let added = "linux-riscv64 belongs to uid 12345";
            check(&[], &[added, "it belongs to uid 12345"]);
        }
    }
}
