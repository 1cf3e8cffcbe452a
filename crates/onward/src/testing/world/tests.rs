//! What the agent explorer does to a run and a user cannot.

use super::*;

impl World {
    /// Copies the world as a new process would find it.
    pub(crate) fn copy(&self) -> World {
        World {
            handler: self.handler.clone(),
            shared: self.shared.clone(),
            head: self.head.clone(),
            log: self.log.clone(),
            past: self.past.clone(),
            code: None,
            now: self.now,
            refusals: 0,
            timers: self.timers.clone(),
            frozen: self.frozen,
            tasks: self.tasks.clone(),
            waits: self.waits.clone(),
            sent: self.sent.clone(),
            once: self.once.clone(),
            shadow: self.shadow,
            waker: self.waker.clone(),
            shadow_replays: 0,
            found: None,
        }
    }

    /// Gives the run's lease to another worker.
    pub(crate) fn take_lease(&mut self) {
        self.head.epoch = Epoch(self.head.epoch.0 + 1);
        self.crash();
    }

    /// Returns whether a late commit is refused, by a worker that held the run in the state of `seen`.
    pub(crate) fn refuses_late(&self, draft: CommitDraft, seen: &World) -> bool {
        let commit_id = CommitId(u64::MAX - self.head.next_commit);
        let commit = draft.into_commit(seen.head.key.clone(), seen.head.generation, seen.head.epoch, commit_id);
        matches!(self.head.clone().admit_commit(commit, self.now), Err(CommitRefusal::Refused(_)))
    }

    /// Returns whether a late pause report of such a worker is refused.
    pub(crate) fn refuses_late_pause(&self, report: impl Into<Event>, seen: &World) -> bool {
        let input = Input { epoch: Some(seen.head.epoch), ..Input::new(report) };
        self.head.clone().admit_input(input, None, self.now).is_err()
    }

    /// Makes the run forget that an input has arrived.
    pub(crate) fn sleep_on(&mut self) {
        self.head.status = Status::Waiting;
    }

    /// Makes the run forget a branch request.
    pub(crate) fn forget_branch(&mut self) {
        self.head.branch_at = None;
    }
}
