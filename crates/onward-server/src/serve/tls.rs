//! TLS: a certificate and its key from two files, which a running server reads again after a change.
//!
//! The server checks the files when a client connects, at most once a second, so a renewed certificate is in use within seconds
//! and no background task is needed.
//!
//! Invariants:
//! - TL1: unusable files stop a server from starting; they never make it serve without TLS.
//! - TL2: files that become unusable later, as in the middle of a renewal, change nothing: the previous certificate stays in use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use onward_core::ErrorCode;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ServerConfig, pki_types};

use crate::trace::{Level, Trace};

/// Time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of a certificate or key file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reason why a certificate or key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file} cannot be used for TLS: {why}")]
pub struct TlsError {
    pub file: String,
    pub why: String,
}

impl TlsError {
    /// Returns the stable error code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        ErrorCode::TlsFilesUnusable.as_str()
    }

    fn new(file: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError { file: file.display().to_string(), why: why.to_string() }
    }
}

/// Certificate of one server.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the certificate with its chain in `cert` and the key in `key`, both PEM. Fails if they are not usable now (TL1).
    pub fn open(cert: &Path, key: &Path, trace: Trace) -> Result<Tls, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let files = Files { cert: cert.to_owned(), key: key.to_owned() };
        let (stamp, certified) = (files.stamp(), Arc::new(files.read(&provider)?));
        let cached = CachedCertificate { stamp, certified, checked_at: Instant::now(), reload_error: None };
        let followed = ReloadedCertificate { files, provider: provider.clone(), trace, cached: Mutex::new(cached) };
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| TlsError::new(cert, error))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(followed));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// Modification time and size of both files.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Files {
    fn stamp(&self) -> Stamp {
        [&self.cert, &self.key].map(|file| {
            let found = std::fs::metadata(file).ok()?;
            Some((found.modified().ok()?, found.len()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = pem(&self.cert, |text| CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>())?;
        if chain.is_empty() {
            return Err(TlsError::new(&self.cert, "it contains no certificate"));
        }
        let key = pem(&self.key, PrivateKeyDer::from_pem_slice)?;
        // An error here concerns both files: usually the key belongs to another certificate.
        CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| TlsError::new(&self.cert, format!("with the key in {}: {error}", self.key.display())))
    }
}

fn pem<T>(file: &Path, read: impl FnOnce(&[u8]) -> Result<T, pki_types::pem::Error>) -> Result<T, TlsError> {
    let unreadable = |error: std::io::Error| TlsError::new(file, error);
    if std::fs::metadata(file).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::new(file, "it is too large"));
    }
    let text = std::fs::read(file).map_err(unreadable)?;
    read(&text).map_err(|error| match error {
        pki_types::pem::Error::NoItemsFound => TlsError::new(file, "it contains no private key in PEM format"),
        error => TlsError::new(file, error),
    })
}

/// The certificate in use, and the state of the files when they were last checked.
struct ReloadedCertificate {
    files: Files,
    provider: Arc<CryptoProvider>,
    trace: Trace,
    cached: Mutex<CachedCertificate>,
}

struct CachedCertificate {
    stamp: Stamp,
    certified: Arc<CertifiedKey>,
    checked_at: Instant,
    /// Reason why the current files are not in use.
    reload_error: Option<String>,
}

impl ReloadedCertificate {
    fn current(&self) -> Arc<CertifiedKey> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.checked_at.elapsed() >= CHECK_INTERVAL {
            cached.checked_at = Instant::now();
            self.reload_if_changed(&mut cached);
        }
        cached.certified.clone()
    }

    fn reload_if_changed(&self, cached: &mut CachedCertificate) {
        let stamp = self.files.stamp();
        if stamp == cached.stamp {
            return;
        }
        match self.files.read(&self.provider) {
            Ok(certified) => {
                *cached = CachedCertificate {
                    stamp,
                    certified: Arc::new(certified),
                    checked_at: cached.checked_at,
                    reload_error: None,
                };
                self.trace.log(Level::Info, "certificate reloaded", &[]);
            }
            Err(error) => {
                // TL2. Logged once per reason, as the files are checked every second.
                let why = error.to_string();
                if cached.reload_error.as_ref() != Some(&why) {
                    self.trace.log(Level::Error, "certificate not reloaded; the previous one stays in use", &[("error", &why)]);
                    cached.reload_error = Some(why);
                }
            }
        }
    }
}

impl std::fmt::Debug for ReloadedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followed").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ReloadedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
