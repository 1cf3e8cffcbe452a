//! Queries of runs that are not in memory, answered by replaying the log. The run is not affected.

use std::cell::RefCell;

use onward_core::log::prelude_of;
use onward_core::{Failure, Index, Record};
use onward_runtime::Question;

use super::{Worker, read_all};
use crate::agent::conversation_cache::{CompletedRead, ConversationRead};
use crate::host::replay::{Logs, replay_log};

pub(super) async fn answer(worker: &Worker, question: Question) {
    let Question { run, name, input, answer } = question;
    // A log that cannot be read now is no answer: the dropped query is retried.
    let Ok(records) = read_all(&*worker.connection, &run, None, Index(0)).await else { return };
    let Some(started) = records.first().and_then(Record::started) else { return };
    let Some(handler) = worker.registry.handler(&started.kind, started.version.as_ref()) else { return };
    let shared = worker.shared_with(&run, &records).await;
    let prelude = match prelude_of(&records) {
        Some(generation) => worker.library.prelude(&run, generation).await,
        None => Ok(Vec::new()),
    };
    let Ok(prelude) = prelude else { return };
    let mut known: Vec<CompletedRead> = Vec::new();
    let replayed = loop {
        let (replayed, wanted) = {
            let wanted = RefCell::new(None);
            let earlier = |wish: &ConversationRead| {
                let found = known.iter().find(|(known, _)| known == wish).map(|(_, entries)| entries.clone());
                wanted.replace(found.is_none().then(|| wish.clone()));
                found
            };
            let logs = Logs { prelude: &prelude, records: &records, earlier: &earlier };
            (replay_log(&run, &handler, logs, &shared, false), wanted.take())
        };
        let Some(wish) = wanted else { break replayed };
        let Ok(found) = worker.library.read(&run, started.generation, wish.walk()).await else { return };
        known.push((wish, found.into_path().into()));
    };
    match replayed {
        Ok(code) => code.query(name, input, answer),
        Err(fault) => {
            let message = fault.into_pause().map_or("the run cannot be replayed".to_owned(), |pause| pause.message);
            drop(answer.send(Some(Err(Failure::fatal(message))))); // the caller may have gone
        }
    }
}
