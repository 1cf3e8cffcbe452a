//! Asking a run's code something without recording it.
//!
//! The worker that has the run in memory answers; if none has, one that knows its kind replays the log and answers from there.

use onward_core::{Failure, Name, Payload, RunKey};
use tokio::sync::oneshot;

use crate::external::refuse_external;
use crate::{Question, Runtime, RuntimeError};

/// How often a question that nobody kept is asked again: the run moved while it was asked.
const TRIES: usize = 3;

impl Runtime {
    /// Asks the run's code; `None` when it knows no such query.
    pub async fn query_run(
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
