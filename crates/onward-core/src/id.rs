//! Names and positions: everything that points at something else.
//!
//! Owns the limits on names. Must never make an id up: randomness and clocks belong to the shell.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message;

/// The longest name, id or key, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Why a text is not a name.
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
            /// Accepts 1 to 255 bytes of UTF-8 without control characters; compared byte for byte, never normalized. The two names that
            /// mean something else in every address are refused.
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
    /// What user code calls something: a kind, a step, a signal, a queue.
    Name,
    "name"
);
text_id!(
    /// The id of a run, unique in its namespace, chosen by the caller or made up by the shell.
    RunId,
    "run id"
);
text_id!(
    /// The tenant border; part of every key.
    Namespace,
    "namespace"
);
text_id!(
    /// One life of a worker process, as the store's leases know it.
    WorkerId,
    "worker id"
);

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace("default".into())
    }
}

message! {
    /// Which run, everywhere.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct RunKey {
        1 => namespace: Namespace,
        2 => id: RunId,
    }
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
    /// Stops at the largest there is, which no log reaches: an index from outside may be any.
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

/// Where in the code a call was made: through which arm of which join or select, and the how-manieth call there.
///
/// The path alternates ordinals and arms and ends with the call's own ordinal: `7` is the eighth call of the
/// main line, `2.1.0` the first call in arm 1 of the join that was call 2.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    branch: Branch,
    ordinal: u32,
}

/// How many parts the path of a place may have: a call inside of 127 joins, one inside the other. Every store holds it as a key.
pub const PLACE_PARTS_MAX: usize = 255;

/// A line of calls: the main line, or one arm of a combinator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Branch(Option<Arc<[u32]>>);

impl Branch {
    pub const MAIN: Branch = Branch(None);

    pub fn is_main(&self) -> bool {
        self.0.is_none()
    }

    /// The arm `arm` of the combinator at `place`.
    pub fn of_arm(place: &Place, arm: u32) -> Branch {
        Branch(Some(place.path().chain([arm]).collect()))
    }

    pub fn call(&self, ordinal: u32) -> Place {
        Place { branch: self.clone(), ordinal }
    }
}

impl Place {
    pub fn root(ordinal: u32) -> Place {
        Place { branch: Branch::MAIN, ordinal }
    }

    pub fn branch(&self) -> &Branch {
        &self.branch
    }

    /// The place of the combinator in one of whose arms this call was made.
    pub fn combinator(&self) -> Option<Place> {
        let (_, path) = self.branch.0.as_deref()?.split_last()?;
        Place::from_path(path)
    }

    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Whether its path has more parts than a place may have.
    pub fn is_too_deep(&self) -> bool {
        self.branch.0.as_ref().map_or(0, |path| path.len()) >= PLACE_PARTS_MAX
    }

    pub fn path(&self) -> impl Iterator<Item = u32> + '_ {
        self.branch.0.iter().flat_map(|path| path.iter().copied()).chain([self.ordinal])
    }

    /// The inverse of [`Place::path`]; a path has an odd length.
    pub fn from_path(path: &[u32]) -> Option<Place> {
        let (&ordinal, branch) = path.split_last()?;
        if branch.len() % 2 != 0 {
            return None;
        }
        let branch = Branch((!branch.is_empty()).then(|| branch.into()));
        Some(Place { branch, ordinal })
    }

    pub fn parse(text: &str) -> Option<Place> {
        let path: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        Place::from_path(&path?)
    }
}

impl fmt::Display for Place {
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

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Place::parse(&text).ok_or_else(|| serde::de::Error::custom("not a place"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_from_its_text() {
        for text in ["0", "7", "2.1.0", "2.1.4.0.9"] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Place::parse("2.1"), None);
        assert_eq!(Place::parse(""), None);
    }

    #[test]
    fn names_are_limited_by_bytes_and_never_normalized() {
        assert!(Name::new("a".repeat(255)).is_ok());
        assert_eq!(Name::new("é".repeat(128)), Err(NameError::TooLong { what: "name", bytes: 256 }));
        assert_eq!(Name::new(""), Err(NameError::Empty { what: "name" }));
        assert_eq!(Name::new("a\nb"), Err(NameError::Control { what: "name" }));
        assert_eq!(RunId::new(".."), Err(NameError::Dots { what: "run id" }), "no address could name it");
        assert!(RunId::new("...").is_ok());
        assert_ne!(Name::new("\u{e9}").unwrap(), Name::new("e\u{301}").unwrap());
    }
}
