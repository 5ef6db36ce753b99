//! TLS certificates for tests with real servers: a test's own certificate authority, and a certificate for 127.0.0.1.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Certificate files in their own folder.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Creates an authority and a certificate signed by it.
    pub fn make() -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for certificates")?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the same name as its issuer, the certificate would be taken for a self-signed one.
        authority
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
        let made = Self { folder };
        fs::write(made.authority(), authority.pem())?;
        fs::write(made.file("server.pem"), certificate.pem())?;
        fs::write(made.file("server.key"), key.serialize_pem())?;
        Ok(made)
    }

    /// Returns the authority's certificate file.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Returns the files of the server's certificate and its key.
    pub fn identity(&self) -> (PathBuf, PathBuf) {
        (self.file("server.pem"), self.file("server.key"))
    }

    /// Returns the contents of the certificate file and of the key file.
    pub fn identity_text(&self) -> Result<(String, String)> {
        Ok((
            fs::read_to_string(self.file("server.pem"))?,
            fs::read_to_string(self.file("server.key"))?,
        ))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the Redis settings for these files, without the settings for the TLS port.
    pub fn settings(&self) -> Vec<String> {
        let named = [
            ("cert-file", "server.pem"),
            ("key-file", "server.key"),
            ("ca-cert-file", "ca.pem"),
        ];
        let named = named.map(|(setting, file)| {
            [
                format!("--tls-{setting}"),
                self.file(file).display().to_string(),
            ]
        });
        let mut settings = named.concat();
        settings.extend(["--tls-auth-clients".to_owned(), "no".to_owned()]);
        settings
    }
}
