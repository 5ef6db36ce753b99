//! The coordinator's self-signed certificate. It is made once and kept, because hosts pin its fingerprint.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context as _;
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustix::process::geteuid;
use time::{Duration, OffsetDateTime};

use crate::config::CertificateFiles;
use crate::files;

/// The folder of the certificate inside the data folder.
const FOLDER: &str = "tls";
/// The validity of the certificate. It is long, because a new fingerprint must be configured on every host.
const LIFE: Duration = Duration::days(3_650);
/// The tolerance for hosts whose clocks are behind.
const EARLIER: Duration = Duration::days(1);

/// The advice about a key that others could read or change.
const EXPOSED: &str = "If you do not trust them, make a new certificate: stop the coordinator, delete the folder of this file, \
    start it, and join each host again";

/// Returns the files of the coordinator's own certificate, creating them if they are missing.
pub(super) fn own(data_dir: &Path, listen: IpAddr) -> anyhow::Result<CertificateFiles> {
    let folder = data_dir.join(FOLDER);
    let files = CertificateFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
    };
    let is_there = || files.certificate.exists() && files.key.exists();
    if is_there() {
        close_to_others(&files.key).with_context(|| files.key.display().to_string())?;
    } else {
        make(data_dir, &folder, listen)
            .or_else(|error| if is_there() { Ok(()) } else { Err(error) })?;
        tracing::info!("created a certificate in {}", folder.display());
    }
    Ok(files)
}

/// Restores the private mode of a key file that was made readable by others, with a warning if they could read it. A key of
/// root stays as it is.
fn close_to_others(key: &Path) -> io::Result<()> {
    let (found, user) = (fs::symlink_metadata(key)?, geteuid().as_raw());
    if !found.is_file() || found.mode() & 0o077 == 0 {
        return Ok(());
    }
    if found.uid() != 0 || user == 0 {
        fs::set_permissions(key, Permissions::from_mode(0o600))?;
    }
    let now = fs::symlink_metadata(key)?;
    let outcome = files::outcome(key, &now);
    let advice = format!("{outcome}. {EXPOSED}");
    if let Some(warning) = files::warning(key, &found, files::READ_OR_WRITE, &advice) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Creates the folder atomically, so that a key never exists without its certificate.
fn make(data_dir: &Path, folder: &Path, listen: IpAddr) -> anyhow::Result<()> {
    let (certificate, key) = signed_by_itself(listen)?;
    let unfinished = data_dir.join(format!(".{FOLDER}.{}", std::process::id()));
    let private = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder);
    private(data_dir).with_context(|| data_dir.display().to_string())?;
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
    }
    private(&unfinished).with_context(|| unfinished.display().to_string())?;
    for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
        let path = unfinished.join(name);
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().with_context(|| path.display().to_string())?;
    }
    // The folders are synced as well before the certificate is used, because hosts pin it.
    let synced = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
    let moved = synced(&unfinished)
        .and_then(|()| fs::rename(&unfinished, folder))
        .and_then(|()| synced(data_dir));
    if moved.is_err() {
        // Another process was first, or something else has that path: remove the unfinished folder.
        let _ = fs::remove_dir_all(&unfinished);
    }
    moved.with_context(|| folder.display().to_string())
}

/// Returns a certificate and its key, both as PEM.
fn signed_by_itself(listen: IpAddr) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut parameters = CertificateParams::new(names(&host_name(), listen))?;
    parameters
        .distinguished_name
        .push(DnType::CommonName, "c3po coordinator");
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - EARLIER;
    parameters.not_after = now + LIFE;
    Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the names and addresses of the certificate for a coordinator that listens there.
fn names(host: &str, listen: IpAddr) -> Vec<String> {
    let address = Some(listen)
        .filter(|address| !address.is_unspecified())
        .map(|address| address.to_string());
    let host =
        Some(host).filter(|host| !host.is_empty() && host.is_ascii() && *host != "localhost");
    host.map(str::to_owned)
        .into_iter()
        .chain(["localhost".to_owned()])
        .chain(address)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_host_and_address() {
        let check = |host: &str, listen: &str, expected: &[&str]| {
            assert_eq!(names(host, listen.parse().expect("an address")), expected);
        };
        check("nas", "192.168.1.2", &["nas", "localhost", "192.168.1.2"]);
        check("nas", "0.0.0.0", &["nas", "localhost"]);
        check("", "::1", &["localhost", "::1"]);
        check("localhost", "::", &["localhost"]);
    }

    #[test]
    fn the_certificate_is_made_once_and_its_key_is_readable_by_its_user_alone() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = data.path().join("c3po");
        let own = || own(&folder, "127.0.0.1".parse().expect("an address")).expect("a certificate");
        let read = |files: &CertificateFiles| {
            (fs::read(&files.certificate).ok(), fs::read(&files.key).ok())
        };
        let files = own();
        let first = read(&files);
        assert!(first.0.is_some() && first.1.is_some());
        fs::set_permissions(&files.key, Permissions::from_mode(0o644)).expect("opened to others");
        assert_eq!(read(&own()), first);
        let mode = |path: &Path| {
            fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(
            (mode(&files.key), mode(&folder.join(FOLDER))),
            (0o600, 0o700)
        );
        assert_eq!(
            fs::read_dir(&folder).expect("a folder").count(),
            1,
            "nothing unfinished stays"
        );
    }
}
