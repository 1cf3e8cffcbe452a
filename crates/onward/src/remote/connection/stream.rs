//! The worker's stream, with reconnects.

use std::sync::Arc;
use std::time::Duration;

use onward_store::Consequence;
use onward_wire::grpc::CONNECT;
use onward_wire::worker::{ServerFrame, ServerFrames, WorkerFrame, WorkerFrames};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::shared::{Greeting, Shared};
use crate::remote::Channel;

/// Delay before a reconnect: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Time limit for the server's welcome; shorter if the lease is.
const WELCOME_MAX: Duration = Duration::from_secs(5);
const WELCOME_MIN: Duration = Duration::from_millis(500);

/// Limits of one message: frames, and payload bytes.
pub(super) const FRAMES_MAX: usize = 512;
pub(super) const FRAMES_BYTES: usize = 4 * 1024 * 1024;

/// Number of messages that wait for the network; further frames wait where they can be merged into one message.
const MESSAGES_MAX: usize = 2;

/// Shortest interval between two checks of the time.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Keeps the stream open until the worker has left.
pub(super) async fn keep_open(channel: Channel, shared: Arc<Shared>) {
    tokio::select! {
        () = reconnect(channel, &shared) => {}
        () = watch_lease(&shared) => {}
    }
}

async fn reconnect(channel: Channel, shared: &Arc<Shared>) {
    let mut pause = RETRY_FIRST;
    loop {
        let welcomed = converse(&channel, shared).await;
        shared.end();
        if shared.lock().has_left {
            return;
        }
        pause = if welcomed { RETRY_FIRST } else { (pause * 2).min(RETRY_MAX) };
        tokio::time::sleep(pause).await;
    }
}

/// Stops the worker's work before another worker may get it (Y4). Never returns.
async fn watch_lease(shared: &Arc<Shared>) {
    loop {
        let lease = known_lease(shared).await;
        tokio::time::sleep((lease / 12).max(POLL_INTERVAL_MIN)).await;
        if shared.silent_for().is_some_and(|silent| silent >= lease * 2 / 3) {
            shared.lose_all();
        }
    }
}

async fn known_lease(shared: &Shared) -> Duration {
    let mut lease = shared.lease.subscribe();
    // The sender lives as long as `shared`.
    match lease.wait_for(Option::is_some).await {
        Ok(lease) => lease.unwrap_or(WELCOME_MAX),
        Err(_) => WELCOME_MAX,
    }
}

/// Runs one connection from `hello` to its end. Returns whether the server sent a welcome.
async fn converse(channel: &Channel, shared: &Arc<Shared>) -> bool {
    // Each stream has its own connection: the lease detects a dead network sooner than the connection does.
    let channel = channel.fresh();
    let (messages, receiver) = mpsc::channel::<WorkerFrames>(MESSAGES_MAX);
    let mut losses = shared.losses.subscribe(); // before the `hello`, which does not have later losses
    let hello = WorkerFrames { frames: vec![WorkerFrame::Hello(shared.begin())] };
    if messages.send(hello).await.is_err() {
        return false;
    }
    let began = Instant::now();
    let welcome_timeout = shared.lease.borrow().map_or(WELCOME_MAX, |lease| lease.clamp(WELCOME_MIN, WELCOME_MAX));
    let welcomed = async {
        let mut incoming: Streaming<ServerFrames> = match channel.open(CONNECT, ReceiverStream::new(receiver)).await {
            Ok(incoming) => incoming,
            Err(error) => {
                // A refusal is final; an unreachable server may come back.
                if error.consequence() == Consequence::Retry {
                    shared.lock().trouble = Some(error.to_string());
                } else {
                    shared.greet(Greeting::Refused(error));
                }
                return None;
            }
        };
        let first = incoming.message().await.ok()??;
        matches!(first.frames.first(), Some(ServerFrame::Welcome(_))).then_some((incoming, first))
    };
    let Ok(Some((mut incoming, first))) = tokio::time::timeout(welcome_timeout, welcomed).await else { return false };
    first.frames.into_iter().for_each(|frame| shared.take_in(frame));
    let receiving = async {
        while let Ok(Some(message)) = incoming.message().await {
            message.frames.into_iter().for_each(|frame| shared.take_in(frame));
        }
    };
    tokio::select! {
        () = receiving => {}
        () = send(shared, messages) => {}
        () = silence(shared, began) => {}
        _ = losses.changed() => {} // the server must not keep what the worker has dropped
    }
    true
}

/// Returns when the server has not responded for a whole lease: a new connection may reach it.
async fn silence(shared: &Shared, began: Instant) {
    loop {
        let lease = known_lease(shared).await;
        tokio::time::sleep((lease / 6).max(POLL_INTERVAL_MIN)).await;
        if began.elapsed() >= lease && shared.silent_for().is_none_or(|silent| silent >= lease) {
            return;
        }
    }
}

/// Sends queued frames, and a heartbeat three times per lease. Ends with the connection.
async fn send(shared: &Shared, messages: mpsc::Sender<WorkerFrames>) {
    let pace = (known_lease(shared).await / 3).max(POLL_INTERVAL_MIN);
    let mut beat_at = Instant::now() + pace;
    loop {
        // Reserves first and takes frames then, so that frames that wait for the network are merged into one message.
        let Ok(room) = messages.reserve().await else { return };
        let frames = loop {
            if Instant::now() >= beat_at {
                beat_at = Instant::now() + pace;
                break vec![shared.beat()];
            }
            let frames = shared.take_outgoing();
            if !frames.is_empty() {
                break frames;
            }
            drop(tokio::time::timeout_at(beat_at, shared.outgoing.notified()).await); // on timeout a heartbeat is due
        };
        room.send(WorkerFrames { frames });
    }
}
