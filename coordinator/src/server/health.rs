//! Asking a running coordinator whether it is well, for container health checks: one request, over TLS where that is spoken.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

/// How long the answer may take, each for connecting, writing and reading.
const DEADLINE: Duration = Duration::from_secs(3);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 4_096;

/// Asks the coordinator that listens on `listen`. Returns what it says of itself where it is well.
pub(crate) fn ask(listen: SocketAddr) -> anyhow::Result<String> {
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let mut answer = exchange(connect(address)?, address)?;
    // A port with TLS says 400 to whoever speaks plainly. So nobody has to tell us what the coordinator was told.
    if status(&answer) == Some("400") {
        let name = ServerName::IpAddress(address.ip().into());
        let tls = ClientConnection::new(Arc::new(unsuspicious()?), name).context("speaking TLS")?;
        answer = exchange(StreamOwned::new(tls, connect(address)?), address)?;
    }
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    if status(&answer) != Some("200") {
        bail!("the coordinator at {address} is not well: {body}");
    }
    Ok(body)
}

fn status(answer: &str) -> Option<&str> {
    answer.split_whitespace().nth(1)
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, DEADLINE)
        .with_context(|| format!("no coordinator answers at {address}"))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

fn exchange(mut stream: impl Read + Write, address: SocketAddr) -> anyhow::Result<String> {
    write!(stream, "GET /api/health HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_MAX).read_to_end(&mut answer) {
        // An end without TLS's own goodbye is an end.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error).context("reading the answer"),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Whoever listens on all addresses is reached on loopback.
fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// Returns a TLS that takes any certificate: this question holds no secret, and asks an address of this machine.
fn unsuspicious() -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    Ok(config)
}

#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
