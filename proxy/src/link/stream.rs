//! The byte stream to a coordinator, plain or over TLS, and the errors of connecting it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use c3po_shared::join::Fingerprint;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::http::Uri;

use super::failed::{DialError, Stage};
use super::resolve::addresses;
use super::trust::{Another, Trust};

/// A connection to a coordinator.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to the coordinator of a URL; with TLS for `https` and `wss`.
pub(super) async fn connect(uri: &Uri, trust: &Trust, stage: &Stage) -> Result<Stream, DialError> {
    let stream = connect_plainly(uri, stage).await?;
    if !is_secure(uri) {
        return Ok(Stream::Plain(stream));
    }
    let no_tls = |why: String| DialError::failed(why, Advice::WorkOn);
    let connector = trust.connector().await.map_err(no_tls)?;
    let host = host(uri);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| no_tls(format!("{host}: {error}")))?;
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => Err(not_trusted(&format!("{host}:{}", port(uri)), trust, &error)),
    }
}

/// Connects to the host and port of a URL, whatever its scheme.
pub(super) async fn connect_plainly(uri: &Uri, stage: &Stage) -> Result<TcpStream, DialError> {
    let host = host(uri);
    let unknown =
        |error: io::Error| DialError::failed(format!("{host}: {error}"), Advice::NoSuchHost);
    let addresses = addresses(host, port(uri)).await.map_err(unknown)?;
    stage.is_resolved();
    let stream = TcpStream::connect(addresses.as_slice())
        .await
        .map_err(|error| DialError::of_connecting(&error))?;
    stage.is_connected();
    stream
        .set_nodelay(true)
        .map_err(|error| DialError::of_connecting(&error))?;
    Ok(stream)
}

/// Returns whether a URL requires TLS.
pub(super) fn is_secure(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("https" | "wss"))
}

fn host(uri: &Uri) -> &str {
    uri.host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']')
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16()
        .unwrap_or(if is_secure(uri) { 443 } else { 80 })
}

/// Returns the error for a failed handshake.
fn not_trusted(place: &str, trust: &Trust, error: &io::Error) -> DialError {
    let unauthorized = |error: String| Refusal::new(ErrorCode::Unauthorized, error);
    let error_of_tls = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    // `Other` has further causes, such as an authority's certificate that is presented as a server's.
    let another = match error_of_tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => {
            other.0.downcast_ref::<Another>()
        }
        _ => None,
    };
    if let Some(Another(shown)) = another {
        let trusted: Vec<_> = trust
            .fingerprints()
            .iter()
            .map(ToString::to_string)
            .collect();
        let trusted = match trusted.as_slice() {
            [one] => format!("the one this host trusts ({one})"),
            several => format!("those this host trusts ({})", several.join(", ")),
        };
        let error = format!(
            "the coordinator at {place} presents another certificate ({shown}) than {trusted}"
        );
        return DialError::Refused(unauthorized(error).advise(Advice::AnotherCertificate));
    }
    match error_of_tls {
        // Temporary causes: a certificate is renewed, a clock is set.
        Some(rustls::Error::InvalidCertificate(
            error @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => DialError::failed(format!("its certificate: {error}"), Advice::WorkOn),
        Some(rustls::Error::InvalidCertificate(error)) => {
            let error = format!(
                "this system does not trust the certificate of the coordinator at {place}: {error}"
            );
            DialError::Refused(unauthorized(error).advise(Advice::UnknownCertificate))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            DialError::failed("it does not use TLS", Advice::WriteHttp)
        }
        _ => DialError::failed(format!("TLS: {error}"), Advice::WorkOn),
    }
}

impl Stream {
    /// Returns the certificate of the coordinator by which that trust has accepted it, if it is a pinned one.
    pub(super) fn pinned(&self, trust: &Trust) -> Option<Fingerprint> {
        let Self::Tls(stream) = self else {
            return None;
        };
        trust.pinned(stream.get_ref().1.peer_certificates()?.first()?)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
