//! The conversation of an agent, read and extended from outside.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use onward_core::api::{
    AppendEntry, AppendEntryRequest, Appended, AppendedEntry, BranchEntry, BranchRequest, BranchRun, EntriesRequest, EntryPage,
    EntryQuery,
};
use onward_core::conversation::{EntryCursor, MESSAGE};
use onward_core::{Hash, Name, Payload};
use onward_runtime::Runtime;
use serde::Serialize;

use super::RunHandle;
use crate::{Error, Result};

impl<O> RunHandle<O> {
    /// Reads the conversation of an agent backwards. Awaiting the builder reads its last page; [`Entries::pages`] reads on.
    pub fn entries(&self) -> Entries {
        Entries { run: self.untyped(), query: EntryQuery::default() }
    }
}

impl<O> RunHandle<O> {
    /// Appends an entry to the conversation of an agent. The agent takes it over when its next turn begins, before any message.
    /// An agent that waits for a message keeps waiting; [`RunHandle::message`] wakes it.
    pub async fn append(&self, role: &str, content: &(impl Serialize + ?Sized)) -> Result<AppendedEntry, Error> {
        self.append_under(None, role, content).await
    }

    /// Appends an entry like [`RunHandle::append`], once per key: a repeat returns the first entry with `already_existed`. The
    /// same key with another role or content fails with `entry_key_taken`.
    pub async fn append_once(&self, key: &str, role: &str, content: &(impl Serialize + ?Sized)) -> Result<AppendedEntry, Error> {
        self.append_under(Some(key.to_owned()), role, content).await
    }

    async fn append_under(
        &self,
        idempotency_key: Option<String>,
        role: &str,
        content: &(impl Serialize + ?Sized),
    ) -> Result<AppendedEntry, Error> {
        let content = entry(content)?;
        let append = AppendEntry { role: Name::new(role)?, content, idempotency_key };
        let request = AppendEntryRequest { run: self.key().clone(), entry: append, is_looked_up: false };
        self.ask(self.client().append_entry(request)).await
    }

    /// Continues the conversation from an earlier entry, or from its beginning with `None`. Later entries are abandoned and stay
    /// readable by their leaf. Awaiting the builder sends the request. To edit an entry, branch from its parent:
    /// `run.branch(entry.parent).say("user", "another question")`.
    pub fn branch(&self, from: Option<Hash>) -> Branch {
        let branch = BranchRun { from: from.map(EntryCursor::from), entry: None, idempotency_key: None };
        Branch { run: self.untyped(), branch: Ok(branch) }
    }

    /// Sends a message to an agent: the signal `message`, with a text or any other value that the agent reads. An empty text is
    /// rejected.
    pub async fn message(&self, content: &(impl Serialize + ?Sized)) -> Result<Appended, Error> {
        check_message(content)?;
        self.signal(MESSAGE, content).await
    }

    /// Sends a message like [`RunHandle::message`], once per id.
    pub async fn message_once(&self, content: &(impl Serialize + ?Sized), id: &str) -> Result<Appended, Error> {
        check_message(content)?;
        self.signal_once(MESSAGE, content, id).await
    }
}

fn check_message(content: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    let content = Payload::json(content).map_err(|why| Error::Convert { what: "the message", why })?;
    Ok(Runtime::check_message(&content)?)
}

/// Encodes and validates an entry. Validated here, because a codec may encrypt it before it reaches the server.
fn entry(content: &(impl Serialize + ?Sized)) -> Result<Payload, Error> {
    let content = Payload::json(content).map_err(|why| Error::Convert { what: "the entry", why })?;
    Runtime::check_entry(&content)?;
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
    pub fn say(self, role: &str, content: &(impl Serialize + ?Sized)) -> Branch {
        let entry = Name::new(role).map_err(Error::from).and_then(|role| Ok(BranchEntry { role, content: entry(content)? }));
        let branch = self.branch.and_then(|branch| Ok(BranchRun { entry: Some(entry?), ..branch }));
        Branch { branch, ..self }
    }

    /// Sets an idempotency key: a repeat is the same branch, and a different request with that key fails with `id_taken`.
    pub fn once(self, key: &str) -> Branch {
        let branch = self.branch.map(|branch| BranchRun { idempotency_key: Some(key.to_owned()), ..branch });
        Branch { branch, ..self }
    }
}

impl IntoFuture for Branch {
    type Output = Result<Appended, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let request = BranchRequest { run: self.run.key().clone(), branch: self.branch? };
            self.run.ask(self.run.client().branch_run(request)).await
        })
    }
}

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

    async fn read(self) -> Result<EntryPage, Error> {
        let request = EntriesRequest { run: self.run.key().clone(), query: self.query };
        self.run.ask(self.run.client().read_entries(request)).await
    }
}

impl IntoFuture for Entries {
    type Output = Result<EntryPage, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

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
