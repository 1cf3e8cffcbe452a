//! Memos: delivery of requests to their cells, and invalidation.
//!
//! `onward-core` decides what a request finds. This module reads and deletes cells, which no other code does.

use onward_core::api::{Call, InvalidateMemosReply, InvalidateMemosRequest, Target, split_call_ref};
use onward_core::event::{MemoAsked, MemoInvalidated};
use onward_core::internal::InternalRuns;
use onward_core::memo::{self, Look, MEMO_KEY_BYTES_MAX, MemoCell, MemoScope};
use onward_core::run::{Input, OutboxMessage};
use onward_core::view::outcome;
use onward_core::{Event, Index, Payload, RunHead, RunId, RunKey};
use onward_store::sync::random_u64;
use onward_store::{Delete, RunQuery, StoreError};

use crate::{Runtime, RuntimeError, TickCounts};

/// Number of times that a cell is read again because it changed meanwhile.
const ATTEMPTS: u32 = 100;

/// Number of cells in one read of an invalidation.
const PAGE: usize = 500;

/// The reason that the deletion of a cell passes to the store, which does not record it.
const REASON: &str = "the cell is not used any more";

impl Runtime {
    /// Delivers a call's request to a cell. Fails with [`StoreError::RunBusy`] if the cell has to be renewed and its last answers
    /// are not delivered yet: the request stays in the outbox.
    pub(crate) async fn carry_memo_request(&self, to: RunKey, asked: MemoAsked) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let head = self.store().read_run(to.clone(), None).await?;
            let is_done = match (memo::look(head.as_ref(), &asked, self.clock().now()), head) {
                (Look::Start, _) => {
                    let run = memo::start_cell(to.clone(), asked.clone(), random_u64());
                    accepted(self.store().start_run(run, None).await.map(drop))?
                }
                (Look::Append, _) => accepted(self.store().append_input(to.clone(), asked.clone().into_input()).await.map(drop))?,
                (Look::Hit, Some(head)) => match self.read_hit(&head, &asked).await? {
                    Some(answer) => return Box::pin(self.carry(answer)).await,
                    None => None,
                },
                (Look::Hit | Look::Renew, _) => {
                    self.delete_cell(&to).await?;
                    None
                }
            };
            if let Some(is_accepted) = is_done {
                return Ok(is_accepted);
            }
        }
        Err(StoreError::RunBusy { key: to, why: "it changes all the time".to_owned() })
    }

    /// Reads the value of a closed cell; `None` if the cell is another one by now.
    async fn read_hit(&self, head: &RunHead, asked: &MemoAsked) -> Result<Option<OutboxMessage>, StoreError> {
        let last = Index(head.next_index.0.saturating_sub(1));
        let records = match self.store().read_log(head.key.clone(), Some(head.generation), last, 1).await {
            Err(StoreError::RunNotFound { .. }) => return Ok(None),
            records => records?,
        };
        let Some(record) = records.last() else { return Ok(None) };
        let from = head.cell.as_ref().and_then(|cell| cell.value.as_ref()).map(|value| &value.from);
        let is_its = record.events.iter().any(|event| matches!(event, Event::MemoSettled(settled) if Some(&settled.by) == from));
        let output: Option<Payload> = outcome(record).filter(|_| is_its).and_then(Result::ok);
        Ok(output.and_then(|output| memo::hit(head, output, &asked.by)))
    }

    /// Deletes a closed cell, of a memo or a start policy; returns false if it is gone or open again.
    pub(crate) async fn delete_cell(&self, cell: &RunKey) -> Result<bool, StoreError> {
        match self.store().delete_runs(Delete::Run { key: cell.clone(), reason: REASON.to_owned() }).await {
            Ok(_) => Ok(true),
            Err(StoreError::RunNotFound { .. }) => Ok(false),
            Err(error @ StoreError::RunBusy { .. }) => match self.store().read_run(cell.clone(), None).await? {
                Some(head) if head.status.is_closed() => Err(error),
                _ => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// Invalidates memos: no call that begins after the reply gets a result that was recorded, or whose computation began, before
    /// the request.
    pub async fn invalidate_memos(&self, request: InvalidateMemosRequest) -> Result<InvalidateMemosReply, RuntimeError> {
        let InvalidateMemosRequest { namespace, key, is_prefix, run } = request;
        if key.len() > MEMO_KEY_BYTES_MAX || (key.is_empty() && !is_prefix) {
            return Err(RuntimeError::MemoKeyInvalid { bytes: key.len() });
        }
        let scope = if run.is_some() { MemoScope::Tree } else { MemoScope::Namespace };
        let id = run.map_or_else(|| RunId::new("-"), |run| Ok(run.id))?;
        let wanted = MemoCell::of(&id, scope, key);
        let mut invalidated = 0;
        if !is_prefix {
            let cell = RunKey::new(namespace, wanted.id());
            invalidated += u64::from(self.invalidate(&cell).await?);
            return Ok(InvalidateMemosReply { invalidated });
        }
        let is_meant =
            |memo: &MemoCell| (memo.scope, &memo.tree) == (wanted.scope, &wanted.tree) && memo.key.starts_with(&wanted.key);
        let mut query = RunQuery { namespace, internal: Some(InternalRuns::Memos), limit: PAGE, ..RunQuery::default() };
        loop {
            let page = self.store().list_runs(query.clone()).await?;
            for head in page.runs.iter().filter(|head| head.cell.as_ref().is_some_and(|cell| is_meant(&cell.memo))) {
                invalidated += u64::from(self.invalidate(&head.key).await?);
            }
            match page.next {
                None => return Ok(InvalidateMemosReply { invalidated }),
                next => query.cursor = next,
            }
        }
    }

    /// Invalidates one memo; returns false if there is none.
    async fn invalidate(&self, cell: &RunKey) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let Some(head) = self.store().read_run(cell.clone(), None).await? else { return Ok(false) };
            if !head.status.is_closed() {
                let event = MemoInvalidated { reason: String::new() };
                match self.store().append_input(cell.clone(), Input::new(event)).await {
                    Ok(_) => return Ok(true),
                    Err(StoreError::Refused(_) | StoreError::RunNotFound { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            match self.delete_cell(cell).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // Its answers to waiting calls are on their way.
                Err(StoreError::RunBusy { .. }) => drop(self.deliver_outbox(&mut TickCounts::default()).await?),
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Unavailable { why: format!("memo {} changes all the time", cell.id) })
    }
}

/// Returns whether a cell accepted a request; `None` if the cell has changed and is to be read again.
fn accepted(result: Result<(), StoreError>) -> Result<Option<bool>, StoreError> {
    use onward_core::run::Refusal;
    match result {
        Ok(()) => Ok(Some(true)),
        Err(StoreError::Refused(Refusal::Closed { .. }) | StoreError::RunNotFound { .. } | StoreError::RunExists { .. }) => {
            Ok(None)
        }
        // A repeated request (MM3).
        Err(StoreError::Refused(_)) => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

/// Refuses ids of cells in requests of callers (MM6).
pub(crate) fn refuse_memo_ids(call: &mut Call) -> Result<(), RuntimeError> {
    let new = match call {
        Call::ForkRun(fork) | Call::ResetRun(fork) => fork.id.clone(),
        _ => None,
    };
    if let Some(new) = new {
        check_run_id(&new)?;
    }
    match call.target() {
        Target::Run(run) => check_run_id(&run.id),
        Target::Namespace(_, Some(run)) => check_run_id(&run.id),
        Target::Call(_, id) => split_call_ref(id).map_or(Ok(()), |(run, ..)| check_run_id(&run)),
        Target::Namespace(_, None) | Target::Nothing => Ok(()),
    }
}

/// Refuses the id of an internal run (MM6, SR4, SS4).
pub fn check_run_id(id: &RunId) -> Result<(), RuntimeError> {
    match InternalRuns::of(id) {
        Some(_) => Err(RuntimeError::IdReserved { what: "run id", id: id.to_string() }),
        None => Ok(()),
    }
}
