//! Asking a run's code something without recording it.
//!
//! The worker that has the run in memory answers; if none has, one that knows its kind replays the log and answers from there.

use onward_core::{Failure, Name, Payload, RunKey};
use tokio::sync::oneshot;

use crate::api::external::refuse_external;
use crate::api::tasks::refuse_task;
use crate::schemas::depth::check_payload;
use crate::{Question, Runtime, RuntimeError};

/// How often a question that nobody kept is asked again: the run moved while it was asked.
const TRIES: usize = 3;

impl Runtime {
    /// Asks the run's code, which may be at a worker of another process that shares the store; `None` when it knows no such query.
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

    /// Whether a worker here could answer for the run.
    pub(crate) async fn has_code_for(&self, key: &RunKey) -> bool {
        let Ok(head) = self.read_head(key).await else { return false };
        self.hub().inboxes.claim_of(key).is_some() || self.hub().workers.knowing(&head).is_some()
    }

    /// Asks the run's code at the workers of this runtime.
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
