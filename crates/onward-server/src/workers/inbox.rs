//! Inbox of a run that a remote worker holds.

use std::sync::Weak;

use onward_core::{Epoch, Record, RunKey};
use onward_runtime::{Inbox, Question};
use onward_wire::worker::{Input, ServerFrame};

use super::session::Session;

pub(super) struct RemoteInbox {
    /// Weak, because the runtime holds the inbox and the session holds the runtime.
    pub session: Weak<Session>,
    pub run: RunKey,
    pub epoch: Epoch,
}

impl Inbox for RemoteInbox {
    fn push(&self, record: Record) {
        if let Some(session) = self.session.upgrade() {
            session.push(ServerFrame::Input(Input { run: self.run.clone(), epoch: self.epoch, record }));
        }
    }

    fn lost(&self) {
        if let Some(session) = self.session.upgrade() {
            session.lose(&self.run, self.epoch);
        }
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        match self.session.upgrade() {
            Some(session) => session.ask(question),
            None => Err(question),
        }
    }
}
