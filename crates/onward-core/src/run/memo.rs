//! Memos: the recorded result of a call, used again by equal calls of other runs.
//!
//! A memo is kept by a *cell*: an internal run with a reserved id that is derived from the scope and the key of the memo. A cell
//! has no code. It is empty, is being computed by one call (its owner) while others wait, or has a value and is closed. Calls and
//! cells reach each other through the outbox like all runs. A cell with a value is only read, so hits do not make its log longer;
//! [`look`] decides what a call finds there.
//!
//! `memo/cell` admits inputs to cells, `memo/calls` follows the calls of a run that wait for a cell or compute for one.
//!
//! Must never see a plain payload: a key is a text that the caller derives, from a keyed hash if payloads are encrypted.
//!
//! Invariants:
//! - MM1: at any time a cell has at most one owner, and a call computes for it only if the cell has made it the owner.
//! - MM2: every call that waits for a cell is answered: by a value, or by becoming the owner when the owner before it ends without
//!   a value. A call that does not accept an ownership returns it.
//! - MM3: every message between calls and cells has its effect once, however often and in whatever order it is delivered.
//! - MM4: a hit has a value that was recorded within the time of the caller and of the owner, or after the call began to wait;
//!   and whose computation began after the last invalidation before the call.
//! - MM5: a call that may not be repeated (`at_most_once`) has no memo.
//! - MM6: ids of cells are reserved: no run, child, signal or reader reaches a cell under its id.
//! - MM7: a replayed call keeps its recorded hit; a copy of a log requests again what was not answered, and owns nothing.
//! - MM8 (S4): a worker whose rights are restricted to some kinds neither requests nor fills a memo that runs of other kinds use,
//!   except those of its own tree.

mod calls;
mod cell;

use std::time::Duration;

use crate::log::event::{MemoAnswered, MemoAsked, MemoHit, MemoRequested, MemoReturned, RunStarted};
use crate::run::internal::InternalRuns;
use crate::run::root::root_run;
use crate::run::{IdempotencyRecord, Input, NewRun, OutboxMessage, RunHead, Status};
use crate::{CallId, Hash, Name, Payload, RunId, RunKey, Timestamp, message, numbered};

pub use calls::OpenMemo;
pub(in crate::run) use cell::is_cell_input;
pub use cell::{CellHead, CellValue, WAITERS_MAX, Waiter};

/// The prefix of the ids of cells, and of their kinds.
pub const MEMO_PREFIX: &str = InternalRuns::Memos.prefix();

/// The maximum length of a key, in bytes.
pub const MEMO_KEY_BYTES_MAX: usize = 1_024;

numbered! {
    /// The runs that share a memo.
    #[derive(Default)]
    pub enum MemoScope {
        /// All runs of the namespace.
        #[default]
        0 => Namespace / "namespace",
        /// The runs with the same root run.
        1 => Tree / "tree",
    }
}

numbered! {
    /// The kind of a call with a memo.
    pub enum MemoCallType {
        0 => Step / "step",
        1 => Task / "task",
    }
}

message! {
    /// A call that waits for a cell or computes for it.
    #[derive(Eq)]
    pub struct MemoCaller {
        1 => run: RunKey,
        2 => generation: u32,
        3 => call_id: CallId,
        /// The incarnation of the run (see [`RunHead::incarnation`]).
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        4 => incarnation: Option<u64>,
    }

    /// The memo that a cell keeps.
    #[derive(Eq)]
    pub struct MemoCell {
        1 => scope: MemoScope,
        2 => key: String,
        /// The root run of the tree that shares the memo.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => tree: Option<String>,
    }
}

impl MemoCell {
    /// Returns the memo of `key` for calls of `run`.
    pub fn of(run: &RunId, scope: MemoScope, key: String) -> MemoCell {
        let tree = (scope == MemoScope::Tree).then(|| root_run(run).to_owned());
        MemoCell { scope, key, tree }
    }

    /// Returns the id of the cell. It depends on the key by a hash only.
    pub fn id(&self) -> RunId {
        let tree = self.tree.as_deref().unwrap_or_default();
        let hash = Hash::of_parts(&[self.scope.as_str().as_bytes(), tree.as_bytes(), self.key.as_bytes()]);
        RunId::new(format!("{MEMO_PREFIX}{hash}")).expect("a prefix and a hash are an id")
    }
}

/// Returns the key of a call without a key of its own: what is called, and a hash of everything that the result depends on.
pub fn derived_key(what: &str, hash: Hash) -> String {
    format!("{what}#{hash}")
}

/// Replaces the hash in a derived key by a keyed one.
pub fn keyed(derived: &str, hash: Hash) -> String {
    derived_key(derived.rsplit_once('#').map_or("", |(what, _)| what), hash)
}

/// Returns the kind of a cell whose value is used for `ttl_ms`: rounded up to a power of two, so that there are few kinds.
fn kind_for(ttl_ms: u64) -> Name {
    let seconds = ttl_ms.div_ceil(1_000).max(64).checked_next_power_of_two().unwrap_or(1 << 63);
    Name::new(format!("{MEMO_PREFIX}{seconds}")).expect("a prefix and a number are a name")
}

/// What a call finds at a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// There is no cell: start one with the call's request.
    Start,
    /// The cell is open: append the request.
    Append,
    /// The value applies: answer with it.
    Hit,
    /// The cell is closed without a value that applies: delete it, then start one.
    Renew,
}

/// Decides what the call finds, from the current head of the cell (MM4).
pub fn look(cell: Option<&RunHead>, asked: &MemoAsked, now: Timestamp) -> Look {
    let Some(head) = cell else { return Look::Start };
    if !head.status.is_closed() {
        return Look::Append;
    }
    let value = head.cell.as_ref().and_then(|cell| cell.value.as_ref()).filter(|_| head.status == Status::Completed);
    let Some(value) = value else { return Look::Renew };
    let has_waited = asked.waited_for.is_some() && asked.waited_for == head.incarnation;
    let is_valid = now < value.computed_at.after(Duration::from_millis(value.ttl_ms.min(asked.ttl_ms)));
    if has_waited || is_valid { Look::Hit } else { Look::Renew }
}

/// Returns the cell to start for a request, which comes with the start.
pub fn start_cell(to: RunKey, asked: MemoAsked, seed: u64) -> NewRun {
    let started =
        RunStarted { cell: Some(Box::new(asked.cell.clone())), ..RunStarted::new(kind_for(asked.ttl_ms), Payload::null(), seed) };
    NewRun { key: to, started, signal: Some(Box::new(asked.into_input())) }
}

/// Returns the value of a closed cell as the answer to a call; `None` if the cell has no value.
pub fn hit(cell: &RunHead, output: Payload, by: &MemoCaller) -> Option<OutboxMessage> {
    let value = cell.cell.as_ref()?.value.as_ref()?;
    let (from, from_call) = (value.from.run.id.clone(), value.from.call_id.clone());
    let hit = MemoHit { output, from, from_call, computed_at: value.computed_at };
    Some(by.answer(&cell.key.id, Some(hit), None))
}

impl MemoCaller {
    /// Returns the message with the answer: a hit, the ownership of a cell of that incarnation, or neither: the call then computes
    /// for itself.
    pub(super) fn answer(&self, cell: &RunId, hit: Option<MemoHit>, grant: Option<u64>) -> OutboxMessage {
        let answered = MemoAnswered { call_id: self.call_id.clone(), cell: cell.clone(), hit, grant };
        let (generation, incarnation) = (Some(self.generation), self.incarnation);
        let once = Some(answered.once(self.generation));
        OutboxMessage::Input { to: self.run.clone(), input: Input { once, generation, incarnation, ..Input::new(answered) } }
    }
}

impl MemoAsked {
    /// Returns the input for the cell, which it accepts once.
    pub fn into_input(self) -> Input {
        Input { once: Some(self.once()), ..Input::new(self) }
    }

    /// Returns the idempotency record of the request at a cell.
    pub fn once(&self) -> IdempotencyRecord {
        let MemoCaller { run, generation, call_id, incarnation } = &self.by;
        let incarnation = incarnation.map(|incarnation| format!("{incarnation:016x}")).unwrap_or_default();
        IdempotencyRecord::new(format!("memo:{}:{generation}:{call_id}:{incarnation}", run.id))
    }
}

impl MemoAnswered {
    /// Returns the idempotency record of the answer at the calling run: a repeat of the same answer is a repeat, and another answer
    /// has lost (MM3).
    pub fn once(&self, generation: u32) -> IdempotencyRecord {
        let token = match (&self.hit, self.grant) {
            (Some(hit), _) => format!("hit {} {} {}", hit.from, hit.from_call, hit.computed_at.0),
            (None, Some(grant)) => format!("grant {grant:016x}"),
            (None, None) => "alone".to_owned(),
        };
        IdempotencyRecord { key: format!("memo:{generation}:{}", self.call_id), token }
    }
}

/// Returns the message that returns an ownership to its cell, if the input is one that its run did not accept (MM2).
pub fn returned(to: &RunKey, input: &Input) -> Option<OutboxMessage> {
    let crate::Event::MemoAnswered(MemoAnswered { call_id, cell, grant: Some(grant), .. }) = &input.event else { return None };
    let (call_id, generation, incarnation) = (call_id.clone(), input.generation.unwrap_or_default(), input.incarnation);
    let by = MemoCaller { run: to.clone(), generation, call_id, incarnation };
    let input = Input { incarnation: Some(*grant), ..Input::new(MemoReturned { by }) };
    Some(OutboxMessage::Input { to: RunKey::new(to.namespace.clone(), cell.clone()), input })
}

impl MemoRequested {
    /// Returns the memo that the call requests.
    pub fn memo(&self, run: &RunId) -> MemoCell {
        MemoCell::of(run, self.scope, self.key.clone())
    }
}

#[cfg(test)]
mod tests;
