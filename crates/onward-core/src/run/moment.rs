//! A run as it was right after one event of its log.
//!
//! Owns where a log is cut. Computes everything else with the folds of the whole log, so that the last moment of a log and its
//! view are the same.
//!
//! Invariants:
//! - MO1: the moment of an event depends on the records up to that event only: later events do not change it.
//! - MO2: the moment of the last event of a log has the view of the log.

use crate::agent::conversation::{depth_of, leaf_of};
use crate::log::event::RunPaused;
use crate::message;
use crate::run::view::{Awaited, RunCounts, RunView};
use crate::{Attribute, CallId, Event, Failure, Hash, Index, Name, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp};

message! {
    /// A run as of one event of its log, the event included.
    pub struct Moment {
        1 => run: RunId,
        2 => generation: u32,
        3 => index: Index,
        4 => at: Timestamp,
        /// The number of the commit that has the event; absent for an input.
        5 => commit: Option<u64>,
        6 => event: Event,
        7 => status: Status,
        8 => state: Vec<StateValue>,
        9 => awaiting: Vec<Awaited>,
        /// The calls of the code without an answer.
        10 => open_calls: Vec<CallId>,
        11 => counts: RunCounts,
        12 => pause: Option<RunPaused>,
        13 => cancel_reason: Option<String>,
        14 => outcome: Option<Result<Payload, Failure>>,
        15 => attributes: Vec<Attribute>,
        /// The last entry of an agent's conversation.
        16 => leaf: Option<Hash>,
        /// The number of entries up to there.
        17 => entries: u64,
    }

    /// A named value of a run's state.
    pub struct StateValue { 1 => name: Name, 2 => value: Payload }
}

impl Moment {
    /// Computes the moment of the event at `index`; `None` if the records do not have it.
    pub fn of(key: &RunKey, records: &[Record], index: Index) -> Option<Moment> {
        let (view, known) = view_at(key, records, index)?;
        let record = known.last()?;
        let event = record.events.last()?.clone();
        let state = view.state.into_iter().map(|(name, value)| StateValue { name, value });
        Some(Moment {
            run: key.id.clone(),
            generation: view.head.generation,
            index,
            at: record.at,
            commit: record.commit.map(|commit| commit.n),
            event,
            status: view.head.status,
            state: state.collect(),
            open_calls: view.awaiting.iter().filter_map(|awaited| awaited.call_id.clone()).collect(),
            awaiting: view.awaiting,
            counts: view.counts,
            pause: view.pause,
            cancel_reason: view.cancel_reason,
            outcome: view.outcome,
            attributes: view.head.attributes,
            leaf: leaf_of(&known),
            entries: depth_of(&known),
        })
    }
}

/// Returns the view right after the event at `index`, with the records up to that event (MO1); `None` if the records do not have
/// it.
pub fn view_at(key: &RunKey, records: &[Record], index: Index) -> Option<(RunView, Vec<Record>)> {
    let position = records.partition_point(|record| record.next_index() <= index);
    let record = records.get(position)?;
    let kept = usize::try_from(index.0.checked_sub(record.index.0)?).ok()? + 1;
    let mut known = records[..=position].to_vec();
    known[position].events.truncate(kept);
    let mut head = RunHead::rebuild(key.clone(), &known)?;
    // The status follows only from a whole commit.
    if kept < record.events.len() && record.commit.is_some_and(|commit| !commit.is_while_paused) {
        head.status = Status::Running;
    }
    Some((RunView::fold(head, &known), known))
}

#[cfg(test)]
mod tests;
