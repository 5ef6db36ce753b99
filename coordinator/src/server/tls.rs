//! TLS of the port: its certificate, and the fingerprint that hosts pin. Changed files are reloaded at runtime.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use c3po_shared::join::Fingerprint;
use data_encoding::BASE64;
use ring::digest::{SHA256, digest};
use rustix::process::geteuid;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::kx_group::{SECP256R1, X25519};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use super::certificate;
use super::handshake::{Acceptor, Turns};
use crate::config::{CertificateFiles, Tls};
use crate::{files, trusted};

/// The first byte of a TLS connection: the record type of a handshake.
pub(super) const FIRST_BYTE: u8 = 0x16;
/// The deadline of the handshake.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The limit of handshake bytes that are read. The library would join records of up to 64 KiB.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 16 << 10;
/// The largest file of a certificate or key, in bytes.
const PEM_MAX: u64 = 1 << 20;

/// The advice about a configured key that others could read.
const EXPOSED_ELSEWHERE: &str =
    "make a new key and a new certificate, and close the file with `chmod`";

/// The transport of the port: plain HTTP or TLS. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    shown: Option<Arc<ServedCertificate>>,
}

/// The certificate in use, and its files.
#[derive(Debug)]
struct ServedCertificate {
    files: CertificateFiles,
    read: Reader,
    loaded: RwLock<Loaded>,
    turns: Turns,
}

#[derive(Debug, Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    /// The SHA-256 of the public key, in base64.
    public_key: String,
    /// Whether the file contains the certificate alone, without a chain.
    is_alone: bool,
}

impl Transport {
    /// Returns a transport without TLS.
    pub(super) fn plain() -> Self {
        Self { shown: None }
    }

    /// Reads the configured certificate, or makes one if none is configured.
    ///
    /// Errors: there is no usable certificate.
    pub(crate) fn open(tls: &Tls, listen: IpAddr, data_dir: &Path) -> anyhow::Result<Self> {
        let (files, read) = match tls {
            Tls::Off => return Ok(Self::plain()),
            Tls::Auto => {
                let files = certificate::own(data_dir, listen);
                let files = files.context("creating the coordinator's certificate")?;
                (files, read_own as Reader)
            }
            Tls::Files(files) => (files.clone(), read_configured as Reader),
        };
        let pems = read(&files).map_err(anyhow::Error::msg)?;
        if let Tls::Files(files) = tls {
            warn_of_others(&files.key);
        }
        let loaded = load(&pems).with_context(|| {
            format!(
                "of {} and {}",
                files.certificate.display(),
                files.key.display()
            )
        })?;
        let loaded = RwLock::new(loaded);
        Ok(Self {
            shown: Some(Arc::new(ServedCertificate {
                files,
                read,
                loaded,
                turns: Turns::default(),
            })),
        })
    }

    /// Returns the URL scheme of this coordinator: `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.shown.is_some() {
            "https"
        } else {
            "http"
        }
    }

    /// Returns the fingerprint of the certificate; `None` without TLS.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.loaded().map(|loaded| loaded.fingerprint)
    }

    /// Returns the fingerprint that joining hosts pin. A certificate with a chain comes from an authority and is renewed
    /// every few weeks, so hosts verify it with their system's trust store instead.
    pub(super) fn pinned(&self) -> Option<Fingerprint> {
        self.loaded()
            .filter(|loaded| loaded.is_alone)
            .map(|loaded| loaded.fingerprint)
    }

    /// Returns the flags with which curl verifies the pinned certificate by its public key alone.
    pub(super) fn curl_flags(&self) -> String {
        let pinned = self.loaded().filter(|loaded| loaded.is_alone);
        pinned
            .map(|loaded| format!("-k --pinnedpubkey 'sha256//{}'", loaded.public_key))
            .unwrap_or_default()
    }

    /// Returns the acceptor for TLS handshakes; `None` without TLS.
    pub(super) fn acceptor(&self) -> Option<Acceptor> {
        let shown = self.shown.as_ref()?;
        Some(Acceptor::new(self.loaded()?.config, &shown.turns))
    }

    fn loaded(&self) -> Option<Loaded> {
        let shown = self.shown.as_ref()?;
        Some(
            shown
                .loaded
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }

    /// Reloads files that change, until `stop` is cancelled. New connections get the new certificate; existing ones continue.
    pub(super) async fn follow_files(self, stop: CancellationToken) {
        let Some(shown) = self.shown else { return };
        let take = |found: &FoundCertificate| {
            let loaded = found
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|pems| load(pems).map_err(|why| format!("{why:#}")))?;
            let mut current = shown.loaded.write().unwrap_or_else(PoisonError::into_inner);
            if loaded.fingerprint != current.fingerprint {
                tracing::info!(
                    "the certificate has changed; its new fingerprint is {}",
                    loaded.fingerprint
                );
            }
            *current = loaded;
            Ok(())
        };
        let report = |why: &str| tracing::warn!("the previous certificate stays in use: {why}");
        let (files, read) = (shown.files.clone(), shown.read);
        files::follow(move || read(&files), take, report, stop).await;
    }
}

/// Logs a warning if everyone could read a configured key, and can enter its folder. A group may have to read it, and its mode
/// is not changed: it is not a file of the coordinator. Also logs which other user it belongs to.
fn warn_of_others(key: &Path) {
    const GROUP_READS: u32 = 0o040;
    let Ok(found) = fs::metadata(key) else {
        return;
    };
    let (owner, permissions) = (found.uid(), files::READ_OR_WRITE & !GROUP_READS);
    if owner != 0 && owner != geteuid().as_raw() {
        let key = key.display();
        tracing::info!("uid {owner} owns the key {key}, and can replace it and its certificate");
    }
    if let Some(warning) = files::warning(key, &found, permissions, EXPOSED_ELSEWHERE) {
        tracing::warn!("{warning}");
    }
}

/// A certificate with its chain, and its key, as PEM.
#[derive(PartialEq, Eq)]
struct Pems {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The content of both files, or the reason why they cannot be read.
type FoundCertificate = Result<Pems, String>;

/// How both files are read.
type Reader = fn(&CertificateFiles) -> FoundCertificate;

/// Reads the coordinator's own files, whose data folder was checked at the start.
fn read_own(files: &CertificateFiles) -> FoundCertificate {
    read_with(files, |path| files::read(path, PEM_MAX))
}

/// Reads configured files if only this user, root or the owner of the key can have written or replaced them. That owner has the
/// key, and so could serve as this coordinator anyway.
fn read_configured(files: &CertificateFiles) -> FoundCertificate {
    read_with(files, |path| {
        let holder = fs::metadata(&files.key)?.uid();
        trusted::read_required(path, PEM_MAX, holder)
    })
}

fn read_with(
    files: &CertificateFiles,
    read: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> FoundCertificate {
    let read = |what, path: &Path| {
        read(path).map_err(|error| format!("reading the {what} {}: {error}", path.display()))
    };
    Ok(Pems {
        certificate: read("certificate", &files.certificate)?,
        key: read("key", &files.key)?,
    })
}

/// Builds the TLS configuration from a certificate with its chain, and its key.
fn load(pems: &Pems) -> anyhow::Result<Loaded> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pems.certificate).collect();
    let chain = chain.context("reading the certificate")?;
    let leaf = chain.first().context("the file has no certificate")?;
    let (fingerprint, is_alone) = (fingerprint(leaf)?, chain.len() == 1);
    let key = PrivateKeyDer::from_pem_slice(&pems.key).context("reading the key")?;
    let signing = any_supported_type(&key).context("using the key")?;
    let public_key = signing
        .public_key()
        .context("the private key has no public key")?;
    let public_key = BASE64.encode(digest(&SHA256, &public_key).as_ref());
    // P-384 costs five times as much as these. Clients that have nothing else cannot connect.
    let provider = CryptoProvider {
        kx_groups: vec![X25519, SECP256R1],
        ..default_provider()
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("using the certificate and its key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded {
        config: Arc::new(config),
        fingerprint,
        public_key,
        is_alone,
    })
}

fn fingerprint(certificate: &CertificateDer<'_>) -> anyhow::Result<Fingerprint> {
    Ok(Fingerprint::of(
        digest(&SHA256, certificate)
            .as_ref()
            .try_into()
            .context("SHA-256 has 32 bytes")?,
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test]
    async fn files_that_change_before_they_are_followed_are_taken_up() {
        let (folder, other) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        let open = |folder: &Path| {
            Transport::open(&Tls::Auto, "127.0.0.1".parse().expect("an address"), folder)
                .expect("a certificate")
        };
        let (transport, newer) = (open(folder.path()), open(other.path()).fingerprint());
        for file in ["tls/cert.pem", "tls/key.pem"] {
            fs::copy(other.path().join(file), folder.path().join(file)).expect("copied");
        }
        assert_ne!(transport.fingerprint(), newer);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(transport.clone().follow_files(stop.clone()));
        let taken_up = async {
            while transport.fingerprint() != newer {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), taken_up)
            .await
            .expect("the newer one is shown");
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn configured_files_that_others_could_replace_are_refused_and_those_in_use_stay() {
        let made = |folder: &Path| {
            Transport::open(&Tls::Auto, "127.0.0.1".parse().expect("an address"), folder)
                .expect("a certificate")
                .fingerprint()
        };
        let (first, second) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        let (own, newer) = (made(first.path()), made(second.path()));
        let folder = first.path().join("tls");
        let set = |mode| {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("ours");
        };
        let tls = Tls::Files(CertificateFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        });
        let open = || Transport::open(&tls, "127.0.0.1".parse().expect("an address"), &folder);
        set(0o777);
        let refused = open().expect_err("refused").to_string();
        let word = folder.display();
        assert!(
            refused.contains(&format!("{word} is writable by other users (mode 777)"))
                && refused.contains(&format!("`chmod go-w {word}`")),
            "{refused}"
        );
        set(0o755);
        let transport = open().expect("trusted");
        set(0o777);
        for file in ["cert.pem", "key.pem"] {
            fs::copy(second.path().join("tls").join(file), folder.join(file)).expect("copied");
        }
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(transport.clone().follow_files(stop.clone()));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(transport.fingerprint(), own);
        set(0o755);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(transport.fingerprint(), newer, "it is trusted now");
        stop.cancel();
    }
}
