//! Queries: reads of the memory of a run's code that are not recorded.
//!
//! The worker that holds the run answers. If none does, a worker with code for its kind replays the log and answers.

use onward_core::{Failure, Name, Payload, RunKey};
use tokio::sync::oneshot;

use crate::api::external::refuse_external;
use crate::api::tasks::refuse_task;
use crate::schemas::depth::check_payload;
use crate::{Question, Runtime, RuntimeError};

/// Number of attempts: a query is lost if its run moves to another worker meanwhile.
const TRIES: usize = 3;

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
            Err(nobody @ RuntimeError::NoCompatibleWorker { .. }) if self.store().is_shared() => {
                self.ask_elsewhere(key, name, input).await.ok_or(nobody)
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
                let nobody = || RuntimeError::NoCompatibleWorker { kind: head.kind.clone(), version: head.version.clone() };
                let worker = self.hub().workers.knowing(&head).ok_or_else(nobody)?;
                worker.questions.put([question]);
            }
            if let Ok(answer) = answered.await {
                return Ok(answer);
            }
        }
        Err(RuntimeError::Unanswered { key: key.clone(), name })
    }
}
