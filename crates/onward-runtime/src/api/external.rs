//! Verbs for external runs: append to the log, set the state, read both.
//!
//! An external run has no worker here: it is never claimed or woken, and every other verb refuses it (X3). When an append
//! returns `Ok`, all of it is durable.

use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::run::{NewRun, Refusal};
use onward_core::{Event, Index, Payload, Record, RunHead, RunKey, Timestamp};
use onward_store::StoreError;

use crate::api::runs::check_id;
use crate::memo::check_run_id;
use crate::schemas::depth::check_payload;
use crate::{Runtime, RuntimeError};

/// Page size of a search for an event: between two appends with events there are few without.
const PROBE: usize = 16;

/// Size below which a part of a log is read instead of searched.
const NEAR: u64 = 64;

/// An append to the log of an external run.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendExternal {
    /// The index of the first event; the append is refused if the log ends elsewhere. Required if there are events.
    pub expected: Option<Index>,
    pub events: Vec<Payload>,
    /// The new state of the run.
    pub state: Option<ExternalState>,
    /// Idempotency key: a repeat with the same id is the same append.
    pub append_id: Option<String>,
}

/// The receipt of an append that was accepted now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedExternal {
    /// The end of the log after this append.
    pub next_index: Index,
    pub at: Timestamp,
    pub repeated: bool,
    /// True if this append created the run.
    pub created: bool,
}

/// The current view of an external run.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalRun {
    pub head: RunHead,
    /// The state that the engine set last; `None` if it has only appended.
    pub state: Option<ExternalState>,
}

/// The position of an event of an external run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalPosition {
    /// The index in the run's log where reading starts.
    pub at: Index,
    /// The end of the engine's log at that time.
    pub next_index: Index,
}

impl ExternalRun {
    /// Returns the index of the engine's next event.
    pub fn next_index(&self) -> Index {
        self.head.external.unwrap_or_default().next_index
    }
}

impl Runtime {
    /// Appends events, sets the state, or both, in one write. Creates the run if it does not exist.
    ///
    /// Fails with `log_conflict` and the current end of the log if another append came first (X1).
    pub async fn append_external(&self, key: &RunKey, append: AppendExternal) -> Result<AppendedExternal, RuntimeError> {
        check_run_id(&key.id)?;
        let AppendExternal { expected, events, state, append_id } = append;
        append_id.as_deref().map_or(Ok(()), |id| check_id("append id", id))?;
        events.iter().chain(state.iter().map(|state| &state.data)).try_for_each(check_payload)?;
        let run = NewRun::external(key.clone(), ExternalAppended { expected, events, state }, append_id.as_deref());
        let started = self.store().start_run(run, None).await?;
        let appended = started.signal.expect("an append to an external run has a receipt");
        let now = started.head.external.unwrap_or_default().next_index;
        // Later appends may follow the repeated one: its first receipt is in the log.
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
            // The run was deleted and created again during the read: read it again.
        }
    }

    /// Deletes an external run, open or closed, with its log.
    pub async fn delete_external(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        self.external_head(key).await?;
        self.delete_any(key, reason).await
    }

    /// Finds the index from which a read returns the engine's event `from` and all later ones.
    pub async fn find_external(&self, key: &RunKey, from: Index) -> Result<ExternalPosition, RuntimeError> {
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
        Ok(ExternalPosition { at: Index(low), next_index: head.external.unwrap_or_default().next_index })
    }

    async fn external_head(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let head = self.read_head(key).await?;
        match head.external {
            Some(_) => Ok(head),
            None => Err(StoreError::from(Refusal::NotExternal { key: key.clone() }).into()),
        }
    }
}

/// Returns the append of an external engine in the record, if it is one.
fn appended(record: &Record) -> Option<&ExternalAppended> {
    match record.events.first() {
        Some(Event::ExternalAppended(event)) => Some(event),
        _ => None,
    }
}

/// Fails for an external run, which has no code here.
pub(crate) fn refuse_external(head: &RunHead) -> Result<(), RuntimeError> {
    match head.external {
        Some(_) => Err(StoreError::from(Refusal::External { key: head.key.clone() }).into()),
        None => Ok(()),
    }
}
