//! Trusted certificate authorities.
//!
//! Must never fall back to a connection without TLS, or to a peer whose certificate was not verified.

use tonic::transport::Endpoint;

/// The authorities that a server's certificate is verified with: those of the system, or configured ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust {
    /// PEM, with one or more certificates.
    #[cfg(feature = "tls")]
    pub root: Option<Vec<u8>>,
}

impl Trust {
    #[cfg(feature = "tls")]
    pub fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, String> {
        use tonic::transport::{Certificate, ClientTlsConfig};
        let config = match &self.root {
            // An empty list would be accepted here, and every server rejected later for another reason.
            Some(pem) if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") => {
                return Err("the root certificate is not PEM".to_owned());
            }
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint.tls_config(config).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        })
    }

    #[cfg(not(feature = "tls"))]
    pub fn apply(&self, _: Endpoint) -> Result<Endpoint, String> {
        Err("https:// needs the cargo feature `tls` of the crate `onward`".to_owned())
    }
}
