//! The text form of a reference to an entry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Hash;

/// A reference to an entry: `ID` or `ID~GENERATION`. The entry is in the log of that generation or of an earlier one; without a
/// generation it may be in any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EntryCursor {
    pub id: Hash,
    pub generation: Option<u32>,
}

impl From<Hash> for EntryCursor {
    fn from(id: Hash) -> EntryCursor {
        EntryCursor { id, generation: None }
    }
}

impl fmt::Display for EntryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Some(generation) => write!(f, "{}~{generation}", self.id),
            None => self.id.fmt(f),
        }
    }
}

impl From<EntryCursor> for String {
    fn from(cursor: EntryCursor) -> String {
        cursor.to_string()
    }
}

impl TryFrom<String> for EntryCursor {
    type Error = CursorError;

    fn try_from(text: String) -> Result<EntryCursor, CursorError> {
        text.parse()
    }
}

/// A text that is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry id has 32 hex digits, optionally followed by ~GENERATION")]
pub struct CursorError;

impl FromStr for EntryCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<EntryCursor, CursorError> {
        let (id, generation) = match text.split_once('~') {
            Some((id, generation)) => (id, Some(generation.parse().map_err(|_| CursorError)?)),
            None => (text, None),
        };
        Ok(EntryCursor { id: Hash::parse(id).ok_or(CursorError)?, generation })
    }
}

#[cfg(test)]
mod tests;
