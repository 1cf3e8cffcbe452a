//! One key of the key file: everything except its secret.

use std::collections::BTreeSet;
use std::fmt;

use onward_core::budget::Budget;
use onward_core::{Name, Namespace, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::auth::Scope;
use crate::auth::bounds::Bounds;
use crate::auth::secret_file::SecretEntry;
use crate::hex;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    pub id: String,
    /// Name of the holder; recorded with the approvals that are decided with this key.
    pub name: Name,
    pub sha256: Digest,
    pub namespace: Reach,
    pub scopes: BTreeSet<Scope>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Ceiling of the budgets of runs that are started or resumed with the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_max: Option<Budget>,
    /// Kinds and queues that the key is for.
    #[serde(default, skip_serializing_if = "Bounds::is_none")]
    pub bounds: Bounds,
    /// Id of the first key in the chain of rotations; `None` for a key that replaces no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl SecretEntry for KeyEntry {
    const NOUN: &'static str = "key";

    fn id(&self) -> &str {
        &self.id
    }
}

impl KeyEntry {
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// Returns `usable`, `revoked` or `expired`.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match self.revoked_at {
            Some(_) => "revoked",
            None if self.is_usable(now) => "usable",
            None => "expired",
        }
    }
}

/// Namespaces that a key is for. In text, `*` is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Namespace", into = "String")]
pub enum Reach {
    All,
    One(Namespace),
}

impl Reach {
    pub fn covers(&self, namespace: &Namespace) -> bool {
        match self {
            Reach::All => true,
            Reach::One(own) => own == namespace,
        }
    }
}

impl From<Namespace> for Reach {
    fn from(namespace: Namespace) -> Reach {
        if namespace.as_str() == "*" { Reach::All } else { Reach::One(namespace) }
    }
}

impl From<Reach> for String {
    fn from(reach: Reach) -> String {
        reach.to_string()
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::All => f.write_str("*"),
            Reach::One(namespace) => namespace.fmt(f),
        }
    }
}

/// SHA-256 of a secret. In text, hexadecimal.
///
/// One round is enough: a secret has 256 random bits, so a slow hash would not make guessing harder.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest that no secret has.
    pub const NONE: Digest = Digest([0; 32]);

    pub fn of(secret: &str) -> Digest {
        Digest(sha2::Sha256::digest(secret.as_bytes()).into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in constant time (G1).
    pub fn equals(&self, other: &Digest) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        hex::encode(&digest.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Digest, &'static str> {
        let bytes = hex::decode(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Digest).ok_or("a SHA-256 has 64 hexadecimal digits")
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

#[cfg(test)]
mod tests;
