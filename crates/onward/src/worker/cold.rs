//! Answers a question about a run that is not in memory, by replaying its log. The run itself does not notice.

use onward_core::{Failure, Index, Payload, Record};
use onward_runtime::Question;

use super::{Worker, read_all};
use crate::replay::replay_log;

pub(super) async fn answer(worker: &Worker, question: Question) {
    let Question { run, name, input, answer } = question;
    // A log that cannot be read now is no answer: dropped, the question is asked once more.
    let Ok(records) = read_all(&*worker.link, &run, None, Index(0)).await else { return };
    let Some(started) = records.first().and_then(Record::started) else { return };
    let Some(handler) = worker.registry.handler(&started.kind, started.version.as_ref()) else { return };
    let shared = worker.shared_with(&run, &records).await;
    let said: Option<Result<Payload, Failure>> = match replay_log(&run, &handler, &records, &shared, false) {
        Ok(code) => code.query(&name, input),
        Err(fault) => {
            let message = fault.into_pause().map_or("the run cannot be replayed".to_owned(), |pause| pause.message);
            Some(Err(Failure::fatal(message)))
        }
    };
    drop(answer.send(said)); // who asked may have gone
}
