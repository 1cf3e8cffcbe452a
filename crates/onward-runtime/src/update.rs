//! Updates: a change from outside with a recorded answer.
//!
//! The update is an input, once per id; the answer is an event of a later commit. Whoever asks waits for it by reading on in the log.

use onward_core::event::UpdateReceived;
use onward_core::run::{Input, Once};
use onward_core::{Event, Failure, Index, Name, Payload, RunKey};

use crate::verbs::check_id;
use crate::{Runtime, RuntimeError};

/// How many records are read at a time.
const PAGE: usize = 256;

/// How far the log has been read.
struct Search<'a> {
    update_id: &'a str,
    generation: u32,
    from: Index,
    /// The generation that took the update; no other will answer it.
    taken_in: Option<u32>,
}

impl Runtime {
    /// Asks the run for a change and waits for its answer, which is durable then. The same id again waits for the same answer.
    ///
    /// May be dropped at any time: the update stays, only nobody waits for it.
    pub async fn update_run(
        &self,
        key: &RunKey,
        update_id: &str,
        name: Name,
        payload: Payload,
    ) -> Result<Result<Payload, Failure>, RuntimeError> {
        check_id("update id", update_id)?;
        let mut watch = self.watch_run(key).await?;
        let before = watch.generation();
        let event = UpdateReceived { update_id: update_id.to_owned(), name, payload };
        let once = Once { key: format!("update:{update_id}"), token: String::new() };
        let appended = self.append(key, Input { once: Some(once), ..Input::new(event) }).await?;
        let generation = if appended.repeated { 0 } else { before };
        let mut search = Search { update_id, generation, from: Index(0), taken_in: None };
        loop {
            let head = self.read_head(key).await?;
            if let Some(answer) = self.search(key, head.generation, &mut search).await? {
                return Ok(answer);
            }
            let over = head.status.is_closed() || search.taken_in.is_some_and(|taken_in| taken_in < head.generation);
            if over {
                return Err(RuntimeError::UpdateUnanswered { key: key.clone(), update_id: update_id.to_owned() });
            }
            watch.changed().await?;
        }
    }

    /// Reads on to the end of the log, through the generations up to `current`.
    async fn search(
        &self,
        key: &RunKey,
        current: u32,
        search: &mut Search<'_>,
    ) -> Result<Option<Result<Payload, Failure>>, RuntimeError> {
        loop {
            let records = self.store().read_log(key.clone(), Some(search.generation), search.from, PAGE).await?;
            let Some(last) = records.last() else {
                if search.generation >= current {
                    return Ok(None);
                }
                (search.generation, search.from) = (search.generation + 1, Index(0));
                continue;
            };
            search.from = last.next_index();
            for event in records.into_iter().flat_map(|record| record.events) {
                match event {
                    Event::UpdateReceived(event) if event.update_id == search.update_id => {
                        search.taken_in = Some(search.generation)
                    }
                    Event::UpdateAnswered(event) if event.update_id == search.update_id => return Ok(Some(event.result)),
                    _ => {}
                }
            }
        }
    }
}
