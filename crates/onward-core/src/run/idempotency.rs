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
use crate::start_policy::PolicyAsk;
use crate::{CallId, Event, Hash, Name, Payload, message};

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
        let content = [signal.name.as_str().as_bytes(), Hash::of(&signal.payload).to_string().as_bytes()].map(<[u8]>::to_vec);
        Some(IdempotencyRecord { key: format!("signal:{id}"), token: token("", &content) })
    }

    /// Returns the record of an entry from outside. Keys of entries and ids of signals are separate.
    fn entry(entry: &OutsideEntry, key: &str) -> IdempotencyRecord {
        let content = [entry.role.as_str().as_bytes(), Hash::of(&entry.content).to_string().as_bytes()].map(<[u8]>::to_vec);
        IdempotencyRecord { key: format!("entry:{key}"), token: token("", &content) }
    }

    /// Returns the record of a branch request.
    pub fn branch(request: &BranchRequested, id: &str) -> IdempotencyRecord {
        let from = request.from.map_or(vec![0], |from| from.to_string().into_bytes());
        let entry = request.entry.as_ref();
        let role = entry.map_or(vec![0], |entry| entry.role.as_str().as_bytes().to_vec());
        let content = entry.map_or(vec![0], |entry| Hash::of(&entry.content).to_string().into_bytes());
        IdempotencyRecord { key: format!("branch:{id}"), token: token("", &[from, role, content]) }
    }

    /// Returns the record of a start with a policy.
    pub fn start(ask: &PolicyAsk, id: &Name) -> IdempotencyRecord {
        let content = [ask.policy.to_bytes(), Hash::of(&ask.input).to_string().into_bytes()];
        IdempotencyRecord { key: format!("start:{id}"), token: token("", &content) }
    }

    pub fn update(update: &UpdateReceived) -> IdempotencyRecord {
        let content = [update.name.as_str().as_bytes(), Hash::of(&update.payload).to_string().as_bytes()].map(<[u8]>::to_vec);
        IdempotencyRecord { key: format!("update:{}", update.update_id), token: token("", &content) }
    }

    /// Returns the record of an external append. The expected index is not part of the content: a repeat may have read further.
    pub fn append(append: &ExternalAppended, id: &str) -> IdempotencyRecord {
        let hash = |payload: &Payload| Hash::of(payload).to_string().into_bytes();
        let mut content: Vec<Vec<u8>> = append.events.iter().map(hash).collect();
        if let Some(ExternalState { kind, version, status, data }) = &append.state {
            let version = version.as_ref().map_or(vec![0], |version| [b"1", version.as_str().as_bytes()].concat());
            content.extend([
                b"state".to_vec(),
                kind.as_str().as_bytes().to_vec(),
                version,
                status.as_str().as_bytes().to_vec(),
                hash(data),
            ]);
        }
        IdempotencyRecord { key: format!("append:{id}"), token: token("", &content) }
    }

    /// Returns the record of the answer of `who` to the single-assignment wait at `call_id`.
    pub fn answer(event: &Event, generation: u32, call_id: &CallId, who: &str) -> IdempotencyRecord {
        let key = super::wait_key(generation, call_id);
        let token = match event {
            Event::ApprovalDecided(ApprovalDecided { approved, feedback, decided_by, answer, .. }) => {
                let text = |text: &Option<String>| text.as_ref().map_or(vec![0], |text| [b"1", text.as_bytes()].concat());
                let mut content = vec![vec![u8::from(*approved)], text(feedback), text(decided_by)];
                content.extend(answer.as_ref().map(|answer| Hash::of(answer).to_string().into_bytes()));
                token(who, &content)
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
        let ((who, content), (winner, first)) = (parts(&self.token), parts(taken));
        if who != winner {
            return Again::Lost { winner: winner.to_owned() };
        }
        // Tokens without a content hash match any content.
        match (content, first) {
            (Some(content), Some(first)) if content != first => Again::Other,
            _ => Again::Repeated,
        }
    }

    /// Describes the request: what it is, and its id.
    pub fn describe(&self) -> String {
        match self.key.split_once(':') {
            Some((what @ ("signal" | "entry" | "update" | "append" | "branch" | "start"), id)) => format!("{what} `{id}`"),
            _ => format!("answer `{}`", parts(&self.token).0),
        }
    }
}

fn token(who: &str, content: &[Vec<u8>]) -> String {
    let content: Vec<&[u8]> = content.iter().map(Vec::as_slice).collect();
    format!("{who}{SEPARATOR}{}", Hash::of_parts(&content))
}

/// Splits a token into the requester and the content hash, if it has one.
fn parts(token: &str) -> (&str, Option<&str>) {
    token.split_once(SEPARATOR).map_or((token, None), |(who, content)| (who, Some(content)))
}

#[cfg(test)]
mod tests;
