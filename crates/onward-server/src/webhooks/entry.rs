//! One hook as the file has it: what it is called, how its requests are signed, and where they go.

use std::fmt;

use onward_core::{Name, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use super::format::Format;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookEntry {
    /// Its place in the path.
    pub name: Name,
    /// Where its runs are.
    pub namespace: Namespace,
    pub format: Format,
    pub target: Target,
    /// All that have not ended are good: an old one for as long as its sender may need to change.
    pub secrets: Vec<HookSecret>,
    pub created_at: Timestamp,
}

impl HookEntry {
    pub fn usable_secrets(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        self.secrets.iter().filter(move |secret| secret.is_usable(now)).map(|secret| &secret.secret)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookSecret {
    pub secret: Secret,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl HookSecret {
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }
}

/// What sender and server share. It signs, so it must be kept as it is; it is written into the hook file and nowhere else (HK4).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// For whoever just made it, and for signing.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a request does once it is believed. The body is the input or the payload, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    Start {
        kind: Name,
        version: Option<Name>,
        /// Where in the body the run's id is, as a JSON pointer; otherwise the id is the hook's name and the request's id.
        run_id: Option<Pointer>,
    },
    Signal {
        run_id: Pointer,
        signal: Named,
    },
}

/// A name that is fixed, or is somewhere in the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    Name(Name),
    Pointer(Pointer),
}

/// A place in a JSON document (RFC 6901).
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
        // A whole document is no id and no name.
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
