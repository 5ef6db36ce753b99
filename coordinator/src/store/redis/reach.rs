//! How any server of the store is reached: login, database and trust are the same for all of them.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    TlsCertificates,
};

use super::open_error::OpenError;
use crate::config::{CertificateFiles, RedisAddress, ServerAddress};

/// What is the same for every server.
#[derive(Clone)]
pub(super) struct Reach {
    login: RedisConnectionInfo,
    tls: bool,
    /// What the address names of them, as PEM; `None` where it names none.
    certificates: Option<TlsCertificates>,
}

impl Reach {
    /// Reads what the address says of all its servers, and the file of its certificate authority.
    pub(super) fn new(address: &RedisAddress) -> Result<Self, OpenError> {
        let mut login = RedisConnectionInfo::default().set_db(address.database);
        if let Some(user) = &address.user {
            login = login.set_username(user);
        }
        if let Some(password) = &address.password {
            login = login.set_password(password);
        }
        if address.tls {
            // Who has chosen before us is another store of this process, and chose the same.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = read_certificates(address)?;
        let reach = Self { login, tls: address.tls, certificates };
        if let Some(server) = address.servers.first() {
            // What the files hold is read here; a name is looked up when it is dialled.
            reach.client(server).map_err(|error| unusable(address, &error))?;
        }
        Ok(reach)
    }

    /// Returns what dials that server, with our login.
    pub(super) fn client(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&self.login, server)
    }

    /// Returns what dials that server without a login.
    pub(super) fn client_of_nobody(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&RedisConnectionInfo::default(), server)
    }

    /// Returns what dials that server with our login and without choosing a database, which sentinels do not have.
    pub(super) fn client_of_sentinel(&self, server: &ServerAddress) -> RedisResult<Client> {
        self.client_as(&self.login.clone().set_db(0), server)
    }

    fn client_as(&self, login: &RedisConnectionInfo, server: &ServerAddress) -> RedisResult<Client> {
        let (host, port) = (server.host.clone(), server.port);
        let address = match self.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let info: ConnectionInfo = address.into_connection_info()?.set_redis_settings(login.clone());
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
        return Err(unusable_file(file, &"there is no certificate in it"));
    }
    let client_tls = match &address.identity {
        Some(CertificateFiles { certificate, key }) => {
            Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        None => None,
    };
    let named = root_cert.is_some() || client_tls.is_some();
    Ok(named.then_some(TlsCertificates { client_tls, root_cert }))
}

fn unusable_file(file: &Path, reason: &dyn Display) -> OpenError {
    OpenError::Certificates { files: file.display().to_string(), reason: reason.to_string() }
}

/// Says which files cannot be used, where it is not known which one of them.
fn unusable(address: &RedisAddress, reason: &dyn Display) -> OpenError {
    let own = address.identity.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
    let files: Vec<String> = address.authority.iter().chain(own).map(|file| file.display().to_string()).collect();
    OpenError::Certificates { files: files.join(", "), reason: reason.to_string() }
}

fn holds_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
}
