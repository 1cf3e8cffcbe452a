//! Invalidation of memos.

use onward_core::api::InvalidateMemosRequest;

use super::Onward;
use crate::error::Error;

/// The memos to invalidate: one key or all keys with a prefix, of the namespace or of the tree of a run.
///
/// A key that the code has not chosen is `KIND#HASH` for a task and `WORKFLOW/STEP#HASH` for a step.
#[derive(Debug, Clone)]
pub struct MemoKeys {
    key: String,
    is_prefix: bool,
    run: Option<String>,
}

impl MemoKeys {
    /// Selects the memo with this key.
    pub fn key(key: impl Into<String>) -> MemoKeys {
        MemoKeys { key: key.into(), is_prefix: false, run: None }
    }

    /// Selects all memos whose keys begin with this text.
    pub fn prefix(prefix: impl Into<String>) -> MemoKeys {
        MemoKeys { key: prefix.into(), is_prefix: true, run: None }
    }

    /// Selects memos of the tree of this run instead of those of the namespace.
    pub fn in_tree_of(self, run: impl Into<String>) -> MemoKeys {
        MemoKeys { run: Some(run.into()), ..self }
    }
}

impl Onward {
    /// Invalidates memos and returns how many there were: calls that begin later compute again, also if a computation is in
    /// progress.
    pub async fn invalidate_memos(&self, keys: MemoKeys) -> Result<u64, Error> {
        let MemoKeys { key, is_prefix, run } = keys;
        let run = run.map(|run| self.key(&run)).transpose()?;
        let request = InvalidateMemosRequest { namespace: self.inner.namespace.clone(), key, is_prefix, run };
        Ok(self.call(self.inner.client.invalidate_memos(request)).await?.invalidated)
    }
}
