//! The trusted certificates of coordinators over TLS: pinned ones, or those of the system's authorities.

use std::sync::Arc;

use c3po_shared::join::Fingerprint;
use ring::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, OtherError,
    RootCertStore, SignatureScheme,
};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

/// The trusted certificates. Cheap to clone and to make: nothing is read before a URL needs TLS.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    /// The only certificates that are accepted; if empty, those that the system trusts.
    fingerprints: Vec<Fingerprint>,
    config: Arc<OnceCell<Arc<ClientConfig>>>,
}

impl Trust {
    /// Trusts exactly the certificates with these fingerprints; without any, the system's authorities, with the name checked.
    pub(crate) fn new(fingerprints: Vec<Fingerprint>) -> Self {
        Self {
            fingerprints,
            config: Arc::default(),
        }
    }

    pub(super) fn fingerprints(&self) -> &[Fingerprint] {
        &self.fingerprints
    }

    /// Returns the fingerprint of that certificate if it is one of these.
    pub(super) fn pinned(&self, certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
        let fingerprint = fingerprint_of(certificate).ok()?;
        self.fingerprints
            .contains(&fingerprint)
            .then_some(fingerprint)
    }

    /// Returns the connector for the handshake.
    ///
    /// Errors: the system has no trusted authorities.
    pub(super) async fn connector(&self) -> Result<TlsConnector, String> {
        let config = self.config.get_or_try_init(async || {
            // Runs beside the runtime, because the system's authorities are a large file or a folder of many.
            let built = tokio::task::spawn_blocking({
                let fingerprints = self.fingerprints.clone();
                move || client_config(fingerprints)
            });
            built.await.unwrap_or_else(|error| Err(error.to_string()))
        });
        config.await.map(|config| Arc::clone(config).into())
    }
}

fn client_config(fingerprints: Vec<Fingerprint>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = if fingerprints.is_empty() {
        builder
            .with_root_certificates(system_roots()?)
            .with_no_client_auth()
    } else {
        let pinned = Arc::new(Pinned {
            fingerprints,
            provider,
        });
        builder
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A link lasts for hours; a session cache would cost memory in every idle proxy for little speed.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    for error in &found.errors {
        tracing::debug!("reading the system's certificate authorities: {error}");
    }
    if added == 0 {
        return Err(
            "this system has no certificate authorities; SSL_CERT_FILE names a file of them"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// Accepts pinned certificates, whatever their names and dates: the fingerprints came over a trusted channel.
#[derive(Debug)]
struct Pinned {
    fingerprints: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

/// The certificate is not one of the pinned ones.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is {0}")]
pub(super) struct Another(pub(super) Fingerprint);

/// Returns the fingerprint of a certificate.
fn fingerprint_of(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
    let bytes = digest(&SHA256, certificate).as_ref().try_into();
    bytes
        .map(Fingerprint::of)
        .map_err(|_| rustls::Error::InconsistentKeys(InconsistentKeys::Unknown))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = fingerprint_of(certificate)?;
        if self.fingerprints.contains(&shown) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Another(shown)))).into())
    }

    // The peer must also prove that it has the certificate's key: anyone can present a certificate.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::ServerConfig;
    use rustls::crypto::ring::sign::any_supported_type;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use tokio::io::duplex;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server that presents a certificate, whether or not it holds its key.
    #[derive(Debug)]
    struct Shows(Arc<CertifiedKey>);

    impl ResolvesServerCert for Shows {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    /// Returns the outcome of a handshake with a server that presents the certificate and signs with the key.
    async fn handshake(
        certificate: &CertificateDer<'static>,
        key: &KeyPair,
        trust: &Trust,
    ) -> std::io::Result<()> {
        let key =
            any_supported_type(&PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap();
        let shows = Shows(Arc::new(CertifiedKey::new(vec![certificate.clone()], key)));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(shows));
        let (here, there) = duplex(64 << 10);
        let connector = trust.connector().await.unwrap();
        let connecting = connector.connect(ServerName::try_from("anything").unwrap(), here);
        let (connected, _) = tokio::join!(
            connecting,
            TlsAcceptor::from(Arc::new(config)).accept(there)
        );
        connected.map(drop)
    }

    #[tokio::test]
    async fn a_server_must_prove_that_it_has_the_key_of_its_certificate() {
        let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut parameters = CertificateParams::new(["elsewhere".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let made = parameters.self_signed(&own).unwrap();
        let certificate = made.der().clone();
        let trusted = fingerprint_of(&certificate).unwrap();
        let trust = Trust::new(vec![trusted]);
        handshake(&certificate, &own, &trust)
            .await
            .expect("names and dates are no matter");
        let among = Trust::new(vec![Fingerprint::of([7; 32]), trusted]);
        handshake(&certificate, &own, &among)
            .await
            .expect("it is one of several");
        let refused = handshake(&certificate, &other, &trust)
            .await
            .expect_err("it has not the key");
        assert!(refused.to_string().contains("BadSignature"), "{refused}");
        let another = CertificateParams::new(["elsewhere".to_owned()])
            .unwrap()
            .self_signed(&other)
            .unwrap();
        let refused = handshake(another.der(), &other, &trust)
            .await
            .expect_err("it is another one");
        assert!(refused.to_string().contains("sha256:"), "{refused}");
    }
}
