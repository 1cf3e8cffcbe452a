//! Queries, which read the memory of a run's code without recording, and updates, which change it with a recorded result.
//!
//! The worker that holds the run answers a query. If none does, a worker with code for its kind replays the log and answers. An
//! update is an input, accepted once per id; its result is an event of a later commit. The caller finds it by reading the log.

use onward_core::event::UpdateReceived;
use onward_core::run::Input;
use onward_core::{Event, Failure, Index, Name, Payload, RunKey};
use tokio::sync::oneshot;

use crate::api::external::refuse_external;
use crate::api::runs::check_id;
use crate::api::tasks::refuse_task;
use crate::schemas::depth::check_payload;
use crate::{Question, RunWatch, Runtime, RuntimeError};

/// Number of attempts: a query is lost if its run moves to another worker meanwhile.
const TRIES: usize = 3;

/// Page size of log reads, in records.
const PAGE: usize = 256;

/// A recorded update whose result can be awaited.
pub struct UpdateWatch {
    runtime: Runtime,
    key: RunKey,
    update_id: String,
    watch: RunWatch,
    /// The position up to which the log was read.
    generation: u32,
    from: Index,
    /// The last generation that has the update: the one that received it, or one that inherited it. No other one answers it.
    taken_in: Option<u32>,
}

impl Runtime {
    /// Queries the run's code, which may be in another process that shares the store. Returns `None` if the code has no such
    /// query.
    pub async fn query_run(
        &self,
        key: &RunKey,
        name: Name,
        input: Payload,
    ) -> Result<Option<Result<Payload, Failure>>, RuntimeError> {
        check_payload(&input)?;
        match self.query_here(key, name.clone(), input.clone()).await {
            Err(unserved @ RuntimeError::NoCompatibleWorker { .. }) if self.store().is_shared() => {
                self.query_other_servers(key, name, input).await.ok_or(unserved)
            }
            answer => answer,
        }
    }

    /// Returns true if a worker of this process could answer for the run.
    pub(crate) async fn has_code_for(&self, key: &RunKey) -> bool {
        let Ok(head) = self.read_head(key).await else { return false };
        self.hub().inboxes.claim_of(key).is_some() || self.hub().workers.knowing(&head).is_some()
    }

    /// Queries the run's code at the workers of this runtime.
    pub(crate) async fn query_here(
        &self,
        key: &RunKey,
        name: Name,
        input: Payload,
    ) -> Result<Option<Result<Payload, Failure>>, RuntimeError> {
        for _ in 0..TRIES {
            let (answer, answered) = oneshot::channel();
            let question = Question { run: key.clone(), name: name.clone(), input: input.clone(), answer };
            if let Err(question) = self.hub().inboxes.ask(question) {
                let head = self.read_head(key).await?;
                refuse_external(&head)?;
                refuse_task(&head)?;
                let unserved = || RuntimeError::NoCompatibleWorker { kind: head.kind.clone(), version: head.version.clone() };
                let worker = self.hub().workers.knowing(&head).ok_or_else(unserved)?;
                worker.questions.put([question]);
            }
            if let Ok(answer) = answered.await {
                return Ok(answer);
            }
        }
        Err(RuntimeError::Unanswered { key: key.clone(), name })
    }

    /// Sends an update and waits for its result, which is durable then. A repeat with the same id waits for the same result.
    ///
    /// Cancel-safe: the update stays recorded.
    pub async fn update_run(
        &self,
        key: &RunKey,
        update_id: &str,
        name: Name,
        payload: Payload,
    ) -> Result<Result<Payload, Failure>, RuntimeError> {
        self.send_update(key, update_id, name, payload).await?.answer().await
    }

    /// Sends an update; it is durable when this returns. A repeat with the same id is the same update.
    pub async fn send_update(
        &self,
        key: &RunKey,
        update_id: &str,
        name: Name,
        payload: Payload,
    ) -> Result<UpdateWatch, RuntimeError> {
        check_id("update id", update_id)?;
        self.check_update(key, &name, &payload).await?;
        let watch = self.watch_run(key).await?;
        let before = watch.generation();
        let event = UpdateReceived { update_id: update_id.to_owned(), name, payload };
        let appended = self.append(key, Input::update(event)).await?;
        let generation = if appended.repeated { 0 } else { before };
        let (runtime, key, update_id) = (self.clone(), key.clone(), update_id.to_owned());
        Ok(UpdateWatch { runtime, key, update_id, watch, generation, from: Index(0), taken_in: None })
    }
}

impl UpdateWatch {
    /// Waits for the result, which is durable then. Cancel-safe; may be called again.
    pub async fn answer(&mut self) -> Result<Result<Payload, Failure>, RuntimeError> {
        loop {
            let head = self.runtime.read_head(&self.key).await?;
            if let Some(answer) = self.search(head.generation).await? {
                return Ok(answer);
            }
            let over = head.status.is_closed() || self.taken_in.is_some_and(|taken_in| taken_in < head.generation);
            if over {
                let (key, update_id) = (self.key.clone(), self.update_id.clone());
                return Err(RuntimeError::UpdateUnanswered { key, update_id });
            }
            self.watch.changed().await?;
        }
    }

    /// Reads to the end of the log, through the generations up to `current`.
    async fn search(&mut self, current: u32) -> Result<Option<Result<Payload, Failure>>, RuntimeError> {
        loop {
            let records = self.runtime.read_log(&self.key, Some(self.generation), self.from, PAGE).await?;
            let Some(last) = records.last() else {
                if self.generation >= current {
                    return Ok(None);
                }
                (self.generation, self.from) = (self.generation + 1, Index(0));
                continue;
            };
            let next = last.next_index();
            for event in records.into_iter().flat_map(|record| record.events) {
                match event {
                    Event::RunStarted(started) if started.updates.iter().any(|update| update.update_id == self.update_id) => {
                        self.taken_in = Some(self.generation);
                    }
                    Event::UpdateReceived(event) if event.update_id == self.update_id => self.taken_in = Some(self.generation),
                    Event::UpdateAnswered(event) if event.update_id == self.update_id => return Ok(Some(event.result)),
                    _ => {}
                }
            }
            self.from = next;
        }
    }
}
