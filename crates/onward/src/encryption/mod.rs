//! Encoding of payloads that leave this crate: compression, encryption, or none.
//!
//! Owns the encryption boundary: [`connection::EncryptedConnection`] and [`client::EncryptedClient`] stand between user code and the store of runs, local
//! or remote, and every payload passes through one of them. Everything outside (runtime, store, server, console) sees only
//! encoded payloads. `events` lists the payloads of a log, once for both directions. Must never change what code compares: input
//! hashes are made of plain payloads, inside.
//!
//! Invariants:
//! - CO1: `decode(encode(payload))` is the payload, in the context it was encoded for and in no other.
//! - CO2: a payload that a codec did not encode passes unchanged, so that callers without the codec are understood and older logs
//!   stay readable.

#[cfg(feature = "encryption")]
mod cipher;
pub(crate) mod client;
pub(crate) mod connection;
mod events;

use std::fmt;
use std::sync::Arc;

use onward_core::ancestry::Ancestry;
use onward_core::codec::Message;
use onward_core::conversation::{OutsideEntry, original_of};
use onward_core::event::{ParentLink, RunPaused};
use onward_core::{CallId, Failure, Hash, Name, Payload, Record, RunKey};

#[cfg(feature = "encryption")]
pub use cipher::{Encryption, EncryptionKey};

/// The content type of a failure's texts and details, packed to be encoded together.
const FAILURE: &str = "application/vnd.onward.failure";

/// The context of a payload: a run and the payload's role in it, or a call of a run. A codec that binds payloads to their context
/// rejects them in any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadContext(String);

impl PayloadContext {
    fn of(run: &RunKey, what: &str) -> PayloadContext {
        // With lengths, so that no two contexts have the same text.
        let (namespace, id) = (run.namespace.as_str(), run.id.as_str());
        PayloadContext(format!("{}:{namespace}{}:{id}{what}", namespace.len(), id.len()))
    }

    /// Returns the context of what all runs of the run's namespace share.
    fn of_namespace(run: &RunKey, what: &str) -> PayloadContext {
        let namespace = run.namespace.as_str();
        PayloadContext(format!("{}:{namespace}|{what}", namespace.len()))
    }

    /// Returns the same context in each of several runs.
    fn of_all(runs: &[RunKey], what: &str) -> Vec<PayloadContext> {
        runs.iter().map(|run| PayloadContext::of(run, what)).collect()
    }

    /// Returns the context of the result of the child that was started at `call_id`.
    fn of_call(run: &RunKey, call_id: &CallId) -> PayloadContext {
        PayloadContext::of(run, &format!("child {call_id}"))
    }

    /// Returns a text that identifies this context and never changes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The error of encoding or decoding a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct CodecError {
    why: String,
}

impl CodecError {
    pub fn new(why: impl Into<String>) -> CodecError {
        CodecError { why: why.into() }
    }
}

impl From<String> for CodecError {
    fn from(why: String) -> CodecError {
        CodecError { why }
    }
}

/// Encodes payloads that leave the process and decodes them when they return. Called for every payload, on threads that must not
/// block: no I/O.
pub trait Codec: Send + Sync {
    /// Encodes a payload for storage and transport. `contexts` are all contexts in which it may be decoded.
    fn encode(&self, payload: &Payload, contexts: &[PayloadContext]) -> Result<Payload, CodecError>;

    /// Decodes a payload. Must pass payloads that `encode` did not make (CO2), and reject those made for other contexts.
    fn decode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, CodecError>;

    /// Masks the hash of an input that is recorded beside `encoded`, or unmasks it: applying it twice restores the hash. A codec
    /// that encrypts payloads must mask their hashes, because small payloads could be guessed from them.
    fn mask(&self, _encoded: &Payload, _home: &PayloadContext, _hash: &mut Hash) {}
}

/// The encryption boundary with its codec.
#[derive(Clone)]
pub(crate) struct EncryptionBoundary {
    codec: Arc<dyn Codec>,
}

/// The direction in which a payload crosses the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

type Passed = Result<(), CodecError>;

impl EncryptionBoundary {
    pub fn new(codec: Arc<dyn Codec>) -> EncryptionBoundary {
        EncryptionBoundary { codec }
    }

    fn payload(&self, direction: Direction, payload: &mut Payload, contexts: &[PayloadContext]) -> Passed {
        *payload = match direction {
            Direction::Out => self.codec.encode(payload, contexts)?,
            Direction::In => self.open(payload, contexts)?,
        };
        Ok(())
    }

    /// Encodes or decodes a signal's payload. Of an entry from outside only the content is encrypted: APIs need its role and its
    /// idempotency key.
    fn signal(&self, direction: Direction, name: &Name, payload: &mut Payload, contexts: &[PayloadContext]) -> Passed {
        let Some(mut entry) = OutsideEntry::of_signal(name, payload) else { return self.payload(direction, payload, contexts) };
        self.payload(direction, &mut entry.content, contexts)?;
        *payload = entry.to_payload();
        Ok(())
    }

    /// Decodes a payload that was encoded for one of these contexts; of a list, each item.
    fn open(&self, payload: &Payload, contexts: &[PayloadContext]) -> Result<Payload, CodecError> {
        let Some(items) = payload.list_items() else { return self.open_one(payload, contexts) };
        let items: Vec<Payload> = items.iter().map(|item| self.open_one(item, contexts)).collect::<Result<_, _>>()?;
        Ok(Payload::list(&items))
    }

    fn open_one(&self, payload: &Payload, contexts: &[PayloadContext]) -> Result<Payload, CodecError> {
        let (own, others) = contexts.split_first().expect("every payload has a context");
        self.codec.decode(payload, own).or_else(|error| {
            let other = others.iter().find_map(|context| self.codec.decode(payload, context).ok());
            other.ok_or(error)
        })
    }

    fn maybe(&self, direction: Direction, payload: &mut Option<Payload>, contexts: &[PayloadContext]) -> Passed {
        payload.as_mut().map_or(Ok(()), |payload| self.payload(direction, payload, contexts))
    }

    fn result(&self, direction: Direction, result: &mut Result<Payload, Failure>, contexts: &[PayloadContext]) -> Passed {
        match result {
            Ok(payload) => self.payload(direction, payload, contexts),
            Err(failure) => self.failure(direction, failure, contexts),
        }
    }

    /// Encodes or decodes a failure. A codec that encrypts packs message, causes and details into one payload; the code and the
    /// retry flag stay readable for the engine.
    fn failure(&self, direction: Direction, failure: &mut Failure, contexts: &[PayloadContext]) -> Passed {
        match direction {
            Direction::Out => {
                let whole = failure.clone().bounded();
                let packed = self.codec.encode(&Payload::binary(FAILURE, whole.to_bytes()), contexts)?;
                if let Some(key) = packed.sealed_with() {
                    failure.message = format!("encrypted with key {key}");
                    (failure.causes, failure.diagnosis) = (Vec::new(), None);
                    failure.details = Some(Box::new(packed));
                } else if let Some(details) = &mut failure.details {
                    **details = self.codec.encode(details, contexts)?;
                }
            }
            Direction::In => {
                let Some(details) = &failure.details else { return Ok(()) };
                let details = self.open(details, contexts)?;
                if details.content_type() == FAILURE {
                    let whole = Failure::decode_fields(details.data()).map_err(|error| CodecError::new(error.to_string()))?;
                    (failure.message, failure.causes, failure.details) = (whole.message, whole.causes, whole.details);
                    failure.diagnosis = whole.diagnosis;
                } else {
                    failure.details = Some(Box::new(details));
                }
            }
        }
        Ok(())
    }

    /// Encodes or decodes a text. Only codecs that encrypt replace it; others would make it longer.
    fn text(&self, direction: Direction, text: &mut String, contexts: &[PayloadContext]) -> Passed {
        match direction {
            Direction::Out => {
                let plain = Payload::json(text).map_err(|error| CodecError::new(error.to_string()))?;
                let encoded = self.codec.encode(&plain, contexts)?;
                if let Some(sealed) = encoded.to_sealed_text() {
                    *text = sealed;
                }
            }
            Direction::In => {
                let Some(sealed) = Payload::from_sealed_text(text) else { return Ok(()) };
                let plain = self.open(&sealed, contexts)?;
                *text = plain.read().map_err(|error| CodecError::new(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Encodes or decodes a pause report, which may quote values of the code.
    fn pause(&self, direction: Direction, runs: &[RunKey], pause: &mut RunPaused) -> Passed {
        let contexts = PayloadContext::of_all(runs, "pause");
        self.text(direction, &mut pause.message, &contexts)?;
        if let Some(report) = &mut pause.divergence {
            self.text(direction, &mut report.recorded, &contexts)?;
            self.text(direction, &mut report.attempted, &contexts)?;
            if let Some(nearest) = &mut report.nearest {
                self.text(direction, nearest, &contexts)?;
            }
        }
        Ok(())
    }
}

/// The runs under which payloads of a log may have been encoded: its own run, and the runs that it was copied from.
#[derive(Debug, Clone)]
pub(crate) struct PayloadRuns {
    ancestry: Ancestry,
    /// The log's own run first.
    runs: Vec<RunKey>,
}

impl PayloadRuns {
    /// Reads the candidates from the first record of the log; without it, the run itself is the only one.
    pub fn of(run: &RunKey, first: Option<&Record>) -> PayloadRuns {
        let ancestry =
            first.and_then(Record::started).map_or_else(|| Ancestry::alone(run), |started| Ancestry::new(run, started));
        PayloadRuns { runs: ancestry.runs(), ancestry }
    }

    /// Adds the runs that another log of the same run was copied from.
    pub fn add_origins(&mut self, first: &Record) {
        for origin in first.started().iter().flat_map(|started| &started.origins) {
            if !self.runs.contains(&origin.run) {
                self.runs.push(origin.run.clone());
            }
        }
    }

    /// Adds the runs that `run` was copied from. `first_of` reads the first record of a run's first log, or none for a deleted
    /// run. A later log of a fork may have payloads of its originals, such as its branch point or its first input.
    async fn add_originals<F, E>(&mut self, run: &RunKey, first_of: impl Fn(RunKey) -> F) -> Result<(), E>
    where
        F: Future<Output = Result<Option<Record>, E>>,
    {
        let mut run = run.clone();
        while let Some(first) = first_of(run.clone()).await? {
            self.add_origins(&first);
            let Some(original) = original_of(&run, &first) else { break };
            run = original;
        }
        Ok(())
    }

    fn is_alone(&self) -> bool {
        self.runs.len() == 1
    }

    fn contexts(&self, what: &str) -> Vec<PayloadContext> {
        PayloadContext::of_all(&self.runs, what)
    }

    /// Returns the candidates for one record. A commit was encoded under one run; inputs may have been encoded under others.
    fn of_record(&self, record: &Record) -> Vec<RunKey> {
        match record.commit {
            Some(commit) => vec![self.ancestry.identity(self.ancestry.at_commit(commit.n)).run.clone()],
            None => self.runs.clone(),
        }
    }
}

/// Returns the contexts in which a run's outcome may be read: by its clients, and by the call of the parent that it answers.
fn outcome_homes(run: &RunKey, parent: Option<&ParentLink>) -> Vec<PayloadContext> {
    let call = parent.map(|parent| PayloadContext::of_call(&parent.run, &parent.call_id));
    [PayloadContext::of(run, "outcome")].into_iter().chain(call).collect()
}

impl fmt::Debug for EncryptionBoundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Border")
    }
}
