//! What happens to payloads on their way out of this crate and back: compressed, encrypted, or nothing.
//!
//! Owns the border: [`link::CodedLink`] and [`door::CodedDoor`] stand between user code and whatever keeps the runs, in this process or
//! elsewhere, and every payload passes one of them. What is behind the border (runtime, store, server, console) sees only what a codec
//! made of it. `events` says which payloads a log has, once for both directions. Must never change what code compares: hashes of inputs
//! are made of plain payloads, inside.
//!
//! Invariants:
//! - CO1: `decode(encode(payload))` is the payload, in the home it was encoded for and in no other.
//! - CO2: what a codec did not make passes as it is, so that callers without the codec can be heard and logs from before can be read.

pub(crate) mod door;
#[cfg(feature = "encryption")]
mod encryption;
mod events;
pub(crate) mod link;

use std::fmt;
use std::sync::Arc;

use onward_core::codec::Message;
use onward_core::conversation::{OutsideEntry, original_of};
use onward_core::event::{ParentLink, RunPaused};
use onward_core::lineage::Lineage;
use onward_core::{Failure, Hash, Name, Payload, Place, Record, RunKey};

#[cfg(feature = "encryption")]
pub use encryption::{Encryption, EncryptionKey};

/// The content type of a failure's texts and details, packed to be encoded together.
const FAILURE: &str = "application/vnd.onward.failure";

/// Where a payload belongs: a run and what it is there, or a call of a run. A codec that binds payloads to their home refuses them
/// everywhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home(String);

impl Home {
    fn of(run: &RunKey, what: &str) -> Home {
        // Lengths first, so that no two homes share their text.
        let (namespace, id) = (run.namespace.as_str(), run.id.as_str());
        Home(format!("{}:{namespace}{}:{id}{what}", namespace.len(), id.len()))
    }

    /// The same in each of several runs.
    fn of_all(runs: &[RunKey], what: &str) -> Vec<Home> {
        runs.iter().map(|run| Home::of(run, what)).collect()
    }

    /// Where the result of the child goes that was started at `place`.
    fn of_call(run: &RunKey, place: &Place) -> Home {
        Home::of(run, &format!("child {place}"))
    }

    /// A text that names this home and no other, the same for ever.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a payload could not be encoded or decoded.
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

/// Changes payloads on their way out and back. Called for every payload, on threads that must not wait: no I/O.
pub trait Codec: Send + Sync {
    /// What is sent and stored instead. `homes` are all the places where it may be decoded.
    fn encode(&self, payload: &Payload, homes: &[Home]) -> Result<Payload, CodecError>;

    /// The payload again. Must pass what `encode` did not make (CO2), and refuse what was made for other homes.
    fn decode(&self, payload: &Payload, home: &Home) -> Result<Payload, CodecError>;

    /// Hides the hash of an input that is recorded beside `encoded`, or shows it again: the same call twice changes nothing. A codec
    /// that hides payloads has to hide their hashes, or small payloads can be guessed.
    fn mask(&self, _encoded: &Payload, _home: &Home, _hash: &mut Hash) {}
}

/// Everything that passes, with the codec it passes through.
#[derive(Clone)]
pub(crate) struct Border {
    codec: Arc<dyn Codec>,
}

/// Which way something passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

type Passed = Result<(), CodecError>;

impl Border {
    pub fn new(codec: Arc<dyn Codec>) -> Border {
        Border { codec }
    }

    fn payload(&self, way: Way, payload: &mut Payload, homes: &[Home]) -> Passed {
        *payload = match way {
            Way::Out => self.codec.encode(payload, homes)?,
            Way::In => self.open(payload, homes)?,
        };
        Ok(())
    }

    /// What a signal carries. Of an entry from outside only the content is hidden: doors say whose it is, and whether it is the same again.
    fn signal(&self, way: Way, name: &Name, payload: &mut Payload, homes: &[Home]) -> Passed {
        let Some(mut entry) = OutsideEntry::of_signal(name, payload) else { return self.payload(way, payload, homes) };
        self.payload(way, &mut entry.content, homes)?;
        *payload = entry.to_payload();
        Ok(())
    }

    /// Decodes a payload that was made for one of these homes.
    fn open(&self, payload: &Payload, homes: &[Home]) -> Result<Payload, CodecError> {
        let (own, others) = homes.split_first().expect("there is a home for everything");
        self.codec.decode(payload, own).or_else(|error| {
            let other = others.iter().find_map(|home| self.codec.decode(payload, home).ok());
            other.ok_or(error)
        })
    }

    fn maybe(&self, way: Way, payload: &mut Option<Payload>, homes: &[Home]) -> Passed {
        payload.as_mut().map_or(Ok(()), |payload| self.payload(way, payload, homes))
    }

    fn result(&self, way: Way, result: &mut Result<Payload, Failure>, homes: &[Home]) -> Passed {
        match result {
            Ok(payload) => self.payload(way, payload, homes),
            Err(failure) => self.failure(way, failure, homes),
        }
    }

    /// The message, causes and details of a failure travel as one payload where the codec hides them; its code and whether a retry may
    /// help are for the engine and stay.
    fn failure(&self, way: Way, failure: &mut Failure, homes: &[Home]) -> Passed {
        match way {
            Way::Out => {
                let whole = failure.clone().bounded();
                let packed = self.codec.encode(&Payload::binary(FAILURE, whole.to_bytes()), homes)?;
                if let Some(key) = packed.sealed_with() {
                    failure.message = format!("sealed with key {key}");
                    (failure.causes, failure.diagnosis) = (Vec::new(), None);
                    failure.details = Some(Box::new(packed));
                } else if let Some(details) = &mut failure.details {
                    **details = self.codec.encode(details, homes)?;
                }
            }
            Way::In => {
                let Some(details) = &failure.details else { return Ok(()) };
                let details = self.open(details, homes)?;
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

    /// A text is replaced only by a codec that hides payloads; others would make it longer.
    fn text(&self, way: Way, text: &mut String, homes: &[Home]) -> Passed {
        match way {
            Way::Out => {
                let plain = Payload::json(text).map_err(|error| CodecError::new(error.to_string()))?;
                let encoded = self.codec.encode(&plain, homes)?;
                if let Some(sealed) = encoded.to_sealed_text() {
                    *text = sealed;
                }
            }
            Way::In => {
                let Some(sealed) = Payload::from_sealed_text(text) else { return Ok(()) };
                let plain = self.open(&sealed, homes)?;
                *text = plain.read().map_err(|error| CodecError::new(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Why a run stands still may quote what the code had in its hands.
    fn pause(&self, way: Way, runs: &[RunKey], pause: &mut RunPaused) -> Passed {
        let homes = Home::of_all(runs, "pause");
        self.text(way, &mut pause.message, &homes)?;
        if let Some(report) = &mut pause.divergence {
            self.text(way, &mut report.recorded, &homes)?;
            self.text(way, &mut report.asked, &homes)?;
            if let Some(nearest) = &mut report.nearest {
                self.text(way, nearest, &homes)?;
            }
        }
        Ok(())
    }
}

/// Under whose names the payloads of a log were made: its run's, and those of the runs that it goes on from.
#[derive(Debug, Clone)]
pub(crate) struct Makers {
    lineage: Lineage,
    /// Whose run it is comes first.
    runs: Vec<RunKey>,
}

impl Makers {
    /// By the first record of the log; without it the run's own name alone is known.
    pub fn of(run: &RunKey, first: Option<&Record>) -> Makers {
        let lineage = first.and_then(Record::started).map_or_else(|| Lineage::alone(run), |started| Lineage::new(run, started));
        Makers { runs: lineage.runs(), lineage }
    }

    /// Adds the runs that another log of the same run goes on from.
    pub fn add_origins(&mut self, first: &Record) {
        for origin in first.started().iter().flat_map(|started| &started.origins) {
            if !self.runs.contains(&origin.run) {
                self.runs.push(origin.run.clone());
            }
        }
    }

    /// Adds the runs that `run` goes on from, by the first records of first logs, which `first_of` reads; it has none of a run that is gone.
    /// A later log of a fork may have what was made for them: where a conversation branches off, or what it began with.
    async fn add_originals<F, E>(&mut self, run: &RunKey, first_of: impl Fn(RunKey) -> F) -> Result<(), E>
    where
        F: Future<Output = Result<Option<Record>, E>>,
    {
        let mut run = run.clone();
        while let Some(first) = first_of(run.clone()).await? {
            self.add_origins(&first);
            let Some((original, _)) = original_of(&run, &first) else { break };
            run = original;
        }
        Ok(())
    }

    fn is_alone(&self) -> bool {
        self.runs.len() == 1
    }

    fn homes(&self, what: &str) -> Vec<Home> {
        Home::of_all(&self.runs, what)
    }

    /// Who may have made what `record` says. A commit was made under one name; inputs that were kept or awaited have others.
    fn of_record(&self, record: &Record) -> Vec<RunKey> {
        match record.commit {
            Some(commit) => vec![self.lineage.identity(self.lineage.at_commit(commit.n)).run.clone()],
            None => self.runs.clone(),
        }
    }
}

/// Where the outcome of a run may be read: by whoever asks for it, and by the call of the parent that it answers.
fn outcome_homes(run: &RunKey, parent: Option<&ParentLink>) -> Vec<Home> {
    let call = parent.map(|parent| Home::of_call(&parent.run, &parent.place));
    [Home::of(run, "outcome")].into_iter().chain(call).collect()
}

impl fmt::Debug for Border {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Border")
    }
}
