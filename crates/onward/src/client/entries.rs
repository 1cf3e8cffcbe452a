//! The conversation of an agent, from outside.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use onward_core::conversation::{EntryCursor, MESSAGE};
use onward_core::{Hash, Name, Payload};
use onward_runtime::{AppendEntry, AppendedEntry, BranchEntry, BranchRun, EntryPage, EntryQuery, Runtime};
use onward_store::Appended;
use serde::Serialize;

use super::RunHandle;
use crate::{Error, Result};

impl<O> RunHandle<O> {
    /// The conversation of an agent, read backwards. Awaiting the builder reads its last page; [`Entries::pages`] reads on.
    pub fn entries(&self) -> Entries {
        Entries { run: self.untyped(), query: EntryQuery::default() }
    }
}

impl<O> RunHandle<O> {
    /// Puts an entry into the conversation of an agent, which takes it in when its next turn begins, before anything else. It wakes nobody
    /// who waits for a message: [`RunHandle::message`] does.
    pub async fn append(&self, role: &str, content: &(impl Serialize + ?Sized)) -> Result<AppendedEntry, Error> {
        self.append_under(None, role, content).await
    }

    /// Like [`RunHandle::append`], once: the same key again is the same entry, and `already_existed` says so. The same key with another role
    /// or content is `entry_key_taken`.
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
        self.ask(self.door().append_entry(self.key().clone(), append)).await
    }

    /// Goes on from an earlier entry of the conversation, or from its beginning: what follows it is left, and stays readable by its leaf.
    /// Awaiting the builder asks for it. An edit is a branch from the entry's parent that says something else:
    /// `run.branch(entry.parent).say("user", "another question")`.
    pub fn branch(&self, from: Option<Hash>) -> Branch {
        let branch = BranchRun { from: from.map(EntryCursor::from), entry: None, idempotency_key: None };
        Branch { run: self.untyped(), branch: Ok(branch) }
    }

    /// Says something to an agent: the signal `message`. A text, or anything else that the agent reads; a text that is empty is refused.
    pub async fn message(&self, content: &(impl Serialize + ?Sized)) -> Result<Appended, Error> {
        check_message(content)?;
        self.signal(MESSAGE, content).await
    }

    /// Like [`RunHandle::message`], once: the same id again is the same message.
    pub async fn message_once(&self, content: &(impl Serialize + ?Sized), id: &str) -> Result<Appended, Error> {
        check_message(content)?;
        self.signal_once(MESSAGE, content, id).await
    }
}

fn check_message(content: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    let content = Payload::json(content).map_err(|why| Error::Convert { what: "the message", why })?;
    Ok(Runtime::check_message(&content)?)
}

/// Looked at here, because a codec may seal it on its way.
fn entry(content: &(impl Serialize + ?Sized)) -> Result<Payload, Error> {
    let content = Payload::json(content).map_err(|why| Error::Convert { what: "the entry", why })?;
    Runtime::check_entry(&content)?;
    Ok(content)
}

/// See [`RunHandle::branch`].
#[must_use = "await it to ask for the branch"]
pub struct Branch {
    run: RunHandle<()>,
    branch: Result<BranchRun, Error>,
}

impl Branch {
    /// What is said there at once; the agent's turn begins with it.
    pub fn say(self, role: &str, content: &(impl Serialize + ?Sized)) -> Branch {
        let entry = Name::new(role).map_err(Error::from).and_then(|role| Ok(BranchEntry { role, content: entry(content)? }));
        let branch = self.branch.and_then(|branch| Ok(BranchRun { entry: Some(entry?), ..branch }));
        Branch { branch, ..self }
    }

    /// The same key again is the same branch; with something else it is `id_taken`.
    pub fn once(self, key: &str) -> Branch {
        let branch = self.branch.map(|branch| BranchRun { idempotency_key: Some(key.to_owned()), ..branch });
        Branch { branch, ..self }
    }
}

impl IntoFuture for Branch {
    type Output = Result<Appended, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.run.ask(self.run.door().branch_run(self.run.key().clone(), self.branch?)).await })
    }
}

/// Which part of a conversation; see [`RunHandle::entries`].
#[must_use = "await it to read a page"]
pub struct Entries {
    run: RunHandle<()>,
    query: EntryQuery,
}

impl Entries {
    /// How many entries a page has at most: from 1 to 1,000, and 100 if nothing is said.
    pub fn limit(mut self, limit: usize) -> Entries {
        self.query.limit = limit;
        self
    }

    /// The conversation that ends in this entry, also where the code has left it; the current one otherwise.
    pub fn leaf(mut self, leaf: impl Into<EntryCursor>) -> Entries {
        self.query.leaf = Some(leaf.into());
        self
    }

    /// The page before one that was read: what that one has as `before`.
    pub fn before(mut self, before: impl Into<EntryCursor>) -> Entries {
        self.query.before = Some(before.into());
        self
    }

    /// Page after page, from the end of the conversation to its beginning.
    pub fn pages(self) -> EntryPages {
        EntryPages { run: self.run, next: Some(self.query) }
    }

    async fn read(self) -> Result<EntryPage, Error> {
        self.run.ask(self.run.door().read_entries(self.run.key().clone(), self.query)).await
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
    /// The page before the last one, or the last page of the conversation at first; `None` behind its first entry.
    pub async fn next(&mut self) -> Result<Option<EntryPage>, Error> {
        let Some(query) = self.next else { return Ok(None) };
        let page = Entries { run: self.run.clone(), query }.await?;
        self.next = page.before.map(|before| EntryQuery { before: Some(before), ..query });
        Ok(Some(page))
    }
}
