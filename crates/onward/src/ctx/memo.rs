//! Memos: results of calls that equal calls of other runs use again.

use std::sync::Arc;
use std::time::Duration;

use onward_core::CallId;
use onward_core::engine;
use onward_core::memo::MemoScope;
use onward_core::time::millis;

use crate::host::cell::RunCell;

/// A memo of a step, task or model call: for how long, among which runs and under which key its result is used again.
///
/// A [`Duration`] is a memo of the namespace whose key is derived from the call: a task's kind and input; a step's workflow,
/// version, name and [input](super::Step::input); a model call's model, settings and conversation.
#[derive(Debug, Clone)]
pub struct Memo {
    ttl: Duration,
    key: Option<String>,
    scope: MemoScope,
}

impl Memo {
    /// Returns a memo whose result is used again for this time. If calls have different times, the shorter one applies.
    pub fn new(ttl: Duration) -> Memo {
        Memo { ttl, key: None, scope: MemoScope::Namespace }
    }

    /// Sets the key: calls with the same key have the same result, whatever their input. It is stored in plain text, also if
    /// payloads are encrypted.
    pub fn key(self, key: impl Into<String>) -> Memo {
        Memo { key: Some(key.into()), ..self }
    }

    /// Shares the result among the runs with the same root run only.
    pub fn in_tree(self) -> Memo {
        Memo { scope: MemoScope::Tree, ..self }
    }

    /// Sets the runs that share the result.
    pub fn scope(self, scope: MemoScope) -> Memo {
        Memo { scope, ..self }
    }

    /// Sets the key to a derived one, unless the code has chosen one.
    pub(crate) fn derived(self, cell: &Arc<RunCell>, call_id: &CallId, derived: impl FnOnce() -> Option<String>) {
        let Memo { ttl, key, scope } = self;
        let is_derived = key.is_none();
        let Some(key) = key.or_else(derived) else {
            return cell.lock().engine.misuse("a memo of a step needs a key, or the input of the step: set it with `.input(..)`");
        };
        cell.lock().engine.set_memo(call_id, engine::MemoOptions { scope, key, is_derived, ttl_ms: millis(ttl).max(1) });
    }

    /// Gives the call this memo.
    pub(crate) fn set(self, cell: &Arc<RunCell>, call_id: &CallId) {
        let derived = || cell.lock().engine.derive_memo_key(call_id);
        if cell.lock().engine.may_have_memo(call_id) {
            self.derived(cell, call_id, derived);
        }
    }
}

impl From<Duration> for Memo {
    fn from(ttl: Duration) -> Memo {
        Memo::new(ttl)
    }
}
