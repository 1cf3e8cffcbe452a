//! Memos and keys of promises of workers whose API key is bound to kinds (BK3).
//!
//! A memo of the namespace is used by runs of every kind, and a memo of a tree by runs of every kind in that tree; a promise has
//! its key in the namespace. A commit that uses such a key is therefore checked before the store gets it. A refused commit pauses
//! its run, with the reason: results of running steps are still recorded, and everything else is called again when the run
//! continues.

use std::sync::Arc;

use onward_core::memo::MemoScope;
use onward_core::root_run::root_run;
use onward_core::run::{Commit, Committed, Input, Refusal, RunHead, Status};
use onward_core::{Event, RunId, RunKey};
use onward_runtime::WorkerConnection;
use onward_store::{StoreError, StoreFuture};

use super::Session;
use crate::auth::bounds::Bounds;

impl Session {
    /// Commits, unless a memo or the key of a promise is outside of the bounds of the worker's key.
    pub(super) fn commit_within_bounds(self: &Arc<Session>, commit: Commit) -> StoreFuture<'static, Committed> {
        let has_memo = |event: &Event| match event {
            Event::PromiseCreated(promise) => promise.key.is_some(),
            event => matches!(event, Event::MemoRequested(_) | Event::MemoStored(_)),
        };
        let bounds = self.lock().bounds.clone();
        if bounds.kinds.is_none() || !commit.events.iter().any(has_memo) {
            return self.local.commit(commit);
        }
        let session = self.clone();
        Box::pin(async move {
            session.check_memos(&commit, &bounds).await?;
            session.local.commit(commit).await
        })
    }

    /// Refuses a commit with a key that runs outside of the bounds share, and pauses its run.
    async fn check_memos(&self, commit: &Commit, bounds: &Bounds) -> Result<(), StoreError> {
        let Some(head) = self.head(&commit.key).await? else { return Ok(()) }; // the store refuses it
        if head.status.is_closed() || head.status == Status::Paused {
            return Ok(()); // the store refuses it, or it is a repeat
        }
        let mut scopes_allowed = Vec::new();
        if head.used_memos(&commit.events).any(|(_, scope)| scope == MemoScope::Tree) && self.is_of_tree(&head, bounds).await? {
            scopes_allowed.push(MemoScope::Tree);
        }
        let refused = head.used_memos(&commit.events).find(|(_, scope)| !scopes_allowed.contains(scope));
        let Some((call_id, scope)) = refused else { return Ok(()) };
        let refusal = Refusal::SharedKeyNotAllowed { key: commit.key.clone(), call_id: call_id.clone(), scope };
        if let Some(pause) = refusal.pause() {
            let pause = Input::by_holder(pause.event, commit.generation, commit.epoch);
            self.runtime().store().append_input(commit.key.clone(), pause).await?;
        }
        Err(refusal.into())
    }

    /// Returns whether the run belongs to the tree that its id names: it is the root run or a descendant of it, or a kind of the
    /// key began the tree. Ids are chosen by callers and by code, so an id alone does not show it.
    async fn is_of_tree(&self, head: &RunHead, bounds: &Bounds) -> Result<bool, StoreError> {
        let Ok(root) = RunId::new(root_run(&head.key.id)) else { return Ok(false) };
        let root = RunKey::new(head.key.namespace.clone(), root);
        let mut ancestor = head.key.clone();
        let mut parent = head.parent.as_ref().map(|link| link.run.clone());
        while ancestor != root {
            let Some(key) = parent else { break };
            parent = self.head(&key).await?.and_then(|head| Some(head.parent?.run));
            ancestor = key;
        }
        let began =
            self.head(&root).await?.is_some_and(|head| bounds.check_kind(head.first_kind.as_ref().unwrap_or(&head.kind)).is_ok());
        Ok(ancestor == root || began)
    }

    async fn head(&self, key: &RunKey) -> Result<Option<RunHead>, StoreError> {
        self.runtime().store().read_run(key.clone(), None).await
    }
}
