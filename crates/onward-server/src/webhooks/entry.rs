//! One webhook of the webhook file: its name, the format of its signatures and its target.

use std::fmt;

use onward_core::{Name, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use super::format::Format;
use crate::auth::secret_file::SecretEntry;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookEntry {
    /// Last segment of the URL path.
    pub name: Name,
    /// Namespace of its runs.
    pub namespace: Namespace,
    pub format: Format,
    pub target: WebhookTarget,
    /// Secrets; all that have not expired are valid, so that a sender can switch to the new one during the overlap.
    pub secrets: Vec<WebhookSecret>,
    pub created_at: Timestamp,
}

impl SecretEntry for WebhookEntry {
    const NOUN: &'static str = "webhook";

    fn id(&self) -> &str {
        self.name.as_str()
    }
}

impl WebhookEntry {
    pub fn usable_secrets(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        self.secrets.iter().filter(move |secret| secret.is_usable(now)).map(|secret| &secret.secret)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSecret {
    pub secret: Secret,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl WebhookSecret {
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }
}

/// Shared secret of sender and server. Stored in plain text because it is needed to verify signatures; it is in the webhook file
/// and nowhere else (HK4).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Returns the text, to show it once after creation and to verify signatures.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Effect of a verified request. The whole body is the input or the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WebhookTarget {
    Start {
        kind: Name,
        version: Option<Name>,
        /// JSON pointer to the run id in the body; otherwise the id consists of the webhook's name and the request's id.
        run_id: Option<Pointer>,
    },
    Signal {
        run_id: Pointer,
        signal: Named,
    },
}

/// Fixed name, or a JSON pointer to a name in the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    Name(Name),
    Pointer(Pointer),
}

/// JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

impl Pointer {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Pointer {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Pointer, &'static str> {
        // The empty pointer is the whole document, which is neither an id nor a name.
        if text.starts_with('/') { Ok(Pointer(text)) } else { Err("a JSON pointer begins with `/`, like /order/id") }
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> String {
        pointer.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
