//! Entries appended from outside: signals with a reserved name, until the code consumes them.
//!
//! Owns the content of such signals, and which of them are pending. All have one name, because only signals of one name keep
//! their order across generations.

use crate::log::event::CarriedSignal;
use crate::{Event, Index, Name, Payload, Record, Timestamp, message};

/// The reserved signal name. No pattern matches it, and no other signal may use it.
pub const ENTRY_SIGNAL: &str = "onward.entry";

/// Returns true if a caller without operator rights may append an entry of this role. All other roles speak for the agent, its
/// instructions, its tools or its model.
pub fn is_callers_role(role: &Name) -> bool {
    role.as_str() == "user"
}

/// Returns the text that a model gets for a message that a caller attributes to a model or a tool.
pub fn reported(role: &str, text: &str) -> String {
    format!("As the caller reports it, the {role} said:\n{text}")
}

/// Returns the text that was [`reported`], if it was in this role.
pub fn reported_text<'a>(role: &str, told: &'a str) -> Option<&'a str> {
    told.strip_prefix(reported(role, "").as_str())
}

message! {
    /// The content of such a signal. The entry's content is a payload of its own, so that a codec can encrypt it and APIs can
    /// read the rest.
    pub struct OutsideEntry {
        1 => role: Name,
        2 => content: Payload,
        /// Idempotency key: a repeat with the same key is the same entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => idempotency_key: Option<String>,
    }
}

impl OutsideEntry {
    /// Parses it from a signal; `None` for any other signal, and for other content.
    pub fn of_signal(name: &Name, payload: &Payload) -> Option<OutsideEntry> {
        if name.as_str() == ENTRY_SIGNAL { payload.read().ok() } else { None }
    }

    pub fn to_payload(&self) -> Payload {
        Payload::json(self).expect("names, texts and payloads are plain data")
    }
}

message! {
    /// An entry appended from outside that the code has not consumed.
    pub struct PendingEntry {
        1 => role: Name,
        2 => content: Payload,
        3 => idempotency_key: Option<String>,
        /// Its index in the log of the open generation.
        4 => index: Index,
        5 => at: Timestamp,
    }
}

/// Returns the entries from outside that are unconsumed at the end of this log, oldest first.
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
                    // Signals of one name are consumed in order.
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
    use crate::{CallId, CommitId, Epoch};

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
        SignalConsumed { call_id: CallId::root(0), name: Name::new(ENTRY_SIGNAL).unwrap(), index: Index(index) }.into()
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
        assert_eq!(said(&log), ["b", "c"], "entries consumed on an abandoned path are pending again");
    }
}
