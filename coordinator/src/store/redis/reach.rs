//! Connection settings that all servers of the store share: login, database and TLS.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates,
};

use super::open_error::OpenError;
use crate::config::{CertificateFiles, RedisAddress, ServerAddress};

/// The shared settings.
#[derive(Clone)]
pub(super) struct Reach {
    login: RedisConnectionInfo,
    tls: bool,
    /// The configured certificates as PEM; `None` if there are none.
    certificates: Option<TlsCertificates>,
}

impl Reach {
    /// Reads the settings from the address, and the files that it names.
    pub(super) fn new(address: &RedisAddress) -> Result<Self, OpenError> {
        let mut login = RedisConnectionInfo::default().set_db(address.database);
        if let Some(user) = &address.user {
            login = login.set_username(user);
        }
        if let Some(password) = &address.password {
            login = login.set_password(password);
        }
        if address.tls {
            // This fails if another store of this process has already installed the same provider.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = read_certificates(address)?;
        let reach = Self {
            login,
            tls: address.tls,
            certificates,
        };
        if let Some(server) = address.servers.first() {
            // This validates the certificate files; host names are looked up when dialling.
            reach
                .client(server)
                .map_err(|error| unusable(address, &error))?;
        }
        Ok(reach)
    }

    /// Returns a client for this server with the configured login.
    pub(super) fn client(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&self.login, server)
    }

    /// Returns a client for the server on this Unix socket with the configured login.
    pub(super) fn client_of_socket(&self, path: &Path) -> RedisResult<Client> {
        let info = ConnectionAddr::Unix(path.to_owned()).into_connection_info()?;
        Client::open(info.set_redis_settings(self.login.clone()))
    }

    /// Returns a client for this server without a login.
    pub(super) fn client_of_nobody(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&RedisConnectionInfo::default(), server)
    }

    /// Returns a client for this sentinel with the configured login. It selects no database, because sentinels have none.
    pub(super) fn client_of_sentinel(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&self.login.clone().set_db(0), server)
    }

    fn client_as(
        &self,
        login: &RedisConnectionInfo,
        server: &ServerAddress,
    ) -> RedisResult<Client> {
        let (host, port) = (server.host.clone(), server.port);
        let address = match self.tls {
            true => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            false => ConnectionAddr::Tcp(host, port),
        };
        let info: ConnectionInfo = address
            .into_connection_info()?
            .set_redis_settings(login.clone());
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }
}

fn read_certificates(address: &RedisAddress) -> Result<Option<TlsCertificates>, OpenError> {
    let read = |file: &Path| fs::read(file).map_err(|error| unusable_file(file, &error));
    let root_cert = address.authority.as_deref().map(read).transpose()?;
    if let (Some(file), Some(pem)) = (&address.authority, &root_cert)
        && !holds_certificate(pem)
    {
        return Err(unusable_file(file, &"it has no certificate"));
    }
    let client_tls = match &address.identity {
        Some(CertificateFiles { certificate, key }) => Some(ClientTlsConfig {
            client_cert: read(certificate)?,
            client_key: read(key)?,
        }),
        None => None,
    };
    let named = root_cert.is_some() || client_tls.is_some();
    Ok(named.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

fn unusable_file(file: &Path, reason: &dyn Display) -> OpenError {
    OpenError::Certificates {
        files: file.display().to_string(),
        reason: reason.to_string(),
    }
}

/// Returns an error that names all files, because the failing one is unknown.
fn unusable(address: &RedisAddress, reason: &dyn Display) -> OpenError {
    let own = address
        .identity
        .iter()
        .flat_map(|identity| [&identity.certificate, &identity.key]);
    let files: Vec<String> = address
        .authority
        .iter()
        .chain(own)
        .map(|file| file.display().to_string())
        .collect();
    OpenError::Certificates {
        files: files.join(", "),
        reason: reason.to_string(),
    }
}

fn holds_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
}
