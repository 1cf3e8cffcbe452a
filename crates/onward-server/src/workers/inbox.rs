//! Where the runtime puts what is for one run of a remote worker.

use std::sync::{Arc, Weak};

use onward_core::{Epoch, Record, RunKey};
use onward_runtime::{Inbox, Question};
use onward_wire::worker::{Input, RunLost, ServerFrame};

use super::session::Session;

pub(super) struct RemoteInbox {
    /// The runtime holds the inbox, and the session holds the runtime.
    pub session: Weak<Session>,
    pub run: RunKey,
    pub epoch: Epoch,
}

impl RemoteInbox {
    fn tell(&self, frame: impl FnOnce(RunKey, Epoch) -> ServerFrame) -> Option<Arc<Session>> {
        let session = self.session.upgrade()?;
        session.push(frame(self.run.clone(), self.epoch));
        Some(session)
    }
}

impl Inbox for RemoteInbox {
    fn push(&self, record: Record) {
        self.tell(|run, epoch| ServerFrame::Input(Input { run, epoch, record }));
    }

    fn lost(&self) {
        if let Some(session) = self.tell(|run, epoch| ServerFrame::RunLost(RunLost { run, epoch })) {
            session.forget(&self.run, self.epoch);
        }
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        match self.session.upgrade() {
            Some(session) => session.ask(question),
            None => Err(question),
        }
    }
}
