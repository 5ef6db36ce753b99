//! How any server of the store is reached: login, database and trust are the same for all of them.

use std::fs;

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult, TlsCertificates,
};

use super::OpenError;
use crate::config::{RedisAddress, Server};

/// What is the same for every server.
#[derive(Clone)]
pub(super) struct Reach {
    login: RedisConnectionInfo,
    tls: bool,
    /// The certificate authority, as PEM; `None` for those that the system trusts.
    authority: Option<Vec<u8>>,
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
        let unusable = |reason: String| OpenError::Authority {
            file: address.authority.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
            reason,
        };
        let read = |file| fs::read(file).map_err(|error| unusable(error.to_string()));
        let authority = address.authority.as_ref().map(read).transpose()?;
        if authority.as_ref().is_some_and(|pem| !holds_certificate(pem)) {
            return Err(unusable("there is no certificate in it".into()));
        }
        let reach = Self { login, tls: address.tls, authority };
        if let Some(server) = address.servers.first() {
            reach.client(server).map_err(|error| unusable(error.to_string()))?;
        }
        Ok(reach)
    }

    /// Returns what dials that server, with our login.
    pub(super) fn client(&self, server: &Server) -> RedisResult<Client> {
        self.client_as(&self.login, server)
    }

    /// Returns what dials that server without a login.
    pub(super) fn client_of_nobody(&self, server: &Server) -> RedisResult<Client> {
        self.client_as(&RedisConnectionInfo::default(), server)
    }

    /// Returns what dials that server with our login and without choosing a database, which sentinels do not have.
    pub(super) fn client_of_sentinel(&self, server: &Server) -> RedisResult<Client> {
        self.client_as(&self.login.clone().set_db(0), server)
    }

    fn client_as(&self, login: &RedisConnectionInfo, server: &Server) -> RedisResult<Client> {
        let (host, port) = (server.host.clone(), server.port);
        let address = match self.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let info: ConnectionInfo = address.into_connection_info()?.set_redis_settings(login.clone());
        match &self.authority {
            Some(pem) => {
                let root_cert = Some(pem.clone());
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
            None => Client::open(info),
        }
    }
}

fn holds_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
}
