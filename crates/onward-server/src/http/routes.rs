//! Table of all routes: path, scope, parameters, body and responses. The router and the OpenAPI document are made from this
//! table, so they have the same routes.

use std::future::Future;
use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use axum::routing::MethodFilter;

use crate::auth::Scope;
use crate::handlers::{
    agents, approvals, attachments, bulk, drive, entries, external, kinds, operations, promises, rate_limits, runs, servers,
    spend, tasks, transfer, worker_list,
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
    /// Operation id in the OpenAPI document: the name of the method of a generated client.
    pub id: &'static str,
    pub summary: &'static str,
    pub query: &'static [Parameter],
    pub body: Option<BodyShape>,
    pub answers: &'static [ResponseShape],
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
pub struct ResponseShape {
    pub status: u16,
    pub text: &'static str,
    /// Content type and schema of the body, if there is one.
    pub content: &'static [(&'static str, &'static str)],
}

const fn answer(status: u16, text: &'static str, content: &'static [(&'static str, &'static str)]) -> ResponseShape {
    ResponseShape { status, text, content }
}

const JSON: &str = "application/json";

const fn route(verb: Verb, path: &'static str, scope: Option<Scope>, summary: &'static str, handler: Handler) -> Route {
    Route { verb, path, scope, server_wide: false, id: "", summary, query: &[], body: None, answers: &[], handler }
}

impl Route {
    const fn id(self, id: &'static str) -> Route {
        Route { id, ..self }
    }

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

    const fn answers(self, answers: &'static [ResponseShape]) -> Route {
        Route { answers, ..self }
    }
}

const PROBLEM: &str = "application/problem+json";
/// Response to an input that does not fit its schema; other invalid requests have the same status.
const UNFIT: ResponseShape = answer(400, "The input does not match the schema of its kind", &[(PROBLEM, "InputProblem")]);
const APPENDED: &[ResponseShape] = &[answer(202, "Recorded in the run's log", &[(JSON, "Appended")])];
const FORKED: &[ResponseShape] = &[
    answer(201, "The new run", &[(JSON, "StartedRun")]),
    answer(200, "The same fork was requested before", &[(JSON, "StartedRun")]),
];
const ANSWERED: &[ResponseShape] = &[answer(200, "Recorded, now or earlier", &[(JSON, "Appended")])];
const WAIT: Parameter = Parameter::new("wait_ms", "WaitMs", "Time to wait in milliseconds, at most 60000");
const KEPT: &[ResponseShape] = &[
    answer(200, "Stored, now or earlier", &[(JSON, "ExternalAnswer")]),
    answer(201, "Stored; the run was created", &[(JSON, "ExternalAnswer")]),
    answer(409, "Nothing was stored: another client appended first", &[("application/problem+json", "LogConflict")]),
];

const BULK: &[ResponseShape] = &[answer(200, "Result of the batch, or the runs that the filter matches", &[(JSON, "BulkDone")])];
const EXPORT: &[ResponseShape] = &[answer(200, "The exported lines", &[("application/x-ndjson", "Lines")])];
const KIND: Parameter = Parameter::new("kind", "Name", "Only runs of this kind");
const VERSION: Parameter =
    Parameter::new("version", "string", "Only runs of this version, or without a version if empty; may be repeated").repeated();
const STATUS: Parameter = Parameter::new("status", "Status", "Only runs of this status; may be repeated").repeated();
const ATTRIBUTE: Parameter = Parameter::new("attr.NAME", "string", "Only runs with this value of the attribute NAME").repeated();
const CREATED_FROM: Parameter = Parameter::new("created_from", "Time", "Only runs created at this time or later");
const CREATED_UNTIL: Parameter = Parameter::new("created_until", "Time", "Only runs created before this time");

/// All routes.
pub static ROUTES: &[Route] = &[
    route(
        Verb::Post,
        "/v1/runs",
        Some(Scope::Start),
        "Start a run; a repeat with the same id returns the existing run",
        |request| Box::pin(runs::start(request)),
    )
    .id("startRun")
    .body("StartRun")
    .answers(&[
        answer(201, "Started", &[(JSON, "StartedRun")]),
        answer(200, "The same run was started before", &[(JSON, "StartedRun")]),
        UNFIT,
    ]),
    route(Verb::Get, "/v1/runs", Some(Scope::Read), "List runs, newest first", |request| Box::pin(runs::list(request)))
        .id("listRuns")
        .query(&[
            KIND,
            VERSION,
            STATUS,
            ATTRIBUTE,
            CREATED_FROM,
            CREATED_UNTIL,
            Parameter::new("limit", "Limit", "Runs per page, from 1 to 1000; default 100"),
            Parameter::new("cursor", "string", "The `next` of the previous page"),
        ])
        .answers(&[answer(200, "A page of runs", &[(JSON, "RunPage")])]),
    route(Verb::Get, "/v1/runs/{id}", Some(Scope::Read), "Show a run", |request| Box::pin(runs::show(request)))
        .id("getRun")
        .answers(&[answer(200, "The current state of the run", &[(JSON, "RunView")])]),
    route(Verb::Get, "/v1/runs/{id}/children", Some(Scope::Read), "List the children of a run, newest first", |request| {
        Box::pin(runs::children(request))
    })
    .id("listChildren")
    .query(&[
        STATUS,
        Parameter::new("limit", "Limit", "Runs per page, from 1 to 1000; default 100"),
        Parameter::new("cursor", "string", "The `next` of the previous page"),
    ])
    .answers(&[answer(200, "A page of runs", &[(JSON, "RunPage")])]),
    route(Verb::Delete, "/v1/runs/{id}", Some(Scope::Admin), "Delete a closed run and all its data", |request| {
        Box::pin(runs::delete(request))
    })
    .id("deleteRun")
    .query(&[Parameter::new("reason", "string", "Reason")])
    .answers(&[answer(204, "Deleted", &[])]),
    route(Verb::Get, "/v1/runs/{id}/events", Some(Scope::Read), "Read a run's log, or attach to it", |request| {
        Box::pin(runs::events(request))
    })
    .id("listEvents")
    .query(&[
        Parameter::new("from", "Index", "First index; default 0"),
        Parameter::new("generation", "Generation", "Generation; default: the current one"),
        Parameter::new("limit", "Limit", "Events per page, from 1 to 1000; default 100. Not for attach"),
        Parameter::new("until", "Until", "For attach: `end`, or `pause` to stop also when the run waits or is paused"),
    ])
    .answers(&[answer(
        200,
        "A page of the log; with `Accept: text/event-stream`, the log from there on as it grows",
        &[(JSON, "EventPage"), ("text/event-stream", "EventStream")],
    )]),
    route(
        Verb::Get,
        "/v1/runs/{id}/failures",
        Some(Scope::Operate),
        "Show the failures of a run with the error texts of external services, such as model providers",
        |request| Box::pin(diagnosis::list(request)),
    )
    .id("listFailures")
    .query(&[Parameter::new("generation", "Generation", "Generation; default: the current one")])
    .answers(&[answer(200, "The latest 100 failures of the log, oldest first", &[(JSON, "FailureList")])]),
    route(Verb::Get, "/v1/runs/{id}/stream", Some(Scope::Read), "Read the stream of a run", |request| {
        Box::pin(runs::stream(request))
    })
    .id("readStream")
    .query(&[
        Parameter::new(
            "offset",
            "StreamOffset",
            "Offset of the last received frame; without it, the frames that are not final yet",
        ),
        Parameter::new("wait_ms", "WaitMs", "Time to wait for more frames in milliseconds, at most 60000. Not for event streams"),
    ])
    .answers(&[answer(
        200,
        "The next frames; with `Accept: text/event-stream`, all frames until the run is closed",
        &[(JSON, "StreamPage"), ("text/event-stream", "FrameStream")],
    )]),
    route(Verb::Post, "/v1/agents/{id}/ag-ui", Some(Scope::Start), "Run a turn of an agent of this kind over AG-UI", |request| {
        Box::pin(ag_ui::run(request))
    })
    .id("runAgUi")
    .body("RunAgentInput")
    .answers(&[answer(200, "The events of the turn, until the agent is idle", &[("text/event-stream", "AgUiEvents")])]),
    route(
        Verb::Get,
        "/v1/runs/{id}/entries",
        Some(Scope::Read),
        "Read the conversation of an agent, latest page first",
        |request| Box::pin(entries::read(request)),
    )
    .id("listEntries")
    .query(&[
        Parameter::new("before", "EntryCursor", "The `before` of the later page"),
        Parameter::new("limit", "Limit", "Entries per page, from 1 to 1000; default 100"),
        Parameter::new("leaf", "EntryCursor", "Last entry of the conversation; default: the current one"),
    ])
    .answers(&[answer(200, "A page of the conversation, oldest entry first", &[(JSON, "EntryPage")])]),
    route(
        Verb::Post,
        "/v1/runs/{id}/entries",
        Some(Scope::Signal),
        "Append an entry to the conversation of an agent",
        |request| Box::pin(entries::append(request)),
    )
    .id("appendEntry")
    .body("AppendEntry")
    .answers(&[
        answer(202, "Recorded; added to the conversation when the agent's next turn begins", &[(JSON, "AppendedEntry")]),
        answer(200, "The same entry was appended with this key before", &[(JSON, "AppendedEntry")]),
    ]),
    route(
        Verb::Post,
        "/v1/runs/{id}/branch",
        Some(Scope::Signal),
        "Continue the conversation of an agent from an earlier entry",
        |request| Box::pin(entries::branch(request)),
    )
    .id("branchRun")
    .body("BranchRun")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/messages", Some(Scope::Signal), "Send a message to an agent", |request| {
        Box::pin(entries::message(request))
    })
    .id("sendMessage")
    .body("SendMessage")
    .answers(APPENDED),
    route(
        Verb::Post,
        "/v1/attachments",
        Some(Scope::Signal),
        "Store an attachment that messages refer to by its hash",
        |request| Box::pin(attachments::put(request)),
    )
    .id("putAttachment")
    .bytes("Attachment")
    .answers(&[answer(201, "Stored durably under the SHA-256 of the bytes", &[(JSON, "KeptAttachment")])]),
    route(
        Verb::Post,
        "/v1/agents/{id}/resume",
        Some(Scope::Work),
        "Claim an agent that no worker holds; of concurrent requests one succeeds",
        |request| Box::pin(agents::resume(request)),
    )
    .id("claimAgent")
    .body_or_none("ResumeAgent")
    .answers(&[answer(200, "Whether the worker holds the agent now, and the reason if not", &[(JSON, "ResumedAgent")])]),
    route(Verb::Post, "/v1/runs/{id}/signals", Some(Scope::Signal), "Send a signal to a run", |request| {
        Box::pin(runs::signal(request))
    })
    .id("signalRun")
    .body("SendSignal")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/cancel", Some(Scope::Operate), "Cancel a run; its code may compensate", |request| {
        Box::pin(runs::cancel(request))
    })
    .id("cancelRun")
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/terminate", Some(Scope::Operate), "Terminate a run at once", |request| {
        Box::pin(runs::terminate(request))
    })
    .id("terminateRun")
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/pause", Some(Scope::Operate), "Pause a run and its timers", |request| {
        Box::pin(runs::pause(request))
    })
    .id("pauseRun")
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/resume", Some(Scope::Operate), "Resume a paused run", |request| {
        Box::pin(runs::resume(request))
    })
    .id("resumeRun")
    .body_or_none("Resume")
    .answers(APPENDED),
    route(Verb::Post, "/v1/runs/{id}/retry", Some(Scope::Operate), "Retry a failed run from its failure", |request| {
        Box::pin(runs::retry(request))
    })
    .id("retryRun")
    .body_or_none("RetryRun")
    .answers(&[
        answer(202, "Continues as its next generation", &[(JSON, "StartedRun")]),
        answer(200, "The same retry was requested before", &[(JSON, "StartedRun")]),
    ]),
    route(
        Verb::Post,
        "/v1/runs/{id}/fork",
        Some(Scope::Operate),
        "Fork a run: start a new run from a point of its log",
        |request| Box::pin(runs::fork(request)),
    )
    .id("forkRun")
    .body_or_none("ForkRun")
    .answers(FORKED),
    route(Verb::Post, "/v1/runs/{id}/reset", Some(Scope::Operate), "Reset a run: fork it and end the original", |request| {
        Box::pin(runs::reset(request))
    })
    .id("resetRun")
    .body_or_none("ResetRun")
    .answers(FORKED),
    route(
        Verb::Post,
        "/v1/runs/{id}/updates",
        Some(Scope::Signal),
        "Send an update to a run and wait for its result",
        |request| Box::pin(runs::update(request)),
    )
    .id("updateRun")
    .query(&[WAIT])
    .body("SendUpdate")
    .answers(&[
        answer(200, "Answered", &[(JSON, "UpdateAnswer")]),
        answer(202, "Recorded, without a result yet; a repeat with the same id continues to wait", &[(JSON, "UpdateAnswer")]),
    ]),
    route(Verb::Post, "/v1/runs/{id}/queries", Some(Scope::Read), "Query a run's code; nothing is recorded", |request| {
        Box::pin(runs::query(request))
    })
    .id("queryRun")
    .query(&[WAIT])
    .body("AskQuery")
    .answers(&[answer(200, "Answered", &[(JSON, "QueryAnswer")])]),
    route(Verb::Get, "/v1/runs/{id}/result", Some(Scope::Read), "Show the result of a run", |request| {
        Box::pin(runs::result(request))
    })
    .id("getRunResult")
    .query(&[WAIT])
    .answers(&[answer(200, "Ended", &[(JSON, "RunResult")]), answer(202, "Not ended yet", &[(JSON, "RunResult")])]),
    route(
        Verb::Post,
        "/v1/tasks",
        Some(Scope::Start),
        "Queue a standalone task; a repeat with the same id returns the existing task",
        |request| Box::pin(tasks::start(request)),
    )
    .id("startTask")
    .body("StartTask")
    .answers(&[
        answer(201, "Queued", &[(JSON, "StartedTask")]),
        answer(200, "The same task was queued before", &[(JSON, "StartedTask")]),
        UNFIT,
    ]),
    route(Verb::Get, "/v1/tasks", Some(Scope::Read), "List open tasks, of workflows and standalone", |request| {
        Box::pin(worker_list::tasks(request))
    })
    .id("listTasks")
    .query(&[
        Parameter::new("state", "TaskState", "Only tasks in this state: `queued`, `running` or `quarantined`"),
        Parameter::new("run", "Name", "Only of this run"),
        Parameter::new("limit", "Limit", "Maximum number, from 1 to 1000; default 100"),
    ])
    .answers(&[answer(200, "Open tasks, in the order in which they were scheduled", &[(JSON, "OpenTasks")])]),
    route(Verb::Post, "/v1/tasks/{id}/retry", Some(Scope::Operate), "Put a quarantined task back on its queue", |request| {
        Box::pin(worker_list::retry(request))
    })
    .id("retryTask")
    .answers(&[answer(204, "The task is queued again", &[])]),
    route(Verb::Get, "/v1/queues", Some(Scope::Read), "List queues with their tasks and workers", |request| {
        Box::pin(worker_list::queues(request))
    })
    .id("listQueues")
    .answers(&[answer(200, "Every queue with tasks or workers, by kind", &[(JSON, "QueueList")])]),
    route(Verb::Get, "/v1/rate-limits", Some(Scope::Read), "List kinds of tasks that are rate-limited", |request| {
        Box::pin(rate_limits::list(request))
    })
    .id("listRateLimits")
    .answers(&[answer(
        200,
        "The rate-limited kinds of the namespace, with the end of each limit",
        &[(JSON, "RateLimitList")],
    )]),
    route(
        Verb::Post,
        "/v1/rate-limits/reopen",
        Some(Scope::Operate),
        "Release the tasks of a rate-limited kind before the end of its limit",
        |request| Box::pin(rate_limits::reopen(request)),
    )
    .id("reopenRateLimit")
    .body("ReopenRateLimit")
    .answers(&[answer(200, "Whether the kind was rate-limited", &[(JSON, "ReopenedRateLimit")])]),
    route(Verb::Get, "/v1/workers", Some(Scope::Read), "List connected workers", |request| {
        Box::pin(worker_list::workers(request))
    })
    .id("listWorkers")
    .answers(&[answer(200, "The workers of the namespace", &[(JSON, "WorkerList")])]),
    route(Verb::Get, "/v1/servers", Some(Scope::Admin), "List the servers that share the store", |request| {
        Box::pin(servers::list(request))
    })
    .id("listServers")
    .server_wide()
    .answers(&[answer(200, "Every server with a recent heartbeat, and this one", &[(JSON, "ServerList")])]),
    route(Verb::Get, "/v1/deleted", Some(Scope::Read), "List manually deleted runs, newest first", |request| {
        Box::pin(worker_list::deleted(request))
    })
    .id("listDeletedRuns")
    .query(&[
        Parameter::new("run", "Name", "Only this run"),
        Parameter::new("limit", "Limit", "Maximum number, from 1 to 1000; default 100"),
    ])
    .answers(&[answer(200, "The deleted runs with the reasons", &[(JSON, "DeletedRuns")])]),
    route(Verb::Get, "/v1/tasks/{id}", Some(Scope::Read), "Show a standalone task", |request| Box::pin(tasks::show(request)))
        .id("getTask")
        .answers(&[answer(200, "The current state of the task", &[(JSON, "TaskView")])]),
    route(Verb::Get, "/v1/tasks/{id}/result", Some(Scope::Read), "Show the result of a standalone task", |request| {
        Box::pin(tasks::result(request))
    })
    .id("getTaskResult")
    .query(&[WAIT])
    .answers(&[answer(200, "Ended", &[(JSON, "RunResult")]), answer(202, "Not ended yet", &[(JSON, "RunResult")])]),
    route(Verb::Post, "/v1/tasks/{id}/cancel", Some(Scope::Operate), "Cancel a standalone task", |request| {
        Box::pin(tasks::cancel(request))
    })
    .id("cancelTask")
    .body_or_none("Reason")
    .answers(APPENDED),
    route(Verb::Post, "/v1/bulk", Some(Scope::Operate), "Apply a verb to a batch of the runs that a filter matches", |request| {
        Box::pin(bulk::act(request))
    })
    .id("bulkRuns")
    .body("Bulk")
    .answers(BULK),
    route(Verb::Post, "/v1/bulk/delete", Some(Scope::Admin), "Delete a batch of the runs that a filter matches", |request| {
        Box::pin(bulk::delete(request))
    })
    .id("bulkDeleteRuns")
    .body("BulkDelete")
    .answers(BULK),
    route(
        Verb::Get,
        "/v1/runs/{id}/export",
        Some(Scope::Read),
        "Export a run with all its records as lines of JSON",
        |request| Box::pin(transfer::export_one(request)),
    )
    .id("exportRun")
    .answers(EXPORT),
    route(Verb::Get, "/v1/export", Some(Scope::Read), "Export the runs that a filter matches as lines of JSON", |request| {
        Box::pin(transfer::export(request))
    })
    .id("exportRuns")
    .query(&[
        KIND,
        VERSION,
        STATUS,
        ATTRIBUTE,
        CREATED_FROM,
        CREATED_UNTIL,
        Parameter::new("limit", "Limit", "Runs per page, from 1 to 1000; default 100"),
        Parameter::new("cursor", "string", "The header `Onward-Next` of the previous page"),
    ])
    .answers(EXPORT),
    route(Verb::Post, "/v1/import", Some(Scope::Admin), "Import exported runs", |request| Box::pin(transfer::import(request)))
        .id("importRuns")
        .lines("Lines")
        .answers(&[answer(200, "The created, unchanged and refused runs", &[(JSON, "Imported")])]),
    route(Verb::Get, "/v1/versions", Some(Scope::Read), "Count the open runs of each version of the code", |request| {
        Box::pin(runs::versions(request))
    })
    .id("listVersions")
    .answers(&[answer(200, "The counts, by kind and version", &[(JSON, "VersionList")])]),
    route(Verb::Get, "/v1/spend", Some(Scope::Read), "Show what was spent, by model, day, run or tree", |request| {
        Box::pin(spend::read(request))
    })
    .id("getSpend")
    .query(&[
        Parameter::new("by", "SpendBy", "`model` (the default), `day`, `run`, or `tree`: a run with its children and forks"),
        Parameter::new("from", "Time", "Only attempts that began on this day, in UTC, or later"),
        Parameter::new("to", "Time", "Only attempts that began on the day of this time, in UTC, or earlier; midnight ends a day"),
        Parameter::new("tree", "Name", "Only the tree of this run"),
        Parameter::new("limit", "Limit", "Maximum number, from 1 to 1000; default 100"),
    ])
    .answers(&[answer(200, "The sums, newest day first, otherwise highest cost first", &[(JSON, "SpendReport")])]),
    route(Verb::Get, "/v1/approvals", Some(Scope::Read), "List open approvals, oldest first", |request| {
        Box::pin(approvals::list(request))
    })
    .id("listApprovals")
    .query(&[
        Parameter::new("run", "Name", "Only of this run"),
        Parameter::new("below", "Name", "Only of this run and its descendants"),
        Parameter::new("limit", "Limit", "Maximum number, from 1 to 1000; default 100"),
    ])
    .answers(&[answer(200, "Open approvals", &[(JSON, "ApprovalList")])]),
    route(
        Verb::Post,
        "/v1/approvals/{id}",
        Some(Scope::Approve),
        "Decide an approval; only the first decision counts",
        |request| Box::pin(approvals::decide(request)),
    )
    .id("decideApproval")
    .body("Decide")
    .answers(ANSWERED),
    route(
        Verb::Post,
        "/v1/promises/{id}",
        Some(Scope::Signal),
        "Resolve or reject a promise; only the first result counts",
        |request| Box::pin(promises::resolve(request)),
    )
    .id("resolvePromise")
    .body("Resolve")
    .answers(ANSWERED),
    route(Verb::Post, "/v1/webhooks/{id}", None, "Receive a signed webhook; the signature is the credential", |request| {
        Box::pin(webhooks::receive(request))
    })
    .id("receiveWebhook")
    .body("Any")
    .answers(&[answer(202, "Accepted, now or earlier", &[(JSON, "WebhookTaken")])]),
    route(Verb::Get, "/v1/kinds", Some(Scope::Read), "List kinds with their schemas and workers", |request| {
        Box::pin(kinds::list(request))
    })
    .id("listKinds")
    .answers(&[answer(200, "The kinds that have schemas or workers", &[(JSON, "KindList")])]),
    route(Verb::Get, "/v1/kinds/{id}", Some(Scope::Read), "Show a kind", |request| Box::pin(kinds::show(request)))
        .id("getKind")
        .answers(&[answer(200, "The workflow and the task of that name", &[(JSON, "KindList")])]),
    route(
        Verb::Delete,
        "/v1/kinds/{id}",
        Some(Scope::Admin),
        "Remove the declarations of workers about a kind: its schemas, and whether it is internal",
        |request| Box::pin(kinds::remove(request)),
    )
    .id("deleteKind")
    .answers(&[answer(204, "Removed, until a worker declares it again", &[])]),
    route(
        Verb::Post,
        "/v1/drive/{id}",
        Some(Scope::Work),
        "Claim one run to work on it, optionally with a signal or a decision",
        |request| Box::pin(drive::drive(request)),
    )
    .id("driveRun")
    .body_or_none("Drive")
    .answers(&[answer(200, "The claimed run, or its current state", &[(JSON, "Driven")])]),
    route(Verb::Put, "/v1/external/{id}", Some(Scope::Work), "Set the state of an external run", |request| {
        Box::pin(external::set_state(request))
    })
    .id("setExternalRun")
    .body("SetExternal")
    .answers(KEPT),
    route(Verb::Get, "/v1/external/{id}", Some(Scope::Read), "Show an external run", |request| Box::pin(external::show(request)))
        .id("getExternalRun")
        .answers(&[answer(200, "The state that its engine stored", &[(JSON, "ExternalRun")])]),
    route(Verb::Delete, "/v1/external/{id}", Some(Scope::Work), "Delete an external run, open or closed", |request| {
        Box::pin(external::delete(request))
    })
    .id("deleteExternalRun")
    .query(&[Parameter::new("reason", "string", "Reason")])
    .answers(&[answer(204, "Deleted", &[])]),
    route(
        Verb::Post,
        "/v1/external/{id}/events",
        Some(Scope::Work),
        "Append events to an external run at the index that its engine expects",
        |request| Box::pin(external::append(request)),
    )
    .id("appendExternalEvents")
    .body("AppendExternal")
    .answers(KEPT),
    route(
        Verb::Get,
        "/v1/external/{id}/events",
        Some(Scope::Read),
        "Read the log of an external run, or attach to it",
        |request| Box::pin(external::events(request)),
    )
    .id("listExternalEvents")
    .query(&[
        Parameter::new("from", "Index", "First index, as the engine counts; default 0"),
        Parameter::new("limit", "Limit", "Events per page, from 1 to 1000; default 100. Not for attach"),
    ])
    .answers(&[answer(
        200,
        "A page of events; with `Accept: text/event-stream`, the events from there on as they arrive",
        &[(JSON, "ExternalEvents"), ("text/event-stream", "ExternalEventStream")],
    )]),
    route(
        Verb::Post,
        "/v1/workers/{id}/frames",
        Some(Scope::Work),
        "Send the frames of a worker and receive the ones for it",
        |request| Box::pin(workers::frames(request)),
    )
    .id("exchangeFrames")
    .query(&[WAIT])
    .body("WorkerFrames")
    .answers(&[answer(200, "Frames for the worker, in order; none after a timeout", &[(JSON, "ServerFrames")])]),
    route(Verb::Get, "/", None, "Show what this server is, with links", |request| Box::pin(operations::index(request)))
        .id("getIndex")
        .answers(&[answer(200, "A few lines of text, or a page for browsers", &[("text/plain", "Text"), ("text/html", "Text")])]),
    route(Verb::Get, "/healthz", None, "Check that the process is alive", |request| Box::pin(operations::healthz(request)))
        .id("getHealth")
        .answers(&[answer(200, "Alive", &[("text/plain", "Text")])]),
    route(Verb::Get, "/readyz", None, "Check that the store answers and accepts writes", |request| {
        Box::pin(operations::readyz(request))
    })
    .id("getReadiness")
    .answers(&[answer(200, "Ready; each database that is down has a line", &[("text/plain", "Text")])]),
    route(Verb::Get, "/metrics", Some(Scope::Read), "Metrics for Prometheus, of all namespaces", |request| {
        Box::pin(operations::metrics(request))
    })
    .id("getMetrics")
    .server_wide()
    .answers(&[answer(200, "The metrics", &[("text/plain", "Text")])]),
    route(Verb::Get, "/openapi.json", None, "This document", |request| Box::pin(operations::openapi(request)))
        .id("getOpenApi")
        .answers(&[answer(200, "OpenAPI 3.1", &[(JSON, "Document")])]),
];
