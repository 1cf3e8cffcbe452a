//! Updates: a change from outside with a recorded answer.
//!
//! The update is an input, once per id; the answer is an event of a later commit. Whoever asks waits for it by reading on in the log.

use onward_core::event::UpdateReceived;
use onward_core::run::Input;
use onward_core::{Event, Failure, Index, Name, Payload, RunKey};

use crate::api::runs::check_id;
use crate::{RunWatch, Runtime, RuntimeError};

/// How many records are read at a time.
const PAGE: usize = 256;

/// An update that is recorded, and whose answer somebody may wait for.
pub struct UpdateWatch {
    runtime: Runtime,
    key: RunKey,
    update_id: String,
    watch: RunWatch,
    /// How far the log has been read.
    generation: u32,
    from: Index,
    /// The last generation that has the update: the one that took it, or one that it went along to. No other will answer it.
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
        self.send_update(key, update_id, name, payload).await?.answer().await
    }

    /// Asks the run for a change; the request is durable when this returns. The same id again is the same update.
    pub async fn send_update(
        &self,
        key: &RunKey,
        update_id: &str,
        name: Name,
        payload: Payload,
    ) -> Result<UpdateWatch, RuntimeError> {
        check_id("update id", update_id)?;
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
    /// Waits for the answer, which is durable then. May be dropped at any time and called again.
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

    /// Reads on to the end of the log, through the generations up to `current`.
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
