//! How requests are signed: where signature, time and id are, and what is signed.

use serde::{Deserialize, Serialize};

use super::entry::Pointer;

/// A way to sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,…`; the secret is `whsec_` and base64.
    Standard,
    Custom(Box<Custom>),
}

/// A signature by HMAC-SHA256 under a secret that is used as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// The header with the signature; several are separated by commas.
    pub signature_header: String,
    pub encoding: Encoding,
    /// What stands before each signature, such as `sha256=`; others are passed over.
    #[serde(default)]
    pub prefix: String,
    /// Where the time is at which it was signed, in seconds since 1970. Without one a request is good for ever, but once.
    pub timestamp: Option<TimestampAt>,
    pub id: IdAt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    Hex,
    Base64,
}

/// Where the time is. It is signed before the body, with a dot between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestampAt {
    Header(String),
    /// In the header of the signature, behind this word, such as `t=`.
    Field(String),
}

/// Where the id is by which a request is taken once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdAt {
    /// In a header, as older files have it. No signature covers it, so it tells nothing: like [`IdAt::Body`] (HK3).
    Header(String),
    Pointer(Pointer),
    /// There is none that is signed: the same body again is the same request.
    Body,
}

impl Format {
    /// `X-Hub-Signature-256: sha256=<hex>` over the body. `X-GitHub-Delivery` is not signed and not believed (HK3).
    pub fn github() -> Format {
        Format::Custom(Box::new(Custom {
            signature_header: "X-Hub-Signature-256".to_owned(),
            encoding: Encoding::Hex,
            prefix: "sha256=".to_owned(),
            timestamp: None,
            id: IdAt::Body,
        }))
    }

    /// `Stripe-Signature: t=<seconds>,v1=<hex>,…` over time and body; the id is in the body.
    pub fn stripe() -> Format {
        Format::Custom(Box::new(Custom {
            signature_header: "Stripe-Signature".to_owned(),
            encoding: Encoding::Hex,
            prefix: "v1=".to_owned(),
            timestamp: Some(TimestampAt::Field("t=".to_owned())),
            id: IdAt::Pointer(Pointer::try_from("/id".to_owned()).expect("it begins with a slash")),
        }))
    }

    /// For people.
    pub fn name(&self) -> &'static str {
        match self {
            Format::Standard => "standard",
            known if *known == Format::github() => "github",
            known if *known == Format::stripe() => "stripe",
            Format::Custom(_) => "custom",
        }
    }
}
