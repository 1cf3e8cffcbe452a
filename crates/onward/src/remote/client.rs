//! The client over gRPC.

use std::sync::Arc;

use onward_core::api::{
    AskReply, AskRequest, Call, ChangeReply, ChangeRequest, Emitted, Reply, RunRequest, StartReply, StartRequest, WatchRequest,
};
use onward_core::live::{LiveContent, LiveFrame};
use onward_core::view::RunView;
use onward_core::{Failure, Index, Payload, RunKey};
use onward_runtime::{Changes, Client, ClientFuture, Outcome, RuntimeError, Updates, read_view};
use onward_store::Consequence;
use onward_wire::grpc::{LISTEN, WATCH};
use tokio::sync::broadcast;
use tonic::Streaming;

use super::ends::Ends;
use super::{Channel, RETRY_DELAY};

/// Long-poll timeout at the server.
const WAIT_MS: u64 = 20_000;

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

#[derive(Clone)]
pub(crate) struct RemoteClient {
    channel: Channel,
    ends: Ends,
}

struct RemoteOutcome {
    ends: Ends,
    key: RunKey,
}

struct RemoteChanges {
    client: RemoteClient,
    key: RunKey,
    generation: u32,
    next: Index,
}

impl RemoteClient {
    pub fn new(channel: Channel) -> RemoteClient {
        RemoteClient { ends: Ends::new(channel.clone()), channel }
    }

    fn as_client(&self) -> &dyn Client {
        self
    }

    /// Waits for changes past `generation` and `next`. Retries while the server is unreachable, because a wait may last for
    /// months.
    async fn watch(&self, key: &RunKey, generation: u32, next: Index) -> Result<ChangeReply, RuntimeError> {
        loop {
            let request = ChangeRequest { run: key.clone(), generation, next_index: next, wait_ms: WAIT_MS };
            match self.as_client().await_change(request).await {
                Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                reply => return reply,
            }
        }
    }

    /// Repeats an update until it has a result. Repeats with the same id are the same update, also when the result takes longer
    /// than one request may wait.
    async fn update(&self, request: AskRequest) -> Result<Reply, RuntimeError> {
        loop {
            match self.channel.call(Call::UpdateRun(request.clone())).await {
                Ok(Reply::UpdateRun(AskReply { answer: None })) => {}
                Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                reply => return reply,
            }
        }
    }
}

impl Outcome for RemoteOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(self.ends.outcome(&self.key))
    }
}

impl Changes for RemoteChanges {
    fn changed(&mut self) -> ClientFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let reply = self.client.watch(&self.key, self.generation, self.next).await?;
                let seen = (reply.generation, reply.next_index);
                if seen > (self.generation, self.next) {
                    (self.generation, self.next) = seen;
                    return Ok(());
                }
            }
        })
    }

    fn generation(&self) -> u32 {
        self.generation
    }
}

/// A live view over the network. After a lost connection it continues after the last event, with another snapshot.
struct RemoteUpdates {
    channel: Channel,
    request: WatchRequest,
    stream: Option<Streaming<LiveFrame>>,
    is_over: bool,
}

impl RemoteUpdates {
    async fn next_frame(&mut self) -> Result<Option<LiveFrame>, RuntimeError> {
        while !self.is_over {
            let received = match &mut self.stream {
                Some(stream) => stream.message().await.map_err(|status| self.channel.error_of(&status)),
                None => match self.channel.receive(WATCH, self.request.clone()).await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match received {
                Ok(Some(frame)) => {
                    continue_after(&mut self.request, &frame);
                    self.is_over = frame.is_last();
                    return Ok(Some(frame));
                }
                Err(error) if error.consequence() != Consequence::Retry => return Err(error),
                // The server stops, or is unreachable for a while.
                Ok(None) | Err(_) => {
                    self.stream = None;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
        Ok(None)
    }
}

/// Changes the request to one that continues after the frame. The snapshot has the index at which a view of new events begins (LU1).
fn continue_after(request: &mut WatchRequest, frame: &LiveFrame) {
    if let Some(cursor) = frame.cursor() {
        (request.generation, request.from) = (Some(cursor.generation), cursor.index.plus(1));
    } else if let LiveContent::Snapshot(snapshot) = &frame.content {
        request.generation.get_or_insert(snapshot.generation);
        if request.from_end {
            request.from = snapshot.next_index;
        }
    }
    request.from_end = false;
}

impl Updates for RemoteUpdates {
    fn next(&mut self) -> ClientFuture<'_, Option<LiveFrame>> {
        Box::pin(self.next_frame())
    }
}

impl Client for RemoteClient {
    fn call(&self, call: Call) -> ClientFuture<'_, Reply> {
        match call {
            Call::UpdateRun(request) => Box::pin(self.update(request)),
            call => Box::pin(self.channel.call(call)),
        }
    }

    fn start_and_watch(&self, start: StartRequest) -> ClientFuture<'_, (StartReply, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let outcome = self.watch_outcome(&start.run);
            Ok((self.as_client().start_run(start).await?, outcome))
        })
    }

    fn watch_outcome(&self, key: &RunKey) -> Arc<dyn Outcome> {
        Arc::new(RemoteOutcome { ends: self.ends.clone(), key: key.clone() })
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        Box::pin(async move {
            let head = self.as_client().read_head(key.clone()).await?;
            let (generation, next) = (head.generation, head.next_index);
            Ok(Box::new(RemoteChanges { client: self.clone(), key, generation, next }) as Box<dyn Changes>)
        })
    }

    fn watch_updates(&self, request: WatchRequest) -> ClientFuture<'_, Box<dyn Updates>> {
        Box::pin(async move {
            let channel = self.channel.clone();
            let stream = Some(channel.receive(WATCH, request.clone()).await?);
            Ok(Box::new(RemoteUpdates { channel, request, stream, is_over: false }) as Box<dyn Updates>)
        })
    }

    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView> {
        Box::pin(read_view(self, key))
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        let (channel, run) = (self.channel.clone(), key.clone());
        tokio::spawn(async move {
            while sender.receiver_count() > 0 {
                match channel.receive(LISTEN, RunRequest { run: run.clone() }).await {
                    Ok(mut stream) => {
                        while let Ok(Some(emitted)) = stream.message().await {
                            drop(sender.send(emitted)); // no listener is left
                        }
                    }
                    Err(error) if error.consequence() != Consequence::Retry => return,
                    Err(_) => {}
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use onward_core::live::RunUnderWay;
    use onward_core::{RunId, Status, Timestamp};

    use super::*;

    #[test]
    fn a_view_of_new_events_continues_where_its_snapshot_ended() {
        let run = RunKey::new(Default::default(), RunId::new("r").unwrap());
        let (doing, blocked_on, awaiting, active) = Default::default();
        let (generation, next_index, status) = (2, Index(7), Status::Running);
        let snapshot = RunUnderWay { generation, next_index, status, doing, blocked_on, awaiting, active };
        let frame = LiveFrame { at: Timestamp(1), content: LiveContent::Snapshot(snapshot) };
        let mut request = WatchRequest { from_end: true, ..run.clone().into() };
        continue_after(&mut request, &frame);
        assert_eq!((request.generation, request.from, request.from_end), (Some(2), Index(7), false), "LU1");
        let mut request = WatchRequest { from: Index(3), ..run.into() };
        continue_after(&mut request, &frame);
        assert_eq!((request.generation, request.from), (Some(2), Index(3)), "LU1");
    }
}
