//! Where a coordinator is attacked: connections from many addresses of this machine, in the clear or over TLS.

use std::fmt::{Debug, Formatter};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// A connection of an attacker.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The port of a coordinator.
#[derive(Clone)]
pub struct Entry {
    /// Its address.
    pub address: SocketAddr,
    tls: Option<TlsConnector>,
}

impl Entry {
    /// Returns one that is attacked in the clear.
    pub fn clear(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// Returns one that is attacked over TLS. Its certificate is not checked.
    pub fn tls(address: SocketAddr) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.dangerous();
        let mut config = builder
            .with_custom_certificate_verifier(Arc::new(Unchecked))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self {
            address,
            tls: Some(Arc::new(config).into()),
        })
    }

    /// Connects without TLS. Each number has an address of its own, where the system has these addresses.
    ///
    /// Errors: it accepts no connection.
    pub async fn dial(&self, number: u32) -> io::Result<TcpStream> {
        let socket = if self.address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        let [.., high, low] = number.to_be_bytes();
        // Otherwise the system chooses.
        let _ = socket.bind((Ipv4Addr::new(127, 1, high, low), 0).into());
        socket.connect(self.address).await
    }

    /// Connects, over TLS where that is spoken.
    ///
    /// Errors: there is no connection.
    pub async fn connect(&self, number: u32) -> io::Result<Box<dyn Stream>> {
        let stream = self.dial(number).await?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::IpAddress(self.address.ip().into());
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

impl Debug for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct Unchecked;

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
