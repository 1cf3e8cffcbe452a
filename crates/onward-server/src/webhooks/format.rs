//! Signature formats: where signature, timestamp and id are, and what is signed.

use serde::{Deserialize, Serialize};

use super::entry::Pointer;

/// Signature format of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,…`; the secret is `whsec_` and base64.
    Standard,
    Custom(Box<Custom>),
}

/// HMAC-SHA256 with the text of the secret as the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// Header with the signatures, separated by commas.
    pub signature_header: String,
    pub encoding: Encoding,
    /// Prefix of each signature, such as `sha256=`; fields without it are ignored.
    #[serde(default)]
    pub prefix: String,
    /// Source of the time of signing, in seconds since 1970. Without one a request never expires, but is accepted once.
    pub timestamp: Option<TimestampAt>,
    pub id: IdAt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    Hex,
    Base64,
}

/// Source of the timestamp. The signed text is the timestamp, a dot and the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestampAt {
    Header(String),
    /// Field of the signature header with this prefix, such as `t=`.
    Field(String),
}

/// Source of the id by which a request is deduplicated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdAt {
    Pointer(Pointer),
    /// No signed id: the hash of the body is the id.
    Body,
}

impl Format {
    /// Returns the format `X-Hub-Signature-256: sha256=<hex>` over the body. `X-GitHub-Delivery` is not signed and therefore
    /// ignored (HK3).
    pub fn github() -> Format {
        Format::Custom(Box::new(Custom {
            signature_header: "X-Hub-Signature-256".to_owned(),
            encoding: Encoding::Hex,
            prefix: "sha256=".to_owned(),
            timestamp: None,
            id: IdAt::Body,
        }))
    }

    /// Returns the format `Stripe-Signature: t=<seconds>,v1=<hex>,…` over timestamp and body; the id is in the body.
    pub fn stripe() -> Format {
        Format::Custom(Box::new(Custom {
            signature_header: "Stripe-Signature".to_owned(),
            encoding: Encoding::Hex,
            prefix: "v1=".to_owned(),
            timestamp: Some(TimestampAt::Field("t=".to_owned())),
            id: IdAt::Pointer(Pointer::try_from("/id".to_owned()).expect("the pointer begins with a slash")),
        }))
    }

    /// Returns the name of the format for people.
    pub fn name(&self) -> &'static str {
        match self {
            Format::Standard => "standard",
            known if *known == Format::github() => "github",
            known if *known == Format::stripe() => "stripe",
            Format::Custom(_) => "custom",
        }
    }
}
