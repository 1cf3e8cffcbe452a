//! Idempotency records: repeated and conflicting requests from outside.
//!
//! Owns the decision about a second request under the same key. Stores keep the token of the first request and call
//! [`IdempotencyRecord::again`] for later ones; they never compare tokens themselves.
//!
//! Invariant O1 (L11, L12): the same request again is a repeat. A different request under the same id is rejected and never taken
//! for a repeat. A request with another id to a wait that was answered has lost.

use crate::agent::conversation::OutsideEntry;
use crate::log::codec::Message;
use crate::log::event::{ApprovalDecided, BranchRequested, PromiseResolved, SignalReceived, UpdateReceived};
use crate::log::external::{ExternalAppended, ExternalState};
use crate::{CallId, Event, Hash, Payload, message};

/// Separates the requester from the hash of the content in a token; no id contains a control character.
const SEPARATOR: char = '\u{1f}';

message! {
    /// An idempotency record of a run, written at most once and kept as long as the run.
    #[derive(Eq)]
    pub struct IdempotencyRecord {
        1 => key: String,
        /// The requester, and a hash of the content.
        2 => token: String,
    }
}

/// The decision about a later request under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// The same request.
    Repeated,
    /// The same id with different content.
    Other,
    /// Another requester came first.
    Lost { winner: String },
}

impl IdempotencyRecord {
    /// Returns a record for which any first request is accepted.
    pub fn new(key: String) -> IdempotencyRecord {
        IdempotencyRecord { key, token: String::new() }
    }

    pub fn signal(signal: &SignalReceived) -> Option<IdempotencyRecord> {
        let id = signal.signal_id.as_ref()?;
        if let Some(entry) = OutsideEntry::of_signal(&signal.name, &signal.payload) {
            return Some(IdempotencyRecord::entry(&entry, id));
        }
        let said = [signal.name.as_str().as_bytes(), Hash::of(&signal.payload).to_string().as_bytes()].map(<[u8]>::to_vec);
        Some(IdempotencyRecord { key: format!("signal:{id}"), token: token("", &said) })
    }

    /// Returns the record of an entry from outside. Keys of entries and ids of signals are separate.
    fn entry(entry: &OutsideEntry, key: &str) -> IdempotencyRecord {
        let said = [entry.role.as_str().as_bytes(), Hash::of(&entry.content).to_string().as_bytes()].map(<[u8]>::to_vec);
        IdempotencyRecord { key: format!("entry:{key}"), token: token("", &said) }
    }

    /// Returns the record of a branch request.
    pub fn branch(request: &BranchRequested, id: &str) -> IdempotencyRecord {
        let from = request.from.map_or(vec![0], |from| from.to_string().into_bytes());
        let entry = request.entry.as_ref();
        let role = entry.map_or(vec![0], |entry| entry.role.as_str().as_bytes().to_vec());
        let content = entry.map_or(vec![0], |entry| Hash::of(&entry.content).to_string().into_bytes());
        IdempotencyRecord { key: format!("branch:{id}"), token: token("", &[from, role, content]) }
    }

    pub fn update(update: &UpdateReceived) -> IdempotencyRecord {
        let said = [update.name.as_str().as_bytes(), Hash::of(&update.payload).to_string().as_bytes()].map(<[u8]>::to_vec);
        IdempotencyRecord { key: format!("update:{}", update.update_id), token: token("", &said) }
    }

    /// Returns the record of an external append. The expected index is not part of the content: a repeat may have read further.
    pub fn append(append: &ExternalAppended, id: &str) -> IdempotencyRecord {
        let hash = |payload: &Payload| Hash::of(payload).to_string().into_bytes();
        let mut said: Vec<Vec<u8>> = append.events.iter().map(hash).collect();
        if let Some(ExternalState { kind, version, status, data }) = &append.state {
            let version = version.as_ref().map_or(vec![0], |version| [b"1", version.as_str().as_bytes()].concat());
            said.extend([
                b"state".to_vec(),
                kind.as_str().as_bytes().to_vec(),
                version,
                status.as_str().as_bytes().to_vec(),
                hash(data),
            ]);
        }
        IdempotencyRecord { key: format!("append:{id}"), token: token("", &said) }
    }

    /// Returns the record of the answer of `who` to the single-assignment wait at `call_id`.
    pub fn answer(event: &Event, generation: u32, call_id: &CallId, who: &str) -> IdempotencyRecord {
        let key = super::wait_key(generation, call_id);
        let token = match event {
            Event::ApprovalDecided(ApprovalDecided { approved, feedback, decided_by, .. }) => {
                let text = |text: &Option<String>| text.as_ref().map_or(vec![0], |text| [b"1", text.as_bytes()].concat());
                token(who, &[vec![u8::from(*approved)], text(feedback), text(decided_by)])
            }
            Event::PromiseResolved(PromiseResolved { result: Ok(value), .. }) => {
                token(who, &[b"ok".to_vec(), Hash::of(value).to_string().into_bytes()])
            }
            Event::PromiseResolved(PromiseResolved { result: Err(failure), .. }) => {
                token(who, &[b"failed".to_vec(), failure.to_bytes()])
            }
            _ => who.to_owned(),
        };
        IdempotencyRecord { key, token }
    }

    /// Compares this request with the stored token `taken`.
    pub fn again(&self, taken: &str) -> Again {
        let ((who, said), (winner, first)) = (parts(&self.token), parts(taken));
        if who != winner {
            return Again::Lost { winner: winner.to_owned() };
        }
        // Tokens without a content hash match any content.
        match (said, first) {
            (Some(said), Some(first)) if said != first => Again::Other,
            _ => Again::Repeated,
        }
    }

    /// Describes the request: what it is, and its id.
    pub fn describe(&self) -> String {
        match self.key.split_once(':') {
            Some((what @ ("signal" | "entry" | "update" | "append" | "branch"), id)) => format!("{what} `{id}`"),
            _ => format!("answer `{}`", parts(&self.token).0),
        }
    }
}

fn token(who: &str, said: &[Vec<u8>]) -> String {
    let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
    format!("{who}{SEPARATOR}{}", Hash::of_parts(&said))
}

/// Splits a token into the requester and the content hash, if it has one.
fn parts(token: &str) -> (&str, Option<&str>) {
    token.split_once(SEPARATOR).map_or((token, None), |(who, said)| (who, Some(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn signal(id: &str, name: &str, payload: &str) -> IdempotencyRecord {
        let (name, payload) = (Name::new(name).unwrap(), Payload::from_json_text(payload.to_owned()));
        IdempotencyRecord::signal(&SignalReceived { name, payload, signal_id: Some(id.to_owned()), sender: None }).unwrap()
    }

    #[test]
    fn the_same_id_is_the_same_act_only_if_it_says_the_same() {
        let first = signal("a", "paid", r#"{"cents":1,"by":"x"}"#);
        assert_eq!(signal("a", "paid", r#"{ "by": "x", "cents": 1 }"#).again(&first.token), Again::Repeated);
        assert_eq!(signal("a", "paid", r#"{"cents":2,"by":"x"}"#).again(&first.token), Again::Other);
        assert_eq!(signal("a", "refused", r#"{"cents":1,"by":"x"}"#).again(&first.token), Again::Other);
        assert_eq!(first.again(""), Again::Repeated, "older records have no content hash");
        assert_eq!(first.describe(), "signal `a`");
    }

    #[test]
    fn an_entry_is_its_role_and_its_content_under_a_key_that_is_no_signals() {
        let entry = |key: &str, role: &str, content: &str| {
            let (role, content) = (Name::new(role).unwrap(), Payload::from_json_text(content.to_owned()));
            let payload = OutsideEntry { role, content, idempotency_key: Some(key.to_owned()) }.to_payload();
            let name = Name::new(crate::agent::conversation::ENTRY_SIGNAL).unwrap();
            IdempotencyRecord::signal(&SignalReceived { name, payload, signal_id: Some(key.to_owned()), sender: None }).unwrap()
        };
        let first = entry("a", "user", r#"{"x":1,"y":2}"#);
        assert_eq!(entry("a", "user", r#"{ "y": 2, "x": 1 }"#).again(&first.token), Again::Repeated);
        assert_eq!(entry("a", "tool", r#"{"x":1,"y":2}"#).again(&first.token), Again::Other);
        assert_eq!(entry("a", "user", r#"{"x":1}"#).again(&first.token), Again::Other);
        assert_ne!(first.key, signal("a", "x", "1").key);
        assert_eq!(first.describe(), "entry `a`");
    }

    #[test]
    fn an_append_is_its_events_and_its_state_wherever_it_was_meant_to_go() {
        let append = |expected, events: &[&str], status: Option<crate::Status>| {
            let events = events.iter().map(|text| Payload::from_json_text((*text).to_owned())).collect();
            let state = status.map(|status| ExternalState {
                kind: Name::new("k").unwrap(),
                version: None,
                status,
                data: Payload::null(),
            });
            IdempotencyRecord::append(&ExternalAppended { expected: Some(crate::Index(expected)), events, state }, "a")
        };
        let first = append(0, &["1", "2"], None);
        assert_eq!(append(7, &["1", "2"], None).again(&first.token), Again::Repeated);
        assert_eq!(append(0, &["1", "3"], None).again(&first.token), Again::Other);
        assert_eq!(append(0, &["1"], None).again(&first.token), Again::Other);
        assert_eq!(append(0, &["1", "2"], Some(crate::Status::Running)).again(&first.token), Again::Other);
        assert_eq!(first.describe(), "append `a`");
    }

    #[test]
    fn another_id_has_lost_whatever_it_says() {
        let answer = |who: &str, approved| {
            let (call_id, decision_id) = (CallId::root(0), who.to_owned());
            let event = ApprovalDecided { call_id, approved, feedback: None, decided_by: None, decision_id };
            IdempotencyRecord::answer(&event.into(), 0, &CallId::root(0), who)
        };
        let first = answer("anna", true);
        assert_eq!(answer("anna", true).again(&first.token), Again::Repeated);
        assert_eq!(answer("anna", false).again(&first.token), Again::Other);
        assert_eq!(answer("ben", true).again(&first.token), Again::Lost { winner: "anna".to_owned() });
        assert_eq!(answer("ben", true).again("expired"), Again::Lost { winner: "expired".to_owned() });
        assert_eq!(first.describe(), "answer `anna`");
    }
}
