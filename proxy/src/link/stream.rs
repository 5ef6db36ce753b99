//! The bytes to and from a coordinator, plain or over TLS, and why there are none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use c3po_shared::refusal::{ErrorCode, Refusal};
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::http::Uri;

use super::resolve::addresses;
use super::trust::{Another, Trust};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The coordinator said so.
    #[error("{0}")]
    Refused(Refusal),
    /// It could not be reached, or did not speak our protocol.
    #[error("{0}")]
    Failed(String),
}

/// A connection to a coordinator.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to the coordinator of a URL: with TLS for `https` and `wss`.
pub(super) async fn connect(uri: &Uri, trust: &Trust) -> Result<Stream, DialError> {
    let failed = |error: io::Error| DialError::Failed(error.to_string());
    let secure = matches!(uri.scheme_str(), Some("https" | "wss"));
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let addresses = addresses(host, port).await.map_err(failed)?;
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    if !secure {
        return Ok(Stream::Plain(stream));
    }
    let connector = trust.connector().await.map_err(DialError::Failed)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| DialError::Failed(format!("{host}: {error}")))?;
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => Err(not_trusted(&format!("{host}:{port}"), trust, &error)),
    }
}

/// Returns what a handshake that failed means for whoever wanted the link.
fn not_trusted(place: &str, trust: &Trust, error: &io::Error) -> DialError {
    let unauthorized = |error: String| Refusal::new(ErrorCode::Unauthorized, error);
    let error_of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    // Others end as `Other` as well, such as a certificate of an authority that is shown as a server's.
    let another = match error_of_tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => other.0.downcast_ref::<Another>(),
        _ => None,
    };
    if let Some(Another(shown)) = another {
        let trusted: Vec<_> = trust.fingerprints().iter().map(ToString::to_string).collect();
        let trusted = match trusted.as_slice() {
            [one] => format!("the one this host trusts ({one})"),
            several => format!("those this host trusts ({})", several.join(", ")),
        };
        let error = format!("the coordinator at {place} shows another certificate ({shown}) than {trusted}");
        return DialError::Refused(unauthorized(error).suggest(
            "If the coordinator was set up anew, ask for a new join line (`c3po-coordinator invite`) and run \
             `c3po join`; if not, somebody may be in between.",
        ));
    }
    match error_of_tls {
        // These pass: a certificate is renewed, a clock is set.
        Some(rustls::Error::InvalidCertificate(
            error @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => DialError::Failed(format!("its certificate: {error}")),
        Some(rustls::Error::InvalidCertificate(error)) => {
            let error = format!("this system does not trust the certificate of the coordinator at {place}: {error}");
            DialError::Refused(unauthorized(error).suggest(
                "If it is the coordinator's own, ask for a join line (`c3po-coordinator invite`) and run `c3po join`, \
                 or set C3PO_FINGERPRINT to what the coordinator's log shows.",
            ))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            DialError::Failed("it does not speak TLS: write http:// for https://, if that is meant".to_owned())
        }
        _ => DialError::Failed(format!("TLS: {error}")),
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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
