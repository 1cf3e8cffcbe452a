//! Reads of the conversation by an agent's code.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use onward_core::conversation::{Entry, SUMMARY, Summary, Walk};
use onward_core::{ErrorCode, Hash, Index, Timestamp};

use super::conversation_cache::ConversationRead;
use super::{AgentCtx, EntryId};
use crate::Result;
use crate::host::cell::RunCell;
use crate::host::wake::held_back;

impl AgentCtx {
    /// Reads the conversation up to here: the last summary, if there is one, and everything that it does not cover. Awaiting it
    /// returns the entries, oldest first.
    pub fn messages(&self) -> Messages {
        Messages { cell: self.cell.clone(), limit: None, from: None }
    }

    /// Returns the number of entries of the conversation up to here.
    pub fn entry_count(&self) -> u64 {
        self.cell.lock().engine.depth()
    }

    /// Appends a summary to the conversation. From here on, models receive it in place of everything up to `covers`. The entries
    /// stay readable.
    ///
    /// # Errors
    /// Fails if the summary is too large.
    pub async fn compact(&self, summary: &str, covers: EntryId) -> Result<EntryId> {
        self.append(SUMMARY, &Summary { text: summary.to_owned(), covers: covers.0 }).await
    }

    /// Continues from an earlier entry of the conversation, as a new branch. The entries after it stay readable.
    ///
    /// # Errors
    /// Fails if the conversation has no such entry.
    pub async fn branch(&self, from: EntryId) -> Result<()> {
        let entries = self.messages().last(usize::MAX).await?;
        let Some(position) = entries.iter().position(|entry| entry.id == from.0) else {
            let message = format!("the conversation has no entry {from}");
            return Err(crate::Failure::fatal(message).with_code(ErrorCode::EntryNotFound));
        };
        self.cell.call("branch").engine.branch(Some(from.0), position as u64 + 1);
        Ok(())
    }
}

/// A read of the conversation; nothing is recorded.
#[must_use = "await it"]
pub struct Messages {
    cell: Arc<RunCell>,
    limit: Option<usize>,
    /// The last entry to read; default the last one of the conversation.
    from: Option<Option<Hash>>,
}

impl Messages {
    /// Reads the last `count` entries, also those that a summary covers.
    pub fn last(mut self, count: usize) -> Messages {
        self.limit = Some(count);
        self
    }

    /// Reads the entries before this one, for paging with [`Messages::last`].
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
        let wish = ConversationRead { leaf, limit: self.limit };
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
