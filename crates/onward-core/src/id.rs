//! Names, ids and positions.
//!
//! Owns the limits on names. Must never generate an id: randomness and clocks belong to callers of this crate.

mod session;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message;

/// The maximum length of a name, id or key, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {what} must not be empty")]
    Empty { what: &'static str },
    #[error("a {what} has at most {NAME_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong { what: &'static str, bytes: usize },
    #[error("a {what} must not contain control characters")]
    Control { what: &'static str },
    #[error("a {what} must not be `.` or `..`")]
    Dots { what: &'static str },
}

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts 1 to 255 bytes of UTF-8 without control characters, compared byte for byte, never normalized. Fails for
            /// `.` and `..`, which have a special meaning in URL paths.
            pub fn new(text: impl AsRef<str>) -> Result<$name, NameError> {
                let text = text.as_ref();
                if text.is_empty() {
                    return Err(NameError::Empty { what: $what });
                }
                if text.len() > NAME_BYTES_MAX {
                    return Err(NameError::TooLong { what: $what, bytes: text.len() });
                }
                if text.chars().any(char::is_control) {
                    return Err(NameError::Control { what: $what });
                }
                if matches!(text, "." | "..") {
                    return Err(NameError::Dots { what: $what });
                }
                Ok($name(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $name::new(text).map_err(serde::de::Error::custom)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }
    };
}

text_id!(
    /// A name given by user code: a kind, a step, a signal, a queue.
    Name,
    "name"
);
text_id!(
    /// The id of a run, unique in its namespace, chosen by the caller or generated outside this crate.
    RunId,
    "run id"
);
text_id!(
    /// The boundary between tenants; part of every key.
    Namespace,
    "namespace"
);
text_id!(
    /// The id of one worker process, as in the store's leases.
    WorkerId,
    "worker id"
);

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace("default".into())
    }
}

message! {
    /// The full key of a run: namespace and id.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct RunKey { 1 => namespace: Namespace, 2 => id: RunId }
}

impl RunKey {
    pub fn new(namespace: Namespace, id: RunId) -> RunKey {
        RunKey { namespace, id }
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace != Namespace::default() {
            write!(f, "{}/", self.namespace)?;
        }
        self.id.fmt(f)
    }
}

/// A position in one run's log: 0, 1, 2, … without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Index(pub u64);

impl Index {
    /// Adds `count`, saturating: an index from outside may have any value.
    pub fn plus(self, count: u64) -> Index {
        Index(self.0.saturating_add(count))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The number that fences a lease: every claim of a run raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The call id: the position of a call in the code, with the arms of the combinators around it.
///
/// The path alternates ordinals and arms and ends with the call's own ordinal: `7` is the eighth call of the
/// main line, `2.1.0` the first call in arm 1 of the join that was call 2.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    branch: Branch,
    ordinal: u32,
}

/// The maximum number of parts of a call id, reached by a call inside 127 nested combinators. Stores use call ids as keys.
pub const CALL_ID_PARTS_MAX: usize = 255;

/// A sequence of calls: the main line, or one arm of a combinator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Branch(Option<Arc<[u32]>>);

impl Branch {
    pub const MAIN: Branch = Branch(None);

    pub fn is_main(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the branch of the arm `arm` of the combinator at `call_id`.
    pub fn of_arm(call_id: &CallId, arm: u32) -> Branch {
        Branch(Some(call_id.path().chain([arm]).collect()))
    }

    pub fn call(&self, ordinal: u32) -> CallId {
        CallId { branch: self.clone(), ordinal }
    }
}

impl CallId {
    pub fn root(ordinal: u32) -> CallId {
        CallId { branch: Branch::MAIN, ordinal }
    }

    pub fn branch(&self) -> &Branch {
        &self.branch
    }

    /// Returns the call id of the combinator that has this call in one of its arms.
    pub fn combinator(&self) -> Option<CallId> {
        let (_, path) = self.branch.0.as_deref()?.split_last()?;
        CallId::from_path(path)
    }

    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Returns true if the path has more than [`CALL_ID_PARTS_MAX`] parts.
    pub fn is_too_deep(&self) -> bool {
        self.branch.0.as_ref().map_or(0, |path| path.len()) >= CALL_ID_PARTS_MAX
    }

    pub fn path(&self) -> impl Iterator<Item = u32> + '_ {
        self.branch.0.iter().flat_map(|path| path.iter().copied()).chain([self.ordinal])
    }

    /// Builds a call id from its [`path`](CallId::path), which has an odd length.
    pub fn from_path(path: &[u32]) -> Option<CallId> {
        let (&ordinal, branch) = path.split_last()?;
        if branch.len() % 2 != 0 {
            return None;
        }
        let branch = Branch((!branch.is_empty()).then(|| branch.into()));
        Some(CallId { branch, ordinal })
    }

    pub fn parse(text: &str) -> Option<CallId> {
        let path: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        CallId::from_path(&path?)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.path().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
