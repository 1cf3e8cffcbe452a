//! The client with payload encoding.

use std::sync::Arc;

use onward_core::api::{
    AppendEntryRequest, Call, DecideRequest, Emitted, LogPage, LogRequest, PayloadMut, Reply, StartReply, StartRequest, Target,
    WaitQuery, WatchRequest,
};
use onward_core::live::{LiveContent, LiveFrame, LiveRecord};
use onward_core::stream::StreamContent;
use onward_core::view::RunView;
use onward_core::{ErrorCode, Failure, Index, Payload, RunKey};
use onward_runtime::{
    CallRef, Changes, Client, ClientFuture, Outcome, RuntimeError, Updates, check_answer, known_entry, read_moment, read_page,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::events::input_contexts;
use super::{CodecError, Direction, EncryptionBoundary, Passed, PayloadContext, PayloadRuns};

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

pub(crate) struct EncryptedClient {
    inner: Arc<dyn Client>,
    boundary: EncryptionBoundary,
}

impl EncryptedClient {
    pub fn new(inner: Arc<dyn Client>, boundary: EncryptionBoundary) -> EncryptedClient {
        EncryptedClient { inner, boundary }
    }

    async fn execute(&self, call: Call) -> Result<Reply, RuntimeError> {
        match call {
            Call::ReadLog(request) => self.read_log(request).await,
            // The contents are read from the decoded log, because only this process can decode them.
            Call::ReadEntries(request) => Ok(Reply::ReadEntries(read_page(self, request.run, request.query).await?)),
            Call::ReadAt(request) => Ok(Reply::ReadAt(read_moment(self, request).await?)),
            Call::AppendEntry(AppendEntryRequest { run, entry, is_looked_up: false }) => {
                match known_entry(self, &run, &entry).await? {
                    Some(known) => Ok(Reply::AppendEntry(known)),
                    None => self.pass(Call::AppendEntry(AppendEntryRequest { run, entry, is_looked_up: true })).await,
                }
            }
            Call::DecideApproval(request) => {
                self.check_answer(&request).await?;
                self.pass(Call::DecideApproval(request)).await
            }
            call => self.pass(call).await,
        }
    }

    /// Checks an answer that the server will not be able to read (AN3). A caller that may not list approvals sends it unchecked, and
    /// the worker checks it.
    async fn check_answer(&self, request: &DecideRequest) -> Result<(), RuntimeError> {
        let DecideRequest { namespace, approval, decide } = request;
        if decide.answer.is_none() {
            return Ok(());
        }
        let call = CallRef::parse(namespace, approval)?;
        let query = WaitQuery { namespace: namespace.clone(), run: Some(call.run.clone()), ..WaitQuery::default() };
        let Ok(Reply::ListApprovals(open)) = self.pass(Call::ListApprovals(query)).await else { return Ok(()) };
        match open.waits.iter().find(|wait| CallRef::from(*wait) == call) {
            Some(wait) => check_answer(&call, wait.answer_schema.as_ref(), decide.approved, decide.answer.as_ref()).await,
            None => Ok(()), // the server compares a repeated decision with the first one
        }
    }

    fn encode(&self, call: &mut Call) -> Result<(), RuntimeError> {
        let encoded = call.visit_payloads(&mut |part, run, _, names| {
            let contexts: Vec<PayloadContext> = names.iter().map(|name| PayloadContext::of(run, name)).collect();
            self.boundary.part(Direction::Out, part, &contexts)
        });
        encoded.map_err(unreadable)
    }

    /// Encodes the payloads of the request, executes the verb, and decodes the payloads of the reply.
    async fn pass(&self, mut call: Call) -> Result<Reply, RuntimeError> {
        let run = match call.target() {
            Target::Run(run) => Some(run.clone()),
            _ => None,
        };
        self.encode(&mut call)?;
        let mut reply = self.inner.call(call).await?;
        match (&mut reply, &run) {
            // An undecodable frame comes from a process with another codec.
            (Reply::ReadStream(page), Some(run)) => {
                page.frames.retain_mut(|frame| frame_in(&self.boundary, run, &mut frame.content).is_ok());
            }
            _ => self.decode(&mut reply, run.as_ref()).await?,
        }
        Ok(reply)
    }

    /// Decodes each payload in the context of its run and, if that fails, in those of the runs that its log was copied from.
    async fn decode(&self, reply: &mut Reply, run: Option<&RunKey>) -> Result<(), RuntimeError> {
        let (mut position, mut failed) = (0, Vec::new());
        let decoded = reply.visit_payloads(run, &mut |part, run, generation, names| {
            let contexts: Vec<PayloadContext> = names.iter().map(|name| PayloadContext::of(run, name)).collect();
            position += 1;
            match (self.boundary.part(Direction::In, part, &contexts), generation) {
                (Err(error), Some(generation)) => {
                    failed.push((position, run.clone(), generation, error));
                    Ok(())
                }
                (passed, _) => passed,
            }
        });
        decoded.map_err(unreadable)?;
        for (wanted, run, generation, error) in failed {
            let payload_runs = self.originals(&run, generation).await?;
            if payload_runs.is_alone() {
                return Err(unreadable(error));
            }
            let mut position = 0;
            let decoded = reply.visit_payloads(Some(&run), &mut |part, _, _, names| {
                position += 1;
                let contexts: Vec<PayloadContext> = names.iter().flat_map(|name| payload_runs.contexts(name)).collect();
                if position == wanted { self.boundary.part(Direction::In, part, &contexts) } else { Ok(()) }
            });
            decoded.map_err(unreadable)?;
        }
        Ok(())
    }

    /// Returns the runs under which payloads of a log may have been encoded.
    async fn originals(&self, run: &RunKey, generation: u32) -> Result<PayloadRuns, RuntimeError> {
        let first = self.inner.read_log(run.clone(), Some(generation), Index(0), 1).await?;
        let mut payload_runs = PayloadRuns::of(run, first.first());
        self.add_originals(run, &mut payload_runs).await?;
        Ok(payload_runs)
    }

    async fn add_originals(&self, run: &RunKey, payload_runs: &mut PayloadRuns) -> Result<(), RuntimeError> {
        let first_of = async |run| match self.inner.read_log(run, Some(0), Index(0), 1).await {
            Err(error) if error.code() == ErrorCode::RunNotFound => Ok(None), // it was deleted
            read => Ok(read?.into_iter().next()),
        };
        payload_runs.add_originals(run, first_of).await
    }

    async fn read_log(&self, request: LogRequest) -> Result<Reply, RuntimeError> {
        let decode = |mut page: LogPage, payload_runs: &PayloadRuns| {
            page.records.iter_mut().try_for_each(|record| self.boundary.record_in(record, payload_runs)).map(|()| page)
        };
        let page = self.inner.read_log_page(request.clone()).await?;
        // A part of a log does not name the runs that it was copied from.
        let first = match request.from {
            Index(0) => None,
            _ => Some(self.inner.read_log(request.run.clone(), request.generation, Index(0), 1).await?),
        };
        let mut payload_runs = PayloadRuns::of(&request.run, first.as_ref().unwrap_or(&page.records).first());
        if let Ok(page) = decode(page, &payload_runs) {
            return Ok(Reply::ReadLog(page));
        }
        self.add_originals(&request.run, &mut payload_runs).await?;
        let page = self.inner.read_log_page(request).await?;
        decode(page, &payload_runs).map(Reply::ReadLog).map_err(unreadable)
    }

    fn coded(&self, inner: Arc<dyn Outcome>, key: &RunKey) -> Arc<dyn Outcome> {
        Arc::new(CodedOutcome { inner, boundary: self.boundary.clone(), key: key.clone() })
    }
}

impl EncryptionBoundary {
    fn part(&self, direction: Direction, part: PayloadMut<'_>, contexts: &[PayloadContext]) -> Passed {
        match part {
            PayloadMut::Payload(payload) => self.payload(direction, payload, contexts),
            PayloadMut::Failure(failure) => self.failure(direction, failure, contexts),
        }
    }
}

fn unreadable(error: CodecError) -> RuntimeError {
    RuntimeError::PayloadUnreadable { why: error.to_string() }
}

fn view_in(boundary: &EncryptionBoundary, view: &mut RunView, payload_runs: &PayloadRuns) -> Passed {
    let inputs = input_contexts(&payload_runs.runs, view.head.parent.as_ref());
    boundary.payload(Direction::In, &mut view.input, &inputs)?;
    let (states, signals) = (payload_runs.contexts("state"), payload_runs.contexts("signal"));
    view.state.values_mut().try_for_each(|value| boundary.payload(Direction::In, value, &states))?;
    view.undelivered
        .iter_mut()
        .try_for_each(|signal| boundary.signal(Direction::In, &signal.name, &mut signal.payload, &signals))?;
    if let Some(outcome) = &mut view.outcome {
        boundary.result(Direction::In, outcome, &payload_runs.contexts("outcome"))?;
    }
    view.pause.as_mut().map_or(Ok(()), |pause| boundary.pause(Direction::In, &payload_runs.runs, pause))
}

fn frame_in(boundary: &EncryptionBoundary, key: &RunKey, content: &mut StreamContent) -> Passed {
    match content {
        StreamContent::TaskFrame(task_frame) => {
            boundary.payload(Direction::In, &mut task_frame.frame, &[PayloadContext::of(key, "streamed")])
        }
        StreamContent::AttemptFailed(failed) => {
            boundary.failure(Direction::In, &mut failed.failure, &[PayloadContext::of(key, "report")])
        }
        StreamContent::ApprovalRequested(content) => {
            boundary.maybe(Direction::In, &mut content.requested.show, &[PayloadContext::of(key, "show")])?;
            boundary.maybe(Direction::In, &mut content.requested.answer_schema, &[PayloadContext::of(key, "answer schema")])
        }
        StreamContent::Paused(pause) => boundary.pause(Direction::In, std::slice::from_ref(key), pause),
        _ => Ok(()),
    }
}

/// Waits for a run's end and decodes the outcome.
struct CodedOutcome {
    inner: Arc<dyn Outcome>,
    boundary: EncryptionBoundary,
    key: RunKey,
}

impl Outcome for CodedOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move {
            let mut outcome = self.inner.outcome().await?;
            let context = [PayloadContext::of(&self.key, "outcome")];
            self.boundary.result(Direction::In, &mut outcome, &context).map_err(unreadable)?;
            Ok(outcome)
        })
    }
}

/// Decodes the frames of a live view.
struct CodedUpdates {
    inner: Box<dyn Updates>,
    client: EncryptedClient,
    key: RunKey,
    /// A frame that was received and not returned yet.
    undecoded: Option<LiveFrame>,
}

impl CodedUpdates {
    async fn next_frame(&mut self) -> Result<Option<LiveFrame>, RuntimeError> {
        loop {
            if self.undecoded.is_none() {
                self.undecoded = self.inner.next().await?;
            }
            let Some(mut frame) = self.undecoded.clone() else { return Ok(None) };
            let mut is_readable = match &mut frame.content {
                LiveContent::Log(log) => decode_live(&self.client, &self.key, log).await.map(|()| true)?,
                _ => self.open(&mut frame).is_ok(),
            };
            if let (false, LiveContent::Snapshot(snapshot)) = (is_readable, &mut frame.content) {
                snapshot.active.iter_mut().for_each(|call| (call.input, call.progress) = (None, None));
                is_readable = true;
            }
            self.undecoded = None;
            // A notice that cannot be decoded comes from a process with another codec; the outcome must be readable.
            if is_readable {
                return Ok(Some(frame));
            }
            if frame.is_last() {
                return Err(RuntimeError::PayloadUnreadable { why: "the outcome of the run cannot be decoded".to_owned() });
            }
        }
    }

    fn open(&self, frame: &mut LiveFrame) -> Passed {
        frame.visit_payloads(&self.key, &mut |part, run, _, names| {
            let contexts: Vec<PayloadContext> = names.iter().map(|name| PayloadContext::of(run, name)).collect();
            self.client.boundary.part(Direction::In, part, &contexts)
        })
    }
}

/// Decodes a record; one that was copied from another run in the contexts of that run.
async fn decode_live(client: &EncryptedClient, key: &RunKey, log: &mut LiveRecord) -> Result<(), RuntimeError> {
    let mut record = log.record.clone();
    if client.boundary.record_in(&mut record, &PayloadRuns::of(key, None)).is_err() {
        record = log.record.clone();
        let payload_runs = client.originals(key, log.generation).await?;
        client.boundary.record_in(&mut record, &payload_runs).map_err(unreadable)?;
    }
    log.record = record;
    Ok(())
}

impl Updates for CodedUpdates {
    fn next(&mut self) -> ClientFuture<'_, Option<LiveFrame>> {
        Box::pin(self.next_frame())
    }
}

impl Client for EncryptedClient {
    fn call(&self, call: Call) -> ClientFuture<'_, Reply> {
        Box::pin(self.execute(call))
    }

    fn start_and_watch(&self, start: StartRequest) -> ClientFuture<'_, (StartReply, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let key = start.run.clone();
            let mut call = Call::StartRun(start);
            self.encode(&mut call)?;
            let Call::StartRun(start) = call else { unreachable!("it is a start") };
            let (started, inner) = self.inner.start_and_watch(start).await?;
            Ok((started, self.coded(inner, &key)))
        })
    }

    fn watch_outcome(&self, key: &RunKey) -> Arc<dyn Outcome> {
        self.coded(self.inner.watch_outcome(key), key)
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        self.inner.watch_run(key)
    }

    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView> {
        Box::pin(async move {
            let mut view = self.inner.read_run(key.clone()).await?;
            let Err(error) = view_in(&self.boundary, &mut view, &PayloadRuns::of(&key, None)) else { return Ok(view) };
            let payload_runs = self.originals(&key, view.head.generation).await?;
            if payload_runs.is_alone() {
                return Err(unreadable(error));
            }
            view_in(&self.boundary, &mut view, &payload_runs).map_err(unreadable)?;
            Ok(view)
        })
    }

    fn watch_updates(&self, request: WatchRequest) -> ClientFuture<'_, Box<dyn Updates>> {
        Box::pin(async move {
            let key = request.run.clone();
            let inner = self.inner.watch_updates(request).await?;
            let client = EncryptedClient { inner: self.inner.clone(), boundary: self.boundary.clone() };
            Ok(Box::new(CodedUpdates { inner, client, key, undecoded: None }) as Box<dyn Updates>)
        })
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        let (mut inner, boundary, context) =
            (self.inner.listen(key), self.boundary.clone(), [PayloadContext::of(key, "emitted")]);
        tokio::spawn(async move {
            loop {
                match inner.recv().await {
                    // An undecodable value comes from a process with another codec.
                    Ok(mut emitted) => {
                        let is_readable = boundary.payload(Direction::In, &mut emitted.value, &context).is_ok()
                            && boundary.maybe(Direction::In, &mut emitted.meta, &context).is_ok();
                        if is_readable && sender.send(emitted).is_err() {
                            return; // no listener is left
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
        receiver
    }
}
