//! The conversation of an agent, read and extended from outside.

use onward_core::api::{Appended, BranchEntry, BranchRequest, BranchRun, EntriesRequest, EntryPage, EntryQuery};
use onward_core::conversation::{EntryCursor, MESSAGE};
use onward_core::{Hash, Name, Payload};
use onward_runtime::{Runtime, RuntimeError};
use serde::Serialize;

use super::{Append, RunHandle, SendSignal};
use crate::{Error, Result};

impl<O> RunHandle<O> {
    /// Reads the conversation of an agent backwards. Awaiting the builder reads its last page; [`Entries::pages`] reads on.
    pub fn entries(&self) -> Entries {
        Entries { run: self.untyped(), query: EntryQuery::default() }
    }

    /// Appends an entry to the conversation of an agent. The agent takes it over when its next turn begins, before any message.
    /// An agent that waits for a message keeps waiting; [`RunHandle::message`] wakes it. Awaiting the builder appends it;
    /// [`Append::id`] makes a repeat the same entry.
    pub fn append(&self, role: &str, content: &(impl Serialize + ?Sized)) -> Append {
        Append::new(self.untyped(), role, checked("the entry", content, Runtime::check_entry))
    }

    /// Continues the conversation from an earlier entry, or from its beginning with `None`. Later entries are abandoned and stay
    /// readable by their leaf. Awaiting the builder sends the request. To edit an entry, branch from its parent:
    /// `run.branch(entry.parent).entry("user", "another question")`.
    pub fn branch(&self, from: Option<Hash>) -> Branch {
        let branch = BranchRun { from: from.map(EntryCursor::from), entry: None, idempotency_key: None };
        Branch { run: self.untyped(), branch: Ok(branch) }
    }

    /// Sends a message to an agent: the signal `message`, with a text or any other value that the agent reads. An empty text is
    /// rejected. Awaiting the builder sends it; [`SendSignal::id`] makes a repeat the same message.
    pub fn message(&self, content: &(impl Serialize + ?Sized)) -> SendSignal {
        SendSignal::new(self.untyped(), MESSAGE, checked("the message", content, Runtime::check_message))
    }
}

/// Encodes and validates a message or entry. Validated here, because a codec may encrypt it before it reaches the server.
fn checked(
    what: &'static str,
    content: &(impl Serialize + ?Sized),
    check: fn(&Payload) -> Result<(), RuntimeError>,
) -> Result<Payload, Error> {
    let content = Payload::json(content).map_err(|why| Error::Convert { what, why })?;
    check(&content)?;
    Ok(content)
}

/// See [`RunHandle::branch`].
#[must_use = "await it to request the branch"]
pub struct Branch {
    run: RunHandle<()>,
    branch: Result<BranchRun, Error>,
}

impl Branch {
    /// Adds an entry at the branch point; the agent's next turn begins with it.
    pub fn entry(self, role: &str, content: &(impl Serialize + ?Sized)) -> Branch {
        let entry = Name::new(role)
            .map_err(Error::from)
            .and_then(|role| Ok(BranchEntry { role, content: checked("the entry", content, Runtime::check_entry)? }));
        let branch = self.branch.and_then(|branch| Ok(BranchRun { entry: Some(entry?), ..branch }));
        Branch { branch, ..self }
    }

    /// Sets an id under which the branch is made once: a different request with that id fails with `id_taken`.
    pub fn id(self, id: impl Into<String>) -> Branch {
        let branch = self.branch.map(|branch| BranchRun { idempotency_key: Some(id.into()), ..branch });
        Branch { branch, ..self }
    }

    async fn send(self) -> Result<Appended, Error> {
        let request = BranchRequest { run: self.run.key.clone(), branch: self.branch? };
        self.run.onward.call(self.run.client().branch_run(request)).await
    }
}

awaitable!(Branch => Appended);

/// A query of a conversation; see [`RunHandle::entries`].
#[must_use = "await it to read a page"]
pub struct Entries {
    run: RunHandle<()>,
    query: EntryQuery,
}

impl Entries {
    /// Sets the page size, 1 to 1,000 entries; default 100.
    pub fn limit(mut self, limit: usize) -> Entries {
        self.query.limit = limit;
        self
    }

    /// Selects the conversation that ends in this entry, also an abandoned one; default the current conversation.
    pub fn leaf(mut self, leaf: impl Into<EntryCursor>) -> Entries {
        self.query.leaf = Some(leaf.into());
        self
    }

    /// Selects the page before one that was read, by that page's `before`.
    pub fn before(mut self, before: impl Into<EntryCursor>) -> Entries {
        self.query.before = Some(before.into());
        self
    }

    /// Reads page by page, from the end of the conversation to its beginning.
    pub fn pages(self) -> EntryPages {
        EntryPages { run: self.run, next: Some(self.query) }
    }

    async fn send(self) -> Result<EntryPage, Error> {
        let request = EntriesRequest { run: self.run.key.clone(), query: self.query };
        self.run.onward.call(self.run.client().read_entries(request)).await
    }
}

awaitable!(Entries => EntryPage);

/// The pages of a conversation; see [`Entries::pages`].
pub struct EntryPages {
    run: RunHandle<()>,
    next: Option<EntryQuery>,
}

impl EntryPages {
    /// Returns the next page backwards, beginning with the last one; `None` after the page with the first entry.
    pub async fn next(&mut self) -> Result<Option<EntryPage>, Error> {
        let Some(query) = self.next else { return Ok(None) };
        let page = Entries { run: self.run.clone(), query }.await?;
        self.next = page.before.map(|before| EntryQuery { before: Some(before), ..query });
        Ok(Some(page))
    }
}
