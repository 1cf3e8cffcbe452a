//! What an outside engine may ask: to append to its log, to set its run's state, to read both.
//!
//! Such a run has no worker here: nothing is claimed, nothing is woken, and every other verb on it is refused (X3). What is durable when
//! an append returns `Ok` is all of it.

use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::run::{NewRun, Refusal};
use onward_core::{Event, Index, Payload, Record, RunHead, RunKey, Timestamp};
use onward_store::StoreError;

use crate::api::runs::check_id;
use crate::schemas::depth::check_payload;
use crate::{Runtime, RuntimeError};

/// How many records a look for a place reads at a time: between two appends with events there are few without.
const PROBE: usize = 16;

/// How much of a log is read through rather than searched.
const NEAR: u64 = 64;

/// An append to the log of an outside engine.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendExternal {
    /// The index of the first event; nothing is taken when the log goes on elsewhere. Needed where there are events.
    pub expected: Option<Index>,
    pub events: Vec<Payload>,
    /// What the engine says of its run from now on.
    pub state: Option<ExternalState>,
    /// The same id again is the same append.
    pub append_id: Option<String>,
}

/// The answer to an append that was taken, now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedExternal {
    /// Where the log went on after it.
    pub next_index: Index,
    pub at: Timestamp,
    pub repeated: bool,
    /// The run was made by it.
    pub created: bool,
}

/// A run of an outside engine as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalRun {
    pub head: RunHead,
    /// What its engine said last; `None` where it has only appended.
    pub state: Option<ExternalState>,
}

/// Where an event of an outside engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalPlace {
    /// Where in the run's log to begin to read.
    pub at: Index,
    /// Where the engine's log goes on, as of then.
    pub next_index: Index,
}

impl ExternalRun {
    /// The index of the engine's next event.
    pub fn next_index(&self) -> Index {
        self.head.external.unwrap_or_default().next_index
    }
}

impl Runtime {
    /// Appends events, sets the state, or both, in one write; a run that is not there is made by it.
    ///
    /// Fails with `log_conflict` when somebody else has appended since, and says where the log goes on (X1).
    pub async fn append_external(&self, key: &RunKey, append: AppendExternal) -> Result<AppendedExternal, RuntimeError> {
        let AppendExternal { expected, events, state, append_id } = append;
        append_id.as_deref().map_or(Ok(()), |id| check_id("append id", id))?;
        events.iter().chain(state.iter().map(|state| &state.data)).try_for_each(check_payload)?;
        let run = NewRun::external(key.clone(), ExternalAppended { expected, events, state }, append_id.as_deref());
        let started = self.store().start_run(run, None).await?;
        let appended = started.signal.expect("an append to an external run is answered");
        let now = started.head.external.unwrap_or_default().next_index;
        // Others may have appended since the first time: its first answer is in the log.
        let first = if appended.repeated { self.appended_at(key, appended.index).await? } else { None };
        let next_index = first.unwrap_or(now);
        Ok(AppendedExternal { next_index, at: appended.at, repeated: appended.repeated, created: started.created })
    }

    async fn appended_at(&self, key: &RunKey, index: Index) -> Result<Option<Index>, RuntimeError> {
        let records = self.store().read_log(key.clone(), None, index, 1).await?;
        Ok(records.first().and_then(appended).and_then(ExternalAppended::next_index))
    }

    pub async fn read_external(&self, key: &RunKey) -> Result<ExternalRun, RuntimeError> {
        loop {
            let head = self.external_head(key).await?;
            let Some(at) = head.external.and_then(|external| external.state_at) else {
                return Ok(ExternalRun { head, state: None });
            };
            let records = self.store().read_log(key.clone(), None, at, 1).await?;
            if let Some(state) = records.first().and_then(appended).and_then(|event| event.state.clone()) {
                return Ok(ExternalRun { head, state: Some(state) });
            }
            // The run was deleted and made anew while it was read: begin again.
        }
    }

    /// Deletes the run of an outside engine, open or closed, with everything it left.
    pub async fn delete_external(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        self.external_head(key).await?;
        self.delete_any(key, reason).await
    }

    /// Where to begin to read in order to find the engine's event `from` and all behind it.
    pub async fn find_external(&self, key: &RunKey, from: Index) -> Result<ExternalPlace, RuntimeError> {
        let head = self.external_head(key).await?;
        let (mut low, mut high) = (0, head.next_index.0);
        while from > Index(0) && high - low > NEAR {
            let middle = low + (high - low) / 2;
            let records = self.store().read_log(key.clone(), None, Index(middle), PROBE).await?;
            let placed = records.iter().find_map(|record| Some((record.index, appended(record)?.expected?)));
            match placed {
                Some((index, first)) if first <= from => low = index.0,
                Some(_) => high = middle,
                None => break,
            }
        }
        Ok(ExternalPlace { at: Index(low), next_index: head.external.unwrap_or_default().next_index })
    }

    async fn external_head(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let head = self.read_head(key).await?;
        match head.external {
            Some(_) => Ok(head),
            None => Err(StoreError::from(Refusal::NotExternal { key: key.clone() }).into()),
        }
    }
}

/// What an outside engine appended, where a record is that.
fn appended(record: &Record) -> Option<&ExternalAppended> {
    match record.events.first() {
        Some(Event::ExternalAppended(event)) => Some(event),
        _ => None,
    }
}

/// Refuses what needs code of ours.
pub(crate) fn refuse_external(head: &RunHead) -> Result<(), RuntimeError> {
    match head.external {
        Some(_) => Err(StoreError::from(Refusal::External { key: head.key.clone() }).into()),
        None => Ok(()),
    }
}
