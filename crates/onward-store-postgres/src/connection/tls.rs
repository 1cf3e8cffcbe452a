//! TLS to the database, with the settings of libpq: `sslmode` and `sslrootcert` in the address.
//!
//! Owns which certificate is trusted. Must never send a password before the certificate was verified, and never send plain text
//! if the address requires TLS (TP1).
//!
//! Invariants:
//! - TP1: with `require`, nothing is sent over an unencrypted connection; with `verify-ca` and `verify-full`, nothing before the
//!   server's certificate is known to come from a trusted CA, and with `verify-full` to match the host name.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_store::StoreError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Name of libpq for the system's CA certificates.
const SYSTEM: &str = "system";

/// TLS settings of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsMode {
    pub mode: Option<String>,
    /// A file with CA certificates, or `system`.
    pub root: Option<String>,
}

/// Certificate verifier.
#[derive(Debug)]
struct ServerVerifier {
    provider: Arc<CryptoProvider>,
    /// Without it, any certificate is accepted.
    trust: Option<Trust>,
}

#[derive(Debug)]
struct Trust {
    roots: RootCertStore,
    /// Certificates of the file: one that is listed itself needs no signature.
    named: Vec<CertificateDer<'static>>,
    checks_name: bool,
}

/// TLS configuration of connections.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    /// Source of the trusted certificates, for messages.
    from: Arc<str>,
}

impl TlsMode {
    /// Returns the mode of the driver and the TLS configuration. Fails if `sslmode` is invalid or no CA certificate is found.
    pub fn configure(&self) -> Result<(SslMode, Tls), StoreError> {
        let root = self.root.as_deref();
        let (mode, judges, checks_name) = match self.mode.as_deref() {
            Some("disable") => (SslMode::Disable, false, false),
            None if root == Some(SYSTEM) => (SslMode::Require, true, true), // as libpq
            None | Some("prefer" | "allow") => (SslMode::Prefer, false, false),
            Some("require") => (SslMode::Require, root.is_some(), false), // with a CA it is verify-ca, as libpq
            Some("verify-ca") => (SslMode::Require, true, false),
            Some("verify-full") => (SslMode::Require, true, true),
            Some(_) => {
                let why = "invalid `sslmode` in its address: use disable, prefer, require, verify-ca or verify-full";
                return Err(StoreError::DatabaseUnusable { why: why.to_owned() });
            }
        };
        let provider = Arc::new(ring::default_provider());
        let trust = if judges { Some(Trust::read(root.unwrap_or(SYSTEM), checks_name)?) } else { None };
        let clock = ServerVerifier { provider: provider.clone(), trust };
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| untrusted(error.to_string()))?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(clock)).with_no_client_auth();
        let from = root.filter(|root| *root != SYSTEM).map_or_else(|| "this system".to_owned(), str::to_owned);
        Ok((mode, Tls { connector: TlsConnector::from(Arc::new(config)), from: from.into() }))
    }
}

impl Trust {
    fn read(root: &str, checks_name: bool) -> Result<Trust, StoreError> {
        let mut trust = Trust { roots: RootCertStore::empty(), named: Vec::new(), checks_name };
        if root == SYSTEM {
            trust.roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return match trust.roots.is_empty() {
                true => Err(untrusted("the system has no CA certificates; set `sslrootcert` to a file".to_owned())),
                false => Ok(trust),
            };
        }
        let certs = CertificateDer::pem_file_iter(root).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        trust.named = certs.map_err(|error| untrusted(format!("{root} cannot be read: {error}")))?;
        let (added, _) = trust.roots.add_parsable_certificates(trust.named.iter().cloned());
        match added {
            0 => Err(untrusted(format!("{root} contains no certificate"))),
            _ => Ok(trust),
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trust) = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !trust.named.iter().any(|named| named == end_entity) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, &trust.roots, intermediates, now, algorithms)?;
        }
        if trust.checks_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Reason why there is no secure connection. It is not the network, so retrying does not help.
#[derive(Debug)]
pub(crate) struct Untrusted(pub String);

impl std::fmt::Display for Untrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

fn untrusted(why: String) -> StoreError {
    StoreError::DatabaseUntrusted { why }
}

/// The handshake of one connection.
pub(crate) struct Handshake {
    tls: Tls,
    host: String,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = Untrusted;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Untrusted> {
        Ok(Handshake { tls: self.clone(), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = Box<dyn std::error::Error + Sync + Send>;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host.clone());
            let name = name.map_err(|_| Untrusted(format!("`{}` is not a valid TLS server name", self.host)))?;
            match self.tls.connector.connect(name, socket).await {
                Ok(stream) => Ok(Stream(Box::new(stream))),
                Err(error) => Err(self.explain(error)),
            }
        })
    }
}

impl Handshake {
    /// Converts a certificate error to a readable one; other errors come from the network.
    fn explain(&self, error: io::Error) -> Box<dyn std::error::Error + Sync + Send> {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let Some(Error::InvalidCertificate(wrong)) = inner else { return error.into() };
        let (host, from) = (&self.host, &self.tls.from);
        let why = match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the certificate of {host} is not signed by a CA of {from}")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the certificate of {host} is for another name")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("the certificate of {host} has expired")
            }
            other => format!("the certificate of {host} is not usable: {other}"),
        };
        Untrusted(why).into()
    }
}

/// An encrypted connection.
pub(crate) struct Stream(Box<tokio_rustls::client::TlsStream<Socket>>);

impl tokio_postgres::tls::TlsStream for Stream {
    /// Returns none: it would require parsing the certificate for its hash algorithm. TP1 does not need it.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
