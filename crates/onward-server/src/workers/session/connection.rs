//! One connection of a session.

use std::sync::Arc;

use onward_core::Record;
use onward_store::payloads;
use onward_wire::worker as wire;
use onward_wire::worker::{ReplyOutcome, ServerFrame, WorkerFrame};

use crate::auth::bounds::Bounds;

use super::{Ending, Session, SessionState};

/// Maximum number of frames in one message, and the payload size in bytes at which it is full.
const FRAMES_MAX: usize = 512;
const FRAMES_BYTES: usize = 4 * 1024 * 1024;

/// Connection; when it is dropped, the session waits for the next one.
pub(crate) struct Connection {
    pub(super) session: Arc<Session>,
    pub(super) number: u64,
}

impl Connection {
    /// Handles one frame of the worker, unless a later connection is served (Q3).
    pub fn handle(&self, frame: WorkerFrame) {
        let session = &self.session;
        let mut state = session.lock();
        if state.served != Some(self.number) {
            return;
        }
        session.local.mark_seen();
        if let WorkerFrame::Credit(wire::Credit { runs, tasks }) = frame {
            state.run_credit = state.run_credit.saturating_add(runs);
            state.task_credit = state.task_credit.saturating_add(tasks);
            drop(state);
            session.credit_came.notify_waiters();
            return;
        }
        drop(state);
        session.handle(frame);
    }

    /// Takes over the bounds of the key, which may have changed since the hello.
    pub fn set_bounds(&self, bounds: Bounds) {
        let mut state = self.session.lock();
        if state.served == Some(self.number) {
            state.bounds = bounds;
        }
    }

    /// Returns the next frames for the worker; `None` if a later connection is served or the session has ended.
    pub async fn next(&self) -> Option<Vec<ServerFrame>> {
        loop {
            let came = self.session.outgoing.notified();
            let mut came = std::pin::pin!(came);
            came.as_mut().enable();
            {
                let mut state = self.session.lock();
                if state.served != Some(self.number) {
                    return None; // Q3
                }
                if !state.outgoing.is_empty() {
                    return Some(state.next_message());
                }
                if state.finished {
                    return None;
                }
            }
            came.await;
        }
    }

    /// Ends the session.
    pub async fn end(&self) {
        self.session.end(Ending::Stopped).await;
        self.session.finish();
    }

    /// Returns whether the session has ended or a later connection is served.
    pub fn is_over(&self) -> bool {
        let state = self.session.lock();
        state.finished || state.served != Some(self.number)
    }

    /// Returns when the connection is over, even if its worker reads nothing.
    pub async fn over(&self) {
        loop {
            let changed = self.session.served_changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.session.lock().served != Some(self.number) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        if state.served == Some(self.number) {
            state.cut_off();
            self.session.local.set_present(false);
        }
    }
}

impl SessionState {
    pub(super) fn enqueue(&mut self, frame: ServerFrame) {
        self.outgoing_bytes += payload_bytes(&frame);
        self.outgoing.push_back(frame);
    }

    /// Returns as many frames as fit into one message, at least one.
    fn next_message(&mut self) -> Vec<ServerFrame> {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < FRAMES_MAX
            && let Some(frame) = self.outgoing.pop_front_if(|frame| {
                bytes += payload_bytes(frame);
                frames.is_empty() || bytes <= FRAMES_BYTES
            })
        {
            self.outgoing_bytes -= payload_bytes(&frame);
            if let ServerFrame::Task(offer) = &frame {
                self.sent = self.sent.max(offer.number);
            }
            frames.push(frame);
        }
        frames
    }
}

/// Returns the size of a frame's payloads in bytes.
fn payload_bytes(frame: &ServerFrame) -> usize {
    let of_records = |records: &[Record]| payloads::payload_bytes(records.iter().flat_map(|record| &record.events));
    match frame {
        ServerFrame::Run(run) => run.log.as_ref().map_or(0, |log| of_records(&log.records)),
        ServerFrame::Input(input) => of_records(std::slice::from_ref(&input.record)),
        ServerFrame::Task(offer) => offer.task.input.data().len(),
        ServerFrame::Question(question) => question.input.data().len(),
        ServerFrame::Reply(wire::Reply { outcome: ReplyOutcome::Log(log), .. }) => of_records(&log.records),
        _ => 0,
    }
}
