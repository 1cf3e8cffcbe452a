//! Broadcasts between runtimes over one shared store: queries to code that runs elsewhere, emitted values, stream frames, live
//! notices, changes for feeds, rate limits.
//!
//! A message is delivered at most once, to the runtimes that are connected. A query that no runtime takes up in time has no
//! answer, and values for a listener that has left are lost (ADR 0015). Nothing that has to be recorded may be sent this way.

mod readers;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onward_core::codec::Message;
use onward_core::stream::{AttemptFailed, TaskFrames};
use onward_core::{Failure, Name, Payload, RunHead, RunKey, message};
use onward_store::sync::{lock, random_u64};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::cluster::Hub;
use crate::stream::feed::OutgoingChanges;
use crate::stream::live::ForwardedNotice;
use crate::worker::rate_limits::RateLimited;
use crate::{Emitted, Runtime, RuntimeError};
use readers::Readers;

/// Time limit for a runtime to take up a query: twice the latency of a store that polls once a second.
const TAKEN_UP_MAX: Duration = Duration::from_secs(3);

/// Time limit for the answer itself.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Interval at which a runtime repeats which runs it listens to, and how long others remember it.
pub(crate) const LISTENING_PACE: Duration = Duration::from_secs(5);
const LISTENING_MAX: Duration = Duration::from_secs(15);

/// Number of emitted values that wait to be sent; further ones are dropped, as for a slow local listener.
const EMITTED_MAX: usize = 1_024;

message! {
    /// A message of one runtime to the others.
    struct BroadcastMessage {
        1 => from: u64,
        2 => query: Option<RemoteQuery>,
        3 => answered: Option<Answered>,
        /// Runs that have listeners at the sender.
        4 => listening: Vec<RunKey>,
        5 => emitted: Vec<EmittedElsewhere>,
        /// Runs whose stream is read at the sender.
        6 => reading: Vec<RunKey>,
        7 => forwarded: Vec<ForwardedFrames>,
        8 => closed: Vec<RateLimited>,
        /// Runs that are read live at the sender.
        9 => watching: Vec<RunKey>,
        10 => notices: Vec<ForwardedNotice>,
        /// The sender has feeds of changed runs.
        11 => has_feeds: bool,
        /// Runs that were claimed or released, for feeds.
        12 => touched: Vec<RunKey>,
        13 => deleted: Vec<RunHead>,
        /// Some changes for feeds are lost.
        14 => is_feed_lost: bool,
    }
}

message! {
    struct RemoteQuery {
        1 => number: u64,
        2 => run: RunKey,
        3 => name: Name,
        4 => input: Payload,
    }
}

message! {
    struct Answered {
        /// The runtime that sent the query, and the number of the query.
        1 => to: u64,
        2 => number: u64,
        /// Only announces that an answer will follow.
        3 => is_taken_up: bool,
        /// Absent if the code has no such query.
        4 => result: Option<Result<Payload, Failure>>,
    }
}

message! {
    struct EmittedElsewhere {
        1 => run: RunKey,
        2 => emitted: Emitted,
    }
}

message! {
    /// The frames that an attempt emitted, or its failure.
    struct ForwardedFrames {
        1 => run: RunKey,
        2 => claim: u64,
        3 => task_frames: Option<TaskFrames>,
        4 => failed: Option<AttemptFailed>,
    }
}

pub(crate) struct Broadcast {
    /// Random id of this runtime, to ignore its own messages.
    id: u64,
    next_number: AtomicU64,
    open: Mutex<HashMap<u64, mpsc::UnboundedSender<Answered>>>,
    incoming: Mutex<Vec<(u64, RemoteQuery)>>,
    outgoing: Mutex<Vec<EmittedElsewhere>>,
    /// Runs that have listeners elsewhere, and until when that counts.
    wanted: Mutex<HashMap<RunKey, Instant>>,
    readers: Readers,
    /// A local listener was added.
    has_listener: AtomicBool,
    pub wakeup: Notify,
}

impl Default for Broadcast {
    fn default() -> Broadcast {
        let id = random_u64();
        let (next_number, open, incoming, outgoing, wanted, has_listener, wakeup) = Default::default();
        Broadcast { id, next_number, open, incoming, outgoing, wanted, readers: Readers::default(), has_listener, wakeup }
    }
}

impl Hub {
    /// Handles a broadcast message; messages of this runtime are ignored.
    pub fn receive(&self, message: &[u8]) {
        let Ok(message) = BroadcastMessage::decode_fields(message) else { return }; // an incompatible version
        if message.from == self.broadcast.id {
            return;
        }
        if let Some(answered) = message.answered.filter(|answered| answered.to == self.broadcast.id)
            && let Some(sender) = lock(&self.broadcast.open).get(&answered.number)
        {
            drop(sender.send(answered)); // fails if the caller has gone, which is fine
        }
        if !message.listening.is_empty() {
            let until = Instant::now() + LISTENING_MAX;
            lock(&self.broadcast.wanted).extend(message.listening.into_iter().map(|run| (run, until)));
        }
        for EmittedElsewhere { run, emitted } in message.emitted {
            self.emits.send(&run, emitted);
        }
        for run in message.watching {
            self.live.want(&run, Instant::now() + LISTENING_MAX);
            self.inboxes.watch(&run, true); // its worker lists the steps under way (LW2)
        }
        message.notices.into_iter().for_each(|notice| self.live.deliver(notice));
        if message.has_feeds {
            self.feed.want(Instant::now() + LISTENING_MAX);
        }
        message.touched.iter().for_each(|run| self.feed.touched(run));
        message.deleted.iter().for_each(|head| self.feed.deleted(head));
        if message.is_feed_lost {
            self.feed.missed();
        }
        for run in message.reading {
            let _whole = self.broadcast.keep_whole();
            if self.broadcast.readers.want(&run, message.from) {
                self.broadcast.forward_all(self.streams.open_attempts(&run));
            }
        }
        for forwarded in message.forwarded {
            self.receive_output(forwarded);
        }
        for limited in message.closed {
            if limited.span_ms == 0 {
                self.closed.reopen(&limited);
                self.workers.wake(None);
            } else {
                self.closed.close(&limited);
            }
        }
        if let Some(query) = message.query {
            lock(&self.broadcast.incoming).push((message.from, query));
            self.broadcast.wakeup.notify_one();
        }
    }
}

impl Broadcast {
    /// Announces that a run has a local listener.
    pub fn listening(&self) {
        self.has_listener.store(true, Ordering::SeqCst);
        self.wakeup.notify_one();
    }

    /// Forwards an emitted value if the run has listeners elsewhere.
    pub fn emitted(&self, run: &RunKey, emitted: &Emitted) {
        let mut wanted = lock(&self.wanted);
        if wanted.is_empty() {
            return;
        }
        let now = Instant::now();
        wanted.retain(|_, until| *until > now);
        if !wanted.contains_key(run) {
            return;
        }
        drop(wanted);
        let mut outgoing = lock(&self.outgoing);
        if outgoing.len() < EMITTED_MAX {
            outgoing.push(EmittedElsewhere { run: run.clone(), emitted: emitted.clone() });
            self.wakeup.notify_one();
        }
    }

    fn message(&self) -> BroadcastMessage {
        let (listening, emitted, reading, forwarded, closed) = Default::default();
        let (watching, notices, has_feeds, touched, deleted, is_feed_lost) = Default::default();
        BroadcastMessage {
            from: self.id,
            query: None,
            answered: None,
            listening,
            emitted,
            reading,
            forwarded,
            closed,
            watching,
            notices,
            has_feeds,
            touched,
            deleted,
            is_feed_lost,
        }
    }
}

/// An open query, removed on drop.
struct OpenQuery<'a> {
    broadcast: &'a Broadcast,
    number: u64,
}

impl Drop for OpenQuery<'_> {
    fn drop(&mut self) {
        lock(&self.broadcast.open).remove(&self.number);
    }
}

impl Runtime {
    /// Sends a message to the others. Delivery is not guaranteed.
    async fn broadcast(&self, message: BroadcastMessage) {
        let has_changes = message.is_feed_lost || !message.touched.is_empty() || !message.deleted.is_empty();
        if let Err(error) = self.store().broadcast(message.to_bytes()).await {
            tracing::debug!(code = error.code(), "failed to broadcast to the other servers: {error}");
            if has_changes {
                self.hub().feed.outgoing_lost();
            }
        }
    }

    /// Marks a key as rate-limited, here and elsewhere.
    pub(crate) async fn close_limit(&self, limited: RateLimited) {
        self.hub().closed.close(&limited);
        self.broadcast(BroadcastMessage { closed: vec![limited], ..self.hub().broadcast.message() }).await;
    }

    /// Ends the limit of a kind and of its key, here and elsewhere. Returns whether it was limited here.
    pub(crate) async fn reopen_limit(&self, reopened: RateLimited) -> bool {
        let was_limited = self.hub().closed.reopen(&reopened);
        self.hub().workers.wake(None);
        self.broadcast(BroadcastMessage { closed: vec![reopened], ..self.hub().broadcast.message() }).await;
        was_limited
    }

    /// Queries the code of a run that no local worker has; `None` if no other runtime takes up the query.
    pub(crate) async fn query_other_servers(
        &self,
        run: &RunKey,
        name: Name,
        input: Payload,
    ) -> Option<Option<Result<Payload, Failure>>> {
        let broadcast = &self.hub().broadcast;
        let number = broadcast.next_number.fetch_add(1, Ordering::SeqCst);
        let (sender, mut answers) = mpsc::unbounded_channel();
        lock(&broadcast.open).insert(number, sender);
        let _open = OpenQuery { broadcast, number };
        let query = RemoteQuery { number, run: run.clone(), name, input };
        self.broadcast(BroadcastMessage { query: Some(query), ..broadcast.message() }).await;
        let mut until = Instant::now() + TAKEN_UP_MAX;
        loop {
            let answered = tokio::time::timeout_at(until, answers.recv()).await.ok()??;
            if !answered.is_taken_up {
                return Some(answered.result);
            }
            until = Instant::now() + ANSWER_MAX;
        }
    }

    /// Sends waiting values and answers queries; repeats which runs have listeners here if `is_time`.
    pub(crate) async fn exchange_broadcasts(&self, is_time: bool) {
        let broadcast = &self.hub().broadcast;
        for (from, query) in std::mem::take(&mut *lock(&broadcast.incoming)) {
            tokio::spawn(answer(self.clone(), from, query));
        }
        let has_listener = broadcast.has_listener.swap(false, Ordering::SeqCst);
        let listening = if is_time || has_listener { self.hub().emits.runs() } else { Vec::new() };
        let reading =
            if broadcast.readers.is_time(is_time) { self.hub().streams.read_runs(self.clock().now()) } else { Vec::new() };
        let emitted = std::mem::take(&mut *lock(&broadcast.outgoing));
        let (live, feed) = (&self.hub().live, &self.hub().feed);
        if is_time {
            self.hub().unwatch_expired();
        }
        let (watching, notices) = (live.announced(is_time), live.take_outgoing());
        let (has_feeds, OutgoingChanges { touched, deleted, is_lost }) = (feed.is_announced(is_time), feed.take_outgoing());
        let empty = broadcast.message();
        let message = BroadcastMessage {
            listening,
            emitted,
            reading,
            watching,
            notices,
            has_feeds,
            touched,
            deleted,
            is_feed_lost: is_lost,
            ..broadcast.message()
        };
        if message != empty {
            self.broadcast(message).await;
        }
        self.send_forwarded().await;
    }
}

/// Answers a query of another runtime if a local worker has the code.
async fn answer(runtime: Runtime, to: u64, RemoteQuery { number, run, name, input }: RemoteQuery) {
    let message = |is_taken_up, result| {
        let answered = Some(Answered { to, number, is_taken_up, result });
        BroadcastMessage { answered, ..runtime.hub().broadcast.message() }
    };
    if !runtime.has_code_for(&run).await {
        return;
    }
    runtime.broadcast(message(true, None)).await;
    match runtime.query_here(&run, name, input).await {
        Ok(result) => runtime.broadcast(message(false, result)).await,
        Err(RuntimeError::NoCompatibleWorker { .. }) => {} // the worker has just left
        Err(error) => tracing::debug!(code = error.code(), "failed to answer a query of another server: {error}"),
    }
}
