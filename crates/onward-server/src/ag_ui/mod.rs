//! AG-UI: `POST /v1/agents/{kind}/ag-ui` takes the messages of a user and responds with the events of one turn.
//!
//! A thread is a run of the kind, found by the thread's id and started with the first message. Later messages are signals with
//! the ids of the messages, so that a repeated request sends nothing twice. A reader only reads: the run continues without it,
//! and a repeated request attaches to it again.

mod client;
mod finish;
mod input;
mod messages;
mod parts;
mod translate;
mod turn;

use axum::response::Response;
use onward_core::api::{Call, DecideRequest, Signal, SignalRequest, StartRequest};
use onward_core::conversation::MESSAGE;
use onward_core::{ErrorCode, Index, Name, RunKey};
use onward_runtime::{CallRef, Decide, Runtime, RuntimeError};
use onward_store::StoreError;

use crate::auth::Scope;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::sse;
use crate::new_id;
use crate::server::Server;
use crate::verbs::{self, Principal};
use input::{Again, RunAgentInput, Started, UserMessage};
use messages::is_entry;
use turn::AgUiTurn;

pub(crate) async fn run(mut request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.take().unwrap_or_default())?;
    let input: RunAgentInput = request.json().await?;
    let key = RunKey::new(request.by.namespace.clone(), input.run(kind.as_str())?);
    let request = AgUiRequest { by: request.by.clone(), server: request.server, key, input };
    request.by.check_also(Scope::Read, &request.server).await?;
    request.input.check()?;
    let mut sent = Vec::new();
    let mut is_there = request.is_there(&kind).await?;
    if !is_there && let Some(last) = request.input.new_messages().last() {
        is_there = !request.start(kind, last).await?;
        sent = request.input.new_messages();
    }
    if is_there {
        let unsent_messages = request.unsent_messages().await?;
        request.decide().await?;
        request.send_messages(&unsent_messages).await?;
        sent = request.input.new_messages();
    }
    let (events, sink) = sse::channel(&request.server);
    let turn = AgUiTurn::new(request.server, request.key, &request.input, sent, sink);
    tokio::spawn(turn.run(request.by.pass));
    Ok(events.into_response())
}

/// Request with its caller.
struct AgUiRequest {
    server: Server,
    by: Principal,
    key: RunKey,
    input: RunAgentInput,
}

impl AgUiRequest {
    fn runtime(&self) -> &Runtime {
        self.server.runtime()
    }

    async fn is_there(&self, kind: &Name) -> Result<bool, Problem> {
        match self.runtime().read_head(&self.key).await {
            // After a handoff the run has another kind; requests to its first kind still reach it.
            Ok(head) if head.kind == *kind || head.first_kind() == kind => Ok(true),
            Ok(head) => {
                let why = format!("run {} has the kind `{}`", self.key.id, head.kind);
                Err(RequestError::JsonInvalid { why }.into())
            }
            Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts the run of a new thread. Concurrent requests with the same content are one start. Returns false if another request
    /// started the run with other content; then this one is a message to that run.
    async fn start(&self, kind: Name, last: &UserMessage) -> Result<bool, Problem> {
        let start = StartRequest::new(self.key.clone(), kind, self.input.start(last), new_id::random_u64());
        match verbs::execute(&self.server, &self.by, Call::StartRun(start)).await {
            Err(problem) if problem.code == ErrorCode::RunExists => Ok(false),
            started => started.map(|_| true),
        }
    }

    /// Returns the messages that the run was not started with. Fails if a message has the id of another one with different
    /// content, as a signal would; otherwise the client would assume that it was delivered.
    async fn unsent_messages(&self) -> Result<Vec<UserMessage>, Problem> {
        let messages = self.input.new_messages();
        if messages.is_empty() {
            return Ok(messages);
        }
        let first = self.runtime().read_log(&self.key, Some(0), Index(0), 1).await?;
        let started = first.first().and_then(|record| record.started()).map(|started| Started::read(&started.input));
        let started = started.unwrap_or_default();
        let seen = messages.iter().map(|message| started.compare(message)).collect::<Vec<_>>();
        if let Some((message, _)) = messages.iter().zip(&seen).find(|(_, seen)| **seen == Again::Other) {
            let what = format!("the message `{}`", message.id);
            return Err(RuntimeError::from(StoreError::IdTaken { key: self.key.clone(), what, index: Index(0) }).into());
        }
        let mut unsent_messages = Vec::new();
        for (message, seen) in messages.into_iter().zip(seen) {
            // The client has messages that were sent outside of AG-UI under the ids of their entries.
            if seen == Again::New && !is_entry(self.runtime(), &self.key, &message.id).await? {
                unsent_messages.push(message);
            }
        }
        Ok(unsent_messages)
    }

    async fn send_messages(&self, messages: &[UserMessage]) -> Result<(), Problem> {
        for message in messages {
            let signal = Signal { name: Name::new(MESSAGE)?, payload: message.payload(), signal_id: Some(message.id.clone()) };
            let request = SignalRequest { run: self.key.clone(), signal };
            verbs::execute(&self.server, &self.by, Call::SignalRun(request)).await?;
        }
        Ok(())
    }

    /// Decides the approvals that the client got as interrupts. A repeated response is the same decision.
    async fn decide(&self) -> Result<(), Problem> {
        if !self.input.resume.is_empty() {
            self.by.check_also(Scope::Approve, &self.server).await?;
        }
        // All decisions are validated before the first one is applied.
        let decisions = self.input.resume.iter().map(|resume| Ok((resume, resume.decision()?)));
        for (resume, (approved, feedback, answer)) in decisions.collect::<Result<Vec<_>, RequestError>>()? {
            let call = CallRef::parse(&self.key.namespace, &resume.interrupt_id)?;
            if !self.runtime().is_below(&call.run, &self.key).await? {
                let why = format!("interrupt {} belongs to another thread", resume.interrupt_id);
                return Err(RequestError::JsonInvalid { why }.into());
            }
            let decision_id = format!("{}/{}", self.input.run_id, resume.interrupt_id);
            let decide = Decide { approved, feedback, decided_by: None, answer, decision_id };
            let request = DecideRequest { namespace: call.run.namespace, approval: resume.interrupt_id.clone(), decide };
            verbs::execute(&self.server, &self.by, Call::DecideApproval(request)).await?;
        }
        Ok(())
    }
}
