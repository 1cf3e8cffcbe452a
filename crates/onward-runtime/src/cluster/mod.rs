//! Servers that share a store: broadcasts, changes made elsewhere, and the receiver of the store's change notifications.
//!
//! The receiver runs on the store's own thread: it must return quickly and must not call the store, so it has no reference to it.

pub(crate) mod broadcast;
pub(crate) mod refresh;

use onward_store::{Change, Listener};

use crate::api::watch::Watches;
use crate::background::Alarm;
use crate::cluster::broadcast::Broadcast;
use crate::cluster::refresh::Elsewhere;
use crate::stream::Streams;
use crate::stream::emits::Emits;
use crate::stream::feed::Feed;
use crate::stream::live::Live;
use crate::worker::held_back::HeldBack;
use crate::worker::inbox::Inboxes;
use crate::worker::profile::Workers;
use crate::worker::rate_limits::ClosedLimits;
use crate::worker::replays::Replays;

#[derive(Default)]
pub(crate) struct Hub {
    pub inboxes: Inboxes,
    pub watches: Watches,
    pub workers: Workers,
    pub alarm: Alarm,
    pub emits: Emits,
    pub live: Live,
    pub feed: Feed,
    pub replays: Replays,
    pub elsewhere: Elsewhere,
    pub broadcast: Broadcast,
    pub streams: Streams,
    pub closed: ClosedLimits,
    pub held_back: HeldBack,
}

impl Listener for Hub {
    fn changed(&self, change: &Change) {
        match change {
            Change::Appended { head, record } => {
                match record.commit {
                    None => self.inboxes.appended(head, record),
                    Some(_) => self.inboxes.committed(head, record),
                }
                self.streams.appended(head, record);
                self.watches.appended(head, record);
                self.feed.appended(head, record, || self.inboxes.claim_of(&head.key).is_some());
                self.workers.appended(head, record);
            }
            Change::RunPending { head } => self.workers.run_pending(head),
            Change::TaskQueued { task } => self.workers.task_queued(task),
            Change::DueAt(at) => self.alarm.due_at(*at),
            Change::OutboxGrew => self.alarm.outbox_grew(),
            Change::Elsewhere { run, ends } => {
                self.elsewhere.changed(run);
                self.feed.touched(run);
                self.watches.notify_remote_append(run, *ends);
            }
            Change::HeldBack { namespace, .. } => self.held_back.note(namespace),
            Change::WorkElsewhere { namespace } => self.workers.wake(Some(namespace)),
            Change::Broadcast { message } => self.receive(message),
            Change::Missed => {
                self.elsewhere.missed();
                self.feed.missed();
                self.watches.notify_all();
                self.workers.wake(None);
                self.alarm.outbox_grew();
            }
        }
    }
}
