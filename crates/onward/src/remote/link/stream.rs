//! Keeps a worker's stream open.

use std::sync::Arc;
use std::time::Duration;

use onward_runtime::RuntimeError;
use onward_store::Consequence;
use onward_wire::worker::{Heartbeat, ServerFrame, WorkerFrame, WorkerFrames};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Greeting, Shared};
use crate::remote::Channel;

/// How long to wait before a lost connection is tried again: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How many frames travel in one message.
const FRAMES_MAX: usize = 512;

/// How many messages wait for the network; behind them, frames wait where they can be joined.
const MESSAGES_MAX: usize = 2;

/// Until the server says how often it wants to hear of us.
const BEAT_DEFAULT: Duration = Duration::from_secs(5);

pub(super) async fn keep_open(channel: Channel, shared: Arc<Shared>) {
    let mut pause = RETRY_FIRST;
    loop {
        let welcomed = converse(&channel, &shared).await;
        shared.end();
        if shared.lock().has_left {
            return;
        }
        pause = if welcomed { RETRY_FIRST } else { (pause * 2).min(RETRY_MAX) };
        tokio::time::sleep(pause).await;
    }
}

/// One connection, from hello to its end. Returns whether the server welcomed us.
async fn converse(channel: &Channel, shared: &Arc<Shared>) -> bool {
    let (messages, receiver) = mpsc::channel::<WorkerFrames>(MESSAGES_MAX);
    let begin = shared.begin();
    if messages.send(WorkerFrames { frames: begin }).await.is_err() {
        return false;
    }
    let connected: Result<_, RuntimeError> = channel.connect(ReceiverStream::new(receiver)).await;
    let mut incoming = match connected {
        Ok(incoming) => incoming,
        Err(error) => {
            // A server that refuses says so at once; one that is not there may come.
            if error.consequence() != Consequence::Retry {
                shared.greet(Greeting::Refused(error));
            }
            return false;
        }
    };
    let (beat, beats) = tokio::sync::watch::channel(BEAT_DEFAULT);
    let sending = send(shared, messages, beats);
    let receiving = async {
        let mut welcomed = false;
        while let Ok(Some(message)) = incoming.message().await {
            for frame in message.frames {
                if let ServerFrame::Welcome(welcome) = &frame {
                    welcomed = true;
                    beat.send_replace(Duration::from_millis(welcome.lease_ms / 3).max(Duration::from_millis(10)));
                }
                shared.take_in(frame);
            }
        }
        welcomed
    };
    tokio::select! {
        welcomed = receiving => welcomed,
        () = sending => true,
    }
}

/// Sends what there is, and a sign of life when there is nothing. Ends when the connection does.
async fn send(shared: &Shared, messages: mpsc::Sender<WorkerFrames>, beats: tokio::sync::watch::Receiver<Duration>) {
    loop {
        // Room first, frames then: what waits for the network is joined into one message.
        let Ok(room) = messages.reserve().await else { return };
        let frames = loop {
            let frames = shared.take_outgoing(FRAMES_MAX);
            if !frames.is_empty() {
                break frames;
            }
            let beat = *beats.borrow();
            if tokio::time::timeout(beat, shared.outgoing.notified()).await.is_err() {
                break vec![WorkerFrame::Heartbeat(Heartbeat {})];
            }
        };
        room.send(WorkerFrames { frames });
    }
}
