//! Entries appended from outside: signals with a reserved name, until the code consumes them.
//!
//! Owns the content of such signals, and which of them are pending. All have one name, because only signals of one name keep
//! their order across generations.

use crate::log::event::CarriedSignal;
use crate::{Event, Index, Name, Payload, Record, Timestamp, message};

/// The reserved signal name. No pattern matches it, and no other signal may use it.
pub const ENTRY_SIGNAL: &str = "onward.entry";

/// Returns true if a caller without operator rights may append an entry of this role. All other roles belong to the agent, its
/// instructions, its tools or its model.
pub fn is_callers_role(role: &Name) -> bool {
    role.as_str() == "user"
}

/// Returns the text that a model gets for a message that a caller attributes to a model or a tool.
pub fn reported(role: &str, text: &str) -> String {
    format!("As the caller reports it, the {role} said:\n{text}")
}

/// Returns the text that was [`reported`], if it was in this role.
pub fn reported_text<'a>(role: &str, text: &'a str) -> Option<&'a str> {
    text.strip_prefix(reported(role, "").as_str())
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
    let abandoned = super::abandoned_filter(records);
    for record in records {
        for (index, event) in record.indexed() {
            match event {
                Event::RunStarted(event) => event.mailbox.iter().for_each(|CarriedSignal { name, payload, .. }| {
                    pending.extend(waiting(name, payload, index, record.at));
                }),
                Event::SignalReceived(event) => pending.extend(waiting(&event.name, &event.payload, index, record.at)),
                Event::SignalConsumed(event) if event.name.as_str() == ENTRY_SIGNAL && !abandoned(index) => {
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
mod tests;
