//! Table of all routes: path, scope, parameters, body and responses. The router and the OpenAPI document are made from this
//! table, so they have the same routes.

use std::future::Future;
use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use axum::routing::MethodFilter;

use crate::auth::Scope;
use crate::handlers::{
    agents, approvals, attachments, bulk, drive, entries, external, kinds, operations, promises, runs, servers, spend, tasks,
    transfer, worker_list,
};
use crate::http::diagnosis;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::{ag_ui, webhooks, workers};

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
type Handler = fn(Request) -> HandlerFuture;

/// One route.
pub struct Route {
    pub verb: Verb,
    /// Path template: `{id}` stands for any text.
    pub path: &'static str,
    /// Required scope; `None` is a public route.
    pub scope: Option<Scope>,
    /// The scope is required for all namespaces.
    pub server_wide: bool,
    pub summary: &'static str,
    pub query: &'static [Parameter],
    pub body: Option<BodyShape>,
    pub answers: &'static [Answer],
    pub(crate) handler: Handler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub fn method(self) -> Method {
        match self {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
            Verb::Delete => Method::DELETE,
        }
    }

    pub(crate) fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
        }
    }
}

/// Query parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    /// Name of its JSON Schema type, or of one of our schemas.
    pub kind: &'static str,
    pub text: &'static str,
    pub repeats: bool,
}

impl Parameter {
    pub const fn new(name: &'static str, kind: &'static str, text: &'static str) -> Parameter {
        Parameter { name, kind, text, repeats: false }
    }

    /// Returns whether `name` is this parameter; `NAME` at the end of the parameter's name stands for any text.
    pub(crate) fn fits(&self, name: &str) -> bool {
        match self.name.strip_suffix("NAME") {
            Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
            None => self.name == name,
        }
    }

    pub const fn repeated(self) -> Parameter {
        Parameter { repeats: true, ..self }
    }
}

/// Schema of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyShape {
    pub content_type: &'static str,
    pub schema: &'static str,
    pub required: bool,
}

/// Response that is not a problem.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    pub status: u16,
    pub text: &'static str,
    /// Content type and schema of the body, if there is one.
    pub content: &'static [(&'static str, &'static str)],
}

const fn answer(status: u16, text: &'static str, content: &'static [(&'static str, &'static str)]) -> Answer {
    Answer { status, text, content }
}

const JSON: &str = "application/json";

const fn route(verb: Verb, path: &'static str, scope: Option<Scope>, summary: &'static str, handler: Handler) -> Route {
    Route { verb, path, scope, server_wide: false, summary, query: &[], body: None, answers: &[], handler }
}

impl Route {
    const fn server_wide(self) -> Route {
        Route { server_wide: true, ..self }
    }

    const fn query(self, query: &'static [Parameter]) -> Route {
        Route { query, ..self }
    }

    const fn body(self, schema: &'static str) -> Route {
        Route { body: Some(BodyShape { content_type: JSON, schema, required: true }), ..self }
    }

    const fn lines(self, schema: &'static str) -> Route {
        Route { body: Some(BodyShape { content_type: "application/x-ndjson", schema, required: true }), ..self }
    }

    const fn bytes(self, schema: &'static str) -> Route {
        Route { body: Some(BodyShape { content_type: "application/octet-stream", schema, required: true }), ..self }
    }

    const fn body_or_none(self, schema: &'static str) -> Route {
        Route { body: Some(BodyShape { content_type: JSON, schema, required: false }), ..self }
    }

    const fn answers(self, answers: &'static [Answer]) -> Route {
        Route { answers, ..self }
    }
}

const PROBLEM: &str = "application/problem+json";
/// Response to an input that does not fit its schema; other invalid requests have the same status.
const UNFIT: Answer = answer(400, "The input does not fit the schema of its kind", &[(PROBLEM, "InputProblem")]);
const APPENDED: &[Answer] = &[answer(202, "Recorded; the run takes note of it", &[(JSON, "Appended")])];
const FORKED: &[Answer] =
    &[answer(201, "The new run", &[(JSON, "StartedRun")]), answer(200, "The same fork was made before", &[(JSON, "StartedRun")])];
const ANSWERED: &[Answer] = &[answer(200, "Recorded, now or before", &[(JSON, "Appended")])];
const WAIT: Parameter = Parameter::new("wait_ms", "WaitMs", "How long to wait for it, at most 60000");
const KEPT: &[Answer] = &[
    answer(200, "Kept, now or before", &[(JSON, "ExternalAnswer")]),
    answer(201, "Kept; there was no such run", &[(JSON, "ExternalAnswer")]),
    answer(409, "Nothing was kept: somebody else appended first", &[("application/problem+json", "LogConflict")]),
];

const BULK: &[Answer] = &[answer(200, "What became of the batch, or what the filter finds", &[(JSON, "BulkDone")])];
const EXPORT: &[Answer] = &[answer(200, "The lines", &[("application/x-ndjson", "Lines")])];
const KIND: Parameter = Parameter::new("kind", "string", "Only runs of this kind");
const VERSION: Parameter =
    Parameter::new("version", "string", "Only runs of this version, or without one if it is empty; may be given several times")
        .repeated();
const STATUS: Parameter = Parameter::new("status", "string", "Only runs of this status; may be given several times").repeated();
const ATTRIBUTE: Parameter = Parameter::new("attr.NAME", "string", "Only runs with this value of the attribute NAME").repeated();
const CREATED_FROM: Parameter = Parameter::new("created_from", "string", "Only runs created then or later");
const CREATED_UNTIL: Parameter = Parameter::new("created_until", "string", "Only runs created before");

/// All routes.
pub static ROUTES: &[Route] = &[
    route(Verb::Post, "/v1/runs", Some(Scope::Start), "Start a run, or find it by its id", |request| {
        Box::pin(runs::start(request))
    })
    .body("StartRun")
    .answers(&[
        answer(201, "Started", &[(JSON, "StartedRun")]),
        answer(200, "The same run was started before", &[(JSON, "StartedRun")]),
        UNFIT,
    ]),
    route(Verb::Get, "/v1/runs", Some(Scope::Read), "List runs, newest first", |request| Box::pin(runs::list(request)))
        .query(&[
            KIND,
            VERSION,
            STATUS,
            ATTRIBUTE,
            CREATED_FROM,
            CREATED_UNTIL,
            Parameter::new("limit", "Limit", "Runs on a page, from 1 to 1000; 100 otherwise"),
            Parameter::new("cursor", "string", "Where the page before said the next one begins"),
        ])
        .answers(&[answer(200, "A page of runs", &[(JSON, "RunPage")])]),
    route(Verb::Get, "/v1/runs/{id}", Some(Scope::Read), "Show one run", |request| Box::pin(runs::show(request)))
        .answers(&[answer(200, "The run as it stands", &[(JSON, "RunView")])]),
    route(Verb::Delete, "/v1/runs/{id}", Some(Scope::Admin), "Delete a closed run with everything it left", |request| {
        Box::pin(runs::delete(request))
    })
    .query(&[Parameter::new("reason", "string", "Why")])
    .answers(&[answer(204, "Deleted", &[])]),
    route(Verb::Get, "/v1/runs/{id}/events", Some(Scope::Read), "Read a run's log, or attach to it", |request| {
        Box::pin(runs::events(request))
    })
    .query(&[
        Parameter::new("from", "Index", "The first index; 0 otherwise"),
        Parameter::new("generation", "Generation", "The generation; the current one otherwise"),
        Parameter::new("limit", "Limit", "Events on a page, from 1 to 1000; 100 otherwise. Not for attach"),
        Parameter::new("until", "Until", "For attach: `end`, or `pause` to stop when the run waits or is paused"),
    ])
    .answers(&[answer(
        200,
        "A page of the log; for those who accept text/event-stream, the log from there on and as it grows",
        &[(JSON, "EventPage"), ("text/event-stream", "EventStream")],
    )]),
    route(
        Verb::Get,
        "/v1/runs/{id}/failures",
        Some(Scope::Operate),
        "Show the failures of a run with what callees said, providers of models for example",
        |request| Box::pin(diagnosis::list(request)),
    )
    .query(&[Parameter::new("generation", "Generation", "The generation; the current one otherwise")])
    .answers(&[answer(200, "The latest 100 failures of the log, oldest first", &[(JSON, "Failures")])]),
    route(Verb::Get, "/v1/runs/{id}/stream", Some(Scope::Read), "Read what is said about a run while it goes on", |request| {
        Box::pin(runs::stream(request))
    })
    .query(&[
        Parameter::new("offset", "StreamOffset", "Of the last frame that is known; what is not final yet otherwise"),
        Parameter::new("wait_ms", "WaitMs", "How long to wait for more, at most 60000. Not for event streams"),
    ])
    .answers(&[answer(
        200,
        "What follows; for those who accept text/event-stream, until the run is closed",
        &[(JSON, "StreamPage"), ("text/event-stream", "FrameStream")],
    )]),
    route(
        Verb::Post,
        "/v1/agents/{id}/ag-ui",
        Some(Scope::Start),
        "Take a turn with an agent of this kind, in the words of AG-UI",
        |request| Box::pin(ag_ui::run(request)),
    )
    .body("RunAgentInput")
    .answers(&[answer(200, "The events of the turn, until the agent comes to rest", &[("text/event-stream", "AgUiEvents")])]),
    route(Verb::Get, "/v1/runs/{id}/entries", Some(Scope::Read), "Read the conversation of an agent, backwards", |request| {
        Box::pin(entries::read(request))
    })
    .query(&[
        Parameter::new("before", "EntryCursor", "Where the page behind said that this one ends"),
        Parameter::new("limit", "Limit", "Entries on a page, from 1 to 1000; 100 otherwise"),
        Parameter::new("leaf", "EntryCursor", "The conversation that ends in this entry; the current one otherwise"),
    ])
    .answers(&[answer(200, "A page of the conversation, oldest entry first", &[(JSON, "Entries")])]),
    route(
        Verb::Post,
        "/v1/runs/{id}/entries",
        Some(Scope::Signal),
        "Append an entry to the conversation of an agent",
        |request| Box::pin(entries::append(request)),
    )
    .body("AppendEntry")
    .answers(&[
        answer(202, "Recorded; the agent takes it in when its next turn begins", &[(JSON, "AppendedEntry")]),
        answer(200, "The same entry was appended under this key before", &[(JSON, "AppendedEntry")]),
    ]),
    route(
        Verb::Post,
        "/v1/runs/{id}/branch",
        Some(Scope::Signal),
        "Go on from an earlier entry of the conversation of an agent",
        |request| Box::pin(entries::branch(request)),
    )
    .body("BranchRun")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/messages", Some(Scope::Signal), "Say something to an agent", |request| {
        Box::pin(entries::message(request))
    })
    .body("SendMessage")
    .answers(APPENDED),
    route(
        Verb::Post,
        "/v1/attachments",
        Some(Scope::Signal),
        "Keep bytes that messages to agents name by their hash",
        |request| Box::pin(attachments::put(request)),
    )
    .bytes("Attachment")
    .answers(&[answer(201, "Kept, durably, under the SHA-256 of the bytes", &[(JSON, "KeptAttachment")])]),
    route(
        Verb::Post,
        "/v1/agents/{id}/resume",
        Some(Scope::Work),
        "Go on with an agent that nobody works on; of all who want to, one succeeds",
        |request| Box::pin(agents::resume(request)),
    )
    .body_or_none("ResumeAgent")
    .answers(&[answer(200, "Whether this worker has it now, and if not, why", &[(JSON, "ResumedAgent")])]),
    route(Verb::Post, "/v1/runs/{id}/signals", Some(Scope::Signal), "Put a signal into a run's mailbox", |request| {
        Box::pin(runs::signal(request))
    })
    .body("SendSignal")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/cancel", Some(Scope::Operate), "Ask a run to stop; its code may compensate", |request| {
        Box::pin(runs::cancel(request))
    })
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/terminate", Some(Scope::Operate), "End a run at once", |request| {
        Box::pin(runs::terminate(request))
    })
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/pause", Some(Scope::Operate), "Let a run stand still, timers included", |request| {
        Box::pin(runs::pause(request))
    })
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/resume", Some(Scope::Operate), "Let a paused run go on", |request| {
        Box::pin(runs::resume(request))
    })
    .body_or_none("Resume")
    .answers(APPENDED),
    route(
        Verb::Post,
        "/v1/runs/{id}/retry",
        Some(Scope::Operate),
        "Let a failed run go on from what it failed over",
        |request| Box::pin(runs::retry(request)),
    )
    .body_or_none("RetryRun")
    .answers(&[
        answer(202, "Goes on as its next generation", &[(JSON, "StartedRun")]),
        answer(200, "The same was asked for before", &[(JSON, "StartedRun")]),
    ]),
    route(
        Verb::Post,
        "/v1/runs/{id}/fork",
        Some(Scope::Operate),
        "Begin a run that goes on from a point of this one",
        |request| Box::pin(runs::fork(request)),
    )
    .body_or_none("ForkRun")
    .answers(FORKED),
    route(Verb::Post, "/v1/runs/{id}/reset", Some(Scope::Operate), "Like a fork, and end the original", |request| {
        Box::pin(runs::reset(request))
    })
    .body_or_none("ResetRun")
    .answers(FORKED),
    route(
        Verb::Post,
        "/v1/runs/{id}/updates",
        Some(Scope::Signal),
        "Ask a run for a change and wait for its answer",
        |request| Box::pin(runs::update(request)),
    )
    .query(&[WAIT])
    .body("SendUpdate")
    .answers(&[
        answer(200, "Answered", &[(JSON, "UpdateAnswer")]),
        answer(202, "Recorded and not answered yet; the same id again waits on", &[(JSON, "UpdateAnswer")]),
    ]),
    route(Verb::Post, "/v1/runs/{id}/queries", Some(Scope::Read), "Ask a run's code something; nothing is recorded", |request| {
        Box::pin(runs::query(request))
    })
    .query(&[WAIT])
    .body("AskQuery")
    .answers(&[answer(200, "Answered", &[(JSON, "QueryAnswer")])]),
    route(Verb::Get, "/v1/runs/{id}/result", Some(Scope::Read), "How a run ended", |request| Box::pin(runs::result(request)))
        .query(&[WAIT])
        .answers(&[
            answer(200, "It has ended", &[(JSON, "RunResult")]),
            answer(202, "It has not ended yet", &[(JSON, "RunResult")]),
        ]),
    route(Verb::Post, "/v1/tasks", Some(Scope::Start), "Queue a task without a workflow, or find it by its id", |request| {
        Box::pin(tasks::start(request))
    })
    .body("StartTask")
    .answers(&[
        answer(201, "Queued", &[(JSON, "StartedTask")]),
        answer(200, "The same task was queued before", &[(JSON, "StartedTask")]),
        UNFIT,
    ]),
    route(Verb::Get, "/v1/tasks", Some(Scope::Read), "List open tasks, of workflows and by themselves", |request| {
        Box::pin(worker_list::tasks(request))
    })
    .query(&[
        Parameter::new("state", "TaskState", "Only `queued`, `running` or `quarantined` ones"),
        Parameter::new("run", "Name", "Only those of this run"),
        Parameter::new("limit", "Limit", "How many, from 1 to 1000; 100 otherwise"),
    ])
    .answers(&[answer(200, "Open tasks, in the order in which they were scheduled", &[(JSON, "OpenTasks")])]),
    route(Verb::Post, "/v1/tasks/{id}/retry", Some(Scope::Operate), "Put a quarantined task back on its queue", |request| {
        Box::pin(worker_list::retry(request))
    })
    .answers(&[answer(204, "It waits for a worker again", &[])]),
    route(Verb::Get, "/v1/queues", Some(Scope::Read), "What waits in the queues, and how many work on it", |request| {
        Box::pin(worker_list::queues(request))
    })
    .answers(&[answer(200, "Every queue with tasks or workers, by kind", &[(JSON, "Queues")])]),
    route(Verb::Get, "/v1/workers", Some(Scope::Read), "List the workers that are connected", |request| {
        Box::pin(worker_list::workers(request))
    })
    .answers(&[answer(200, "The workers of the namespace", &[(JSON, "Workers")])]),
    route(Verb::Get, "/v1/servers", Some(Scope::Admin), "List the servers that share the store", |request| {
        Box::pin(servers::list(request))
    })
    .server_wide()
    .answers(&[answer(200, "Every server that was heard of lately, and this one", &[(JSON, "Servers")])]),
    route(Verb::Get, "/v1/deleted", Some(Scope::Read), "List runs that were deleted by hand, newest first", |request| {
        Box::pin(worker_list::deleted(request))
    })
    .query(&[
        Parameter::new("run", "Name", "Only this one"),
        Parameter::new("limit", "Limit", "How many, from 1 to 1000; 100 otherwise"),
    ])
    .answers(&[answer(200, "What was deleted, and why", &[(JSON, "DeletedRuns")])]),
    route(Verb::Get, "/v1/tasks/{id}", Some(Scope::Read), "Show a standalone task", |request| Box::pin(tasks::show(request)))
        .answers(&[answer(200, "The task as it stands", &[(JSON, "TaskView")])]),
    route(Verb::Get, "/v1/tasks/{id}/result", Some(Scope::Read), "How a standalone task ended", |request| {
        Box::pin(tasks::result(request))
    })
    .query(&[WAIT])
    .answers(&[answer(200, "It has ended", &[(JSON, "RunResult")]), answer(202, "It has not ended yet", &[(JSON, "RunResult")])]),
    route(Verb::Post, "/v1/tasks/{id}/cancel", Some(Scope::Operate), "Take a standalone task back", |request| {
        Box::pin(tasks::cancel(request))
    })
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/bulk", Some(Scope::Operate), "Do a batch of one verb for the runs that a filter finds", |request| {
        Box::pin(bulk::act(request))
    })
    .body("Bulk")
    .answers(BULK),
    route(Verb::Post, "/v1/bulk/delete", Some(Scope::Admin), "Delete a batch of the runs that a filter finds", |request| {
        Box::pin(bulk::delete(request))
    })
    .body("Bulk")
    .answers(BULK),
    route(Verb::Get, "/v1/runs/{id}/export", Some(Scope::Read), "A run with all its records, as lines of JSON", |request| {
        Box::pin(transfer::export_one(request))
    })
    .answers(EXPORT),
    route(Verb::Get, "/v1/export", Some(Scope::Read), "The runs that a filter finds, as lines of JSON", |request| {
        Box::pin(transfer::export(request))
    })
    .query(&[
        KIND,
        VERSION,
        STATUS,
        ATTRIBUTE,
        CREATED_FROM,
        CREATED_UNTIL,
        Parameter::new("limit", "integer", "Runs on a page, from 1 to 1000; 100 otherwise"),
        Parameter::new("cursor", "string", "What the header `Onward-Next` of the page before said"),
    ])
    .answers(EXPORT),
    route(Verb::Post, "/v1/import", Some(Scope::Admin), "Take runs in that were exported", |request| {
        Box::pin(transfer::import(request))
    })
    .lines("Lines")
    .answers(&[answer(200, "What became of them", &[(JSON, "Imported")])]),
    route(Verb::Get, "/v1/versions", Some(Scope::Read), "Count the open runs that need each version of the code", |request| {
        Box::pin(runs::versions(request))
    })
    .answers(&[answer(200, "The counts, by kind and version", &[(JSON, "Versions")])]),
    route(Verb::Get, "/v1/spend", Some(Scope::Read), "What was spent, by model, day, run or tree", |request| {
        Box::pin(spend::read(request))
    })
    .query(&[
        Parameter::new("by", "SpendBy", "`model` (the default), `day`, `run`, or `tree`: a run with its children and forks"),
        Parameter::new("from", "Time", "Only attempts that began on this day, in UTC, or later"),
        Parameter::new("to", "Time", "Only attempts that began before this moment, or later on its day"),
        Parameter::new("tree", "Name", "Only the tree that this run is of"),
        Parameter::new("limit", "Limit", "How many, from 1 to 1000; 100 otherwise"),
    ])
    .answers(&[answer(200, "The sums: the newest day first, or else what cost most", &[(JSON, "Spend")])]),
    route(Verb::Get, "/v1/approvals", Some(Scope::Read), "List open approvals, oldest first", |request| {
        Box::pin(approvals::list(request))
    })
    .query(&[
        Parameter::new("run", "Name", "Only those of this run"),
        Parameter::new("below", "Name", "Only those of this run and of the runs below it: its children, theirs, and so on"),
        Parameter::new("limit", "Limit", "How many, from 1 to 1000; 100 otherwise"),
    ])
    .answers(&[answer(200, "Open approvals", &[(JSON, "Approvals")])]),
    route(Verb::Post, "/v1/approvals/{id}", Some(Scope::Approve), "Decide an approval, once", |request| {
        Box::pin(approvals::decide(request))
    })
    .body("Decide")
    .answers(ANSWERED),
    route(Verb::Post, "/v1/promises/{id}", Some(Scope::Signal), "Resolve a promise, once", |request| {
        Box::pin(promises::resolve(request))
    })
    .body("Resolve")
    .answers(ANSWERED),
    route(Verb::Post, "/v1/hooks/{id}", None, "Take in a signed webhook; the signature is the credential", |request| {
        Box::pin(webhooks::receive(request))
    })
    .body("Any")
    .answers(&[answer(202, "Taken, now or before", &[(JSON, "HookTaken")])]),
    route(Verb::Get, "/v1/kinds", Some(Scope::Read), "List kinds: what they take and give, who has code for them", |request| {
        Box::pin(kinds::list(request))
    })
    .answers(&[answer(200, "The kinds that have schemas or workers", &[(JSON, "Kinds")])]),
    route(Verb::Get, "/v1/kinds/{id}", Some(Scope::Read), "Show one kind", |request| Box::pin(kinds::show(request)))
        .answers(&[answer(200, "The workflow and the task of that name", &[(JSON, "Kinds")])]),
    route(
        Verb::Delete,
        "/v1/kinds/{id}",
        Some(Scope::Admin),
        "Remove what workers have declared about a kind: its schemas, and that it is internal",
        |request| Box::pin(kinds::remove(request)),
    )
    .answers(&[answer(204, "Removed, until a worker declares it again", &[])]),
    route(
        Verb::Post,
        "/v1/drive/{id}",
        Some(Scope::Work),
        "Become the worker of one run, with a signal or a decision for it",
        |request| Box::pin(drive::drive(request)),
    )
    .body_or_none("Drive")
    .answers(&[answer(200, "The run to work on, or how it stands", &[(JSON, "Driven")])]),
    route(Verb::Put, "/v1/external/{id}", Some(Scope::Work), "Set the state of an outside engine's run", |request| {
        Box::pin(external::set_state(request))
    })
    .body("SetExternal")
    .answers(KEPT),
    route(Verb::Get, "/v1/external/{id}", Some(Scope::Read), "Show the run of an outside engine", |request| {
        Box::pin(external::show(request))
    })
    .answers(&[answer(200, "The run as its engine says it stands", &[(JSON, "ExternalRun")])]),
    route(
        Verb::Delete,
        "/v1/external/{id}",
        Some(Scope::Work),
        "Delete the run of an outside engine, open or closed",
        |request| Box::pin(external::delete(request)),
    )
    .query(&[Parameter::new("reason", "string", "Why")])
    .answers(&[answer(204, "Deleted", &[])]),
    route(
        Verb::Post,
        "/v1/external/{id}/events",
        Some(Scope::Work),
        "Append events of an outside engine where it believes its log to end",
        |request| Box::pin(external::append(request)),
    )
    .body("AppendExternal")
    .answers(KEPT),
    route(
        Verb::Get,
        "/v1/external/{id}/events",
        Some(Scope::Read),
        "Read the log of an outside engine, or attach to it",
        |request| Box::pin(external::events(request)),
    )
    .query(&[
        Parameter::new("from", "integer", "The first index, as the engine counts; 0 otherwise"),
        Parameter::new("limit", "integer", "Events on a page, from 1 to 1000; 100 otherwise. Not for attach"),
    ])
    .answers(&[answer(
        200,
        "A page of events; for those who accept text/event-stream, the events from there on and as they come",
        &[(JSON, "ExternalEvents"), ("text/event-stream", "EventStream")],
    )]),
    route(
        Verb::Post,
        "/v1/workers/{id}/frames",
        Some(Scope::Work),
        "Bring a worker's frames and take what there is for it",
        |request| Box::pin(workers::frames(request)),
    )
    .query(&[WAIT])
    .body("WorkerFrames")
    .answers(&[answer(200, "What there is, in order; nothing when the time is over", &[(JSON, "ServerFrames")])]),
    route(Verb::Get, "/", None, "What this is and where to go on", |request| Box::pin(operations::index(request)))
        .answers(&[answer(200, "A few lines of text", &[("text/plain", "Text")])]),
    route(Verb::Get, "/healthz", None, "Whether the process lives", |request| Box::pin(operations::healthz(request)))
        .answers(&[answer(200, "It does", &[("text/plain", "Text")])]),
    route(Verb::Get, "/readyz", None, "Whether the store answers and takes writes", |request| {
        Box::pin(operations::readyz(request))
    })
    .answers(&[answer(
        200,
        "It does, or one of its databases does; each that does not has a line",
        &[("text/plain", "Text")],
    )]),
    route(Verb::Get, "/metrics", Some(Scope::Read), "Counters for Prometheus, of all namespaces", |request| {
        Box::pin(operations::metrics(request))
    })
    .server_wide()
    .answers(&[answer(200, "The counters", &[("text/plain", "Text")])]),
    route(Verb::Get, "/openapi.json", None, "This document", |request| Box::pin(operations::openapi(request)))
        .answers(&[answer(200, "OpenAPI 3.1", &[(JSON, "Document")])]),
];
