//! What an agent's code sees of its own conversation.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use onward_core::conversation::{Entry, SUMMARY, Summary, Walk};
use onward_core::{Hash, Index, Timestamp};

use super::library::Wish;
use super::{AgentCtx, EntryId};
use crate::Result;
use crate::host::cell::RunCell;
use crate::host::wake::held_back;

impl AgentCtx {
    /// The conversation as of here: the last summary, if there is one, and everything that it does not cover. Awaited it is the entries,
    /// oldest first.
    pub fn messages(&self) -> Messages {
        Messages { cell: self.cell.clone(), limit: None, from: None }
    }

    /// How many entries the conversation has, as of here.
    pub fn entry_count(&self) -> u64 {
        self.cell.lock().engine.depth()
    }

    /// Puts a summary behind the conversation. From here on models are told it in the place of everything up to `covers`; the entries
    /// stay, and can be read.
    ///
    /// # Errors
    /// If the summary is too large.
    pub async fn compact(&self, summary: &str, covers: EntryId) -> Result<EntryId> {
        self.append(SUMMARY, &Summary { text: summary.to_owned(), covers: covers.0 }).await
    }

    /// Goes on from an earlier entry of the conversation: what follows is a branch beside what came after it, which stays readable.
    ///
    /// # Errors
    /// If the conversation has no such entry.
    pub async fn branch(&self, from: EntryId) -> Result<()> {
        let entries = self.messages().last(usize::MAX).await?;
        let Some(position) = entries.iter().position(|entry| entry.id == from.0) else {
            let message = format!("the conversation has no entry {from}");
            return Err(crate::Failure::fatal(message).with_code("entry_not_found"));
        };
        self.cell.call("branch").engine.branch(from.0, position as u64 + 1);
        Ok(())
    }
}

/// A read of the conversation; nothing is recorded.
#[must_use = "await it"]
pub struct Messages {
    cell: Arc<RunCell>,
    limit: Option<usize>,
    /// The last entry to be read; the last one of the conversation if nothing is said.
    from: Option<Option<Hash>>,
}

impl Messages {
    /// The last `count` entries, whatever summaries cover.
    pub fn last(mut self, count: usize) -> Messages {
        self.limit = Some(count);
        self
    }

    /// What comes before this entry, which was read before: page by page with [`Messages::last`].
    pub fn before(mut self, entry: &Entry) -> Messages {
        self.from = Some(entry.parent);
        self
    }

    fn read(&self) -> Poll<Vec<Entry>> {
        let mut state = self.cell.call("messages");
        let mut own = Vec::with_capacity(state.engine.segment_entries().len());
        for entry in state.engine.segment_entries() {
            own.push(Entry {
                id: entry.id,
                parent: entry.parent,
                role: entry.role.clone(),
                content: entry.content.clone(),
                idempotency_key: entry.idempotency_key.clone(),
                generation: state.engine.generation(),
                index: Index(0),
                at: Timestamp(0),
                is_abandoned: false,
                is_aside: false,
            });
        }
        let from = self.from.unwrap_or_else(|| state.engine.leaf());
        let mut walk = match self.limit {
            Some(limit) => Walk::from(from, limit),
            None => Walk::context(from),
        };
        walk.read(&own);
        let Some(leaf) = walk.wants() else { return Poll::Ready(walk.into_entries()) };
        let wish = Wish { leaf, limit: self.limit };
        match state.earlier.iter().find(|(known, _)| *known == wish) {
            Some((_, entries)) => {
                walk.read(entries);
                Poll::Ready(walk.into_entries())
            }
            None => {
                state.wish = Some(wish);
                Poll::Pending
            }
        }
    }
}

impl IntoFuture for Messages {
    type Output = Result<Vec<Entry>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Vec<Entry>>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(poll_fn(move |cx| {
            if held_back(cx, || None) {
                return Poll::Pending;
            }
            self.read().map(Ok)
        }))
    }
}
