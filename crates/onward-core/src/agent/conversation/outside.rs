//! Entries that somebody outside has appended: signals of one reserved name, until the code takes them in.
//!
//! Owns what such a signal carries, and which of them wait. One name for all of them, because only signals of one name keep their order
//! from generation to generation.

use crate::log::event::CarriedSignal;
use crate::{Event, Index, Name, Payload, Record, Timestamp, message};

/// The name under which they come. No pattern fits it, and nobody else may send a signal under it.
pub const ENTRY_SIGNAL: &str = "onward.entry";

/// Returns whether a caller who may only talk with an agent may append an entry of this role. Every other role says something in the name of
/// the agent, its instructions, its tools or its model, and is for operators.
pub fn is_callers_role(role: &Name) -> bool {
    role.as_str() == "user"
}

/// Returns what a model is told of something that a caller reports: the caller says that a model or a tool has said it.
pub fn reported(role: &str, text: &str) -> String {
    format!("As the caller reports it, the {role} said:\n{text}")
}

/// Returns the text that was [`reported`], if it was in this role.
pub fn reported_text<'a>(role: &str, told: &'a str) -> Option<&'a str> {
    told.strip_prefix(reported(role, "").as_str())
}

message! {
    /// What such a signal says. Its content is a payload of its own, so that a codec can seal it and leave the rest for the doors.
    pub struct OutsideEntry {
        1 => role: Name,
        2 => content: Payload,
        /// The same key again is the same entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => idempotency_key: Option<String>,
    }
}

impl OutsideEntry {
    /// Reads it from a signal; `None` for any other signal, and for one that says something else.
    pub fn of_signal(name: &Name, payload: &Payload) -> Option<OutsideEntry> {
        if name.as_str() == ENTRY_SIGNAL { payload.read().ok() } else { None }
    }

    pub fn to_payload(&self) -> Payload {
        Payload::json(self).expect("names, texts and payloads are plain data")
    }
}

message! {
    /// An entry that was appended from outside and that the code has not taken in.
    pub struct PendingEntry {
        1 => role: Name,
        2 => content: Payload,
        3 => idempotency_key: Option<String>,
        /// Where it stands in the log of the open generation.
        4 => index: Index,
        5 => at: Timestamp,
    }
}

/// The entries from outside that nobody has taken in as of the end of this log, oldest first.
pub fn pending_of(records: &[Record]) -> Vec<PendingEntry> {
    let mut pending = Vec::new();
    let left = super::left_behind(records);
    for record in records {
        for (index, event) in record.indexed() {
            match event {
                Event::RunStarted(event) => event.mailbox.iter().for_each(|CarriedSignal { name, payload, .. }| {
                    pending.extend(waiting(name, payload, index, record.at));
                }),
                Event::SignalReceived(event) => pending.extend(waiting(&event.name, &event.payload, index, record.at)),
                Event::SignalConsumed(event) if event.name.as_str() == ENTRY_SIGNAL && !left(index) => {
                    // Signals of one name are consumed in their order.
                    if let Some(position) = pending.iter().position(|entry| entry.index == event.index) {
                        pending.remove(position);
                    }
                }
                _ => {}
            }
        }
    }
    pending
}

fn waiting(name: &Name, payload: &Payload, index: Index, at: Timestamp) -> Option<PendingEntry> {
    let OutsideEntry { role, content, idempotency_key } = OutsideEntry::of_signal(name, payload)?;
    Some(PendingEntry { role, content, idempotency_key, index, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::CommitHeader;
    use crate::log::event::{Divergence, RunStarted, SegmentAbandoned, SignalConsumed, SignalReceived};
    use crate::{CommitId, Epoch, Place};

    fn signal(text: &str) -> SignalReceived {
        let entry =
            OutsideEntry { role: Name::new("user").unwrap(), content: Payload::json(text).unwrap(), idempotency_key: None };
        SignalReceived { name: Name::new(ENTRY_SIGNAL).unwrap(), payload: entry.to_payload(), signal_id: None, sender: None }
    }

    fn carried(text: &str) -> CarriedSignal {
        let SignalReceived { name, payload, .. } = signal(text);
        CarriedSignal { name, payload, signal_id: None, sender: None }
    }

    fn consumed(index: u64) -> Event {
        SignalConsumed { place: Place::root(0), name: Name::new(ENTRY_SIGNAL).unwrap(), index: Index(index) }.into()
    }

    fn commit(index: u64, events: Vec<Event>) -> Record {
        let (n, epoch, commit_id, horizon) = (index, Epoch(1), CommitId(index), Index(0));
        let header = CommitHeader { n, epoch, commit_id, horizon, waits: false, is_standing: false };
        Record { index: Index(index), at: Timestamp(index), commit: Some(header), events }
    }

    #[test]
    fn what_nobody_has_taken_in_is_pending_also_what_was_carried_or_given_back() {
        let started = RunStarted {
            mailbox: vec![carried("a"), carried("b")],
            ..RunStarted::new(Name::new("k").unwrap(), Payload::null(), 1)
        };
        let divergence =
            Divergence { index: Index(3), recorded: String::new(), asked: String::new(), nearest: None, hint: String::new() };
        let left = SegmentAbandoned { from: Index(3), to: Index(3), attempt: 1, withdrawn: Vec::new(), divergence };
        let mut log = vec![
            Record::input(Index(0), Timestamp(0), started.into()),
            Record::input(Index(1), Timestamp(1), signal("c").into()),
            commit(2, vec![consumed(0)]),
            commit(3, vec![consumed(0)]),
        ];
        let said =
            |log: &[Record]| -> Vec<String> { pending_of(log).iter().map(|entry| entry.content.read().unwrap()).collect() };
        assert_eq!(said(&log), ["c"]);
        log.push(commit(4, vec![left.into()]));
        assert_eq!(said(&log), ["b", "c"], "what was taken in on a way that was left waits again");
    }
}
