//! Table of all routes: path, scope, parameters, body and responses. The router and the OpenAPI document are made from this
//! table, so they have the same routes.

use std::future::Future;
use std::pin::Pin;

use axum::http::Method;
use axum::response::Response;
use onward_core::api::verb;

use crate::auth::{Scope, session};
use crate::handlers::{
    approvals, attachments, bulk, claims, entries, external, flows, kinds, memos, operations, queues, quotas, runs, schedules,
    servers, tasks, transfer,
};
use crate::http::diagnosis;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::verbs::VerbScope;
use crate::{ag_ui, console, webhooks, workers};

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// One route.
pub struct Route {
    pub method: Method,
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
    pub responses: &'static [ResponseShape],
    pub(crate) handler: fn(Request) -> HandlerFuture,
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

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const BYTES: &str = "application/octet-stream";
const TEXT: &str = "text/plain";
const HTML: &str = "text/html";
const SCRIPT: &str = "text/javascript";
const STYLE: &str = "text/css";
const IMAGE: &str = "image/svg+xml";

/// Makes the list of responses: that of this name, or rows `STATUS "text" CONTENT_TYPE "Schema"`.
macro_rules! responses {
    ($list:ident) => { $list };
    ($($status:literal $text:literal $($type:ident $schema:literal)*),+) => {
        &[$(ResponseShape { status: $status, text: $text, content: &[$(($type, $schema)),*] }),+]
    };
}

/// Declares the table. A row is `METHOD "path" operationId [access] handler, "summary" query [..] <- body => [responses];`. The
/// access is `public`, `scope NAME`, `server_wide NAME` for all namespaces, or `verb NAME`: the scope of the verb that the route
/// carries out.
macro_rules! routes {
    ($($method:ident $path:literal $id:ident [$($access:ident)+] $handler:expr, $summary:literal
        $(query [$($query:expr),*])? $(<- $type:ident $schema:literal $($optional:ident)?)? => [$($responses:tt)*];)*) => {
        /// All routes.
        pub static ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            scope: routes!(@scope $($access)+),
            server_wide: routes!(@server_wide $($access)+),
            id: stringify!($id),
            summary: $summary,
            query: &[$($($query),*)?],
            body: routes!(@body $($type $schema $($optional)?)?),
            responses: responses!($($responses)*),
            handler: |request| Box::pin($handler(request)),
        }),*];
    };
    (@scope public) => { None };
    (@scope verb $verb:ident) => { Some(<verb::$verb as VerbScope>::SCOPE) };
    (@scope $word:ident $scope:ident) => { Some(Scope::$scope) };
    (@server_wide server_wide $scope:ident) => { true };
    (@server_wide $($access:ident)+) => { false };
    (@body) => { None };
    (@body $type:ident $schema:literal) => { Some(BodyShape { content_type: $type, schema: $schema, required: true }) };
    (@body $type:ident $schema:literal optional) => {
        Some(BodyShape { content_type: $type, schema: $schema, required: false })
    };
}

const APPENDED: &[ResponseShape] = responses!(202 "Recorded in the run's log" JSON "Appended");
const RECORDED: &[ResponseShape] = responses!(200 "Recorded, now or earlier" JSON "Appended");
const FORKED: &[ResponseShape] =
    responses!(201 "The new run" JSON "StartedRun", 200 "The same fork was requested before" JSON "StartedRun");
const ENDED: &[ResponseShape] = responses!(200 "Ended" JSON "RunResult", 202 "Not ended yet" JSON "RunResult");
const KEPT: &[ResponseShape] = responses!(
    200 "Stored, now or earlier" JSON "ExternalAnswer",
    201 "Stored; the run was created" JSON "ExternalAnswer",
    409 "Nothing was stored: another client appended first" PROBLEM "LogConflict"
);
const BULK: &[ResponseShape] = responses!(200 "Result of the batch, or the runs that the filter matches" JSON "BulkDone");
const RUNS: &[ResponseShape] = responses!(200 "A page of runs" JSON "RunPage");
const EXPORT: &[ResponseShape] = responses!(200 "The exported lines" LINES "Lines");

const GRAPH_FORMAT: Parameter = Parameter::new("format", "GraphFormat", "`svg` (the default) or `mermaid`, without progress");
const KIND: Parameter = Parameter::new("kind", "Name", "Only runs of this kind");
const VERSION: Parameter =
    Parameter::new("version", "string", "Only runs of this version, or without a version if empty; may be repeated").repeated();
const STATUS: Parameter = Parameter::new("status", "Status", "Only runs of this status; may be repeated").repeated();
const ATTRIBUTE: Parameter = Parameter::new("attr.NAME", "string", "Only runs with this value of the attribute NAME").repeated();
const CREATED_FROM: Parameter = Parameter::new("created_from", "Time", "Only runs created at this time or later");
const CREATED_UNTIL: Parameter = Parameter::new("created_until", "Time", "Only runs created before this time");
const OF_RUN: Parameter = Parameter::new("run", "Name", "Only of this run");
const REASON: Parameter = Parameter::new("reason", "string", "Reason");
const GENERATION: Parameter = Parameter::new("generation", "Generation", "Generation; default: the current one");
const RUNS_LIMIT: Parameter = Parameter::new("limit", "Limit", "Runs per page, from 1 to 1000; default 100");
const EVENTS_LIMIT: Parameter = Parameter::new("limit", "Limit", "Events per page, from 1 to 1000; default 100. Not for attach");
const ROWS_LIMIT: Parameter = Parameter::new("limit", "Limit", "Maximum number, from 1 to 1000; default 100");
const CURSOR: Parameter = Parameter::new("cursor", "string", "The `next` of the previous page");
const WAIT: Parameter = Parameter::new("wait_ms", "WaitMs", "Time to wait in milliseconds, at most 60000");

routes! {
    POST "/v1/runs" startRun [verb StartRun] runs::start,
        "Start a run; a repeat with the same id returns the existing run"
        <- JSON "StartRun"
        => [201 "Started" JSON "StartedRun",
            200 "The same run was started before" JSON "StartedRun",
            400 "The input does not match the schema of its kind" PROBLEM "InputProblem"];
    GET "/v1/runs" listRuns [verb ListRuns] runs::list, "List runs, newest first"
        query [KIND, VERSION, STATUS, ATTRIBUTE, CREATED_FROM, CREATED_UNTIL, RUNS_LIMIT, CURSOR]
        => [RUNS];
    GET "/v1/runs/{id}" getRun [scope Read] runs::show, "Show a run"
        query [Parameter::new("active", "Flag", "`true` to list the steps and tasks that workers execute now; the worker has to report them")]
        => [200 "The current state of the run" JSON "RunView"];
    GET "/v1/runs/{id}/children" listChildren [verb ListChildren] runs::children, "List the children of a run, newest first"
        query [STATUS, RUNS_LIMIT, CURSOR]
        => [RUNS];
    GET "/v1/runs/{id}/timeline" getTimeline [verb ReadTimeline] runs::timeline,
        "Show the calls of a run with their times and attempts"
        query [GENERATION, Parameter::new("limit", "CallLimit", "Calls per page, from 1 to 5000; default 1000"), CURSOR]
        => [200 "The calls in order of their first events" JSON "Timeline"];
    GET "/v1/runs/{id}/at/{index}" getRunAt [verb ReadAt] runs::at, "Show a run as of an event of its log"
        query [GENERATION]
        => [200 "The run right after the event" JSON "RunAt"];
    GET "/v1/counts" countRuns [verb CountRuns] runs::counts, "Count runs by status"
        query [KIND, ATTRIBUTE, CREATED_FROM, CREATED_UNTIL]
        => [200 "The numbers, of at most 20000 runs" JSON "CountsReply"];
    GET "/v1/activity" readActivity [verb ReadActivity] runs::activity, "Count the starts and ends of runs over time"
        query [
            KIND,
            Parameter::new("from", "Time", "Beginning; default: a day before the end"),
            Parameter::new("until", "Time", "End; default: now"),
            Parameter::new("buckets", "Buckets", "Number of equal parts, from 1 to 500; default 60")
        ]
        => [200 "The parts in order of time" JSON "ActivityReply"];
    DELETE "/v1/runs/{id}" deleteRun [verb DeleteRun] runs::delete, "Delete a closed run and all its data"
        query [REASON]
        => [204 "Deleted"];
    GET "/v1/runs/{id}/events" listEvents [scope Read] runs::events, "Read a run's log, or attach to it"
        query [
            Parameter::new("from", "Index", "First index; default 0"),
            GENERATION,
            EVENTS_LIMIT,
            Parameter::new("until", "Until", "For attach: `end`, or `pause` to stop also when the run waits or is paused")
        ]
        => [200 "A page of the log; with `Accept: text/event-stream`, the log from there on as it grows"
            JSON "EventPage" EVENTS "EventStream"];
    GET "/v1/runs/{id}/live" watchRun [scope Read] runs::live,
        "Watch a run: its log, and steps, tasks and emitted values as they happen"
        query [Parameter::new("from", "LiveFrom", "First index, or `end` for new events only; default 0"), GENERATION]
        => [200 "A snapshot, the log from there on, and what is not in the log" EVENTS "LiveStream"];
    GET "/v1/runs/{id}/active" listActive [verb ReadActive] runs::active, "List the steps and tasks that workers execute now"
        => [200 "The steps and tasks" JSON "ActiveCalls"];
    GET "/v1/live" watchRuns [scope Read] runs::feed, "Watch which runs start, change their status or end"
        query [KIND, VERSION, STATUS, ATTRIBUTE]
        => [200 "Changes from now on" EVENTS "RunFeed"];
    GET "/v1/runs/{id}/failures" listFailures [scope Operate] diagnosis::list,
        "Show the failures of a run with the error texts of external services, such as model providers"
        query [GENERATION]
        => [200 "The latest 100 failures of the log, oldest first" JSON "FailureList"];
    GET "/v1/runs/{id}/stream" readStream [verb ReadStream] runs::stream, "Read the stream of a run"
        query [
            Parameter::new(
                "offset",
                "StreamOffset",
                "Offset of the last received frame; without it, the frames that are not final yet"
            ),
            Parameter::new(
                "wait_ms",
                "WaitMs",
                "Time to wait for more frames in milliseconds, at most 60000. Not for event streams"
            )
        ]
        => [200 "The next frames; with `Accept: text/event-stream`, all frames until the run is closed"
            JSON "StreamPage" EVENTS "FrameStream"];
    POST "/v1/agents/{id}/ag-ui" runAgUi [scope Start] ag_ui::run, "Run a turn of an agent of this kind over AG-UI"
        <- JSON "RunAgentInput"
        => [200 "The events of the turn, until the agent is idle" EVENTS "AgUiEvents"];
    GET "/v1/runs/{id}/entries" listEntries [verb ReadEntries] entries::read,
        "Read the conversation of an agent, latest page first"
        query [
            Parameter::new("before", "EntryCursor", "The `before` of the later page"),
            Parameter::new("limit", "Limit", "Entries per page, from 1 to 1000; default 100"),
            Parameter::new("leaf", "EntryCursor", "Last entry of the conversation; default: the current one")
        ]
        => [200 "A page of the conversation, oldest entry first" JSON "EntryPage"];
    POST "/v1/runs/{id}/entries" appendEntry [verb AppendEntry] entries::append,
        "Append an entry to the conversation of an agent"
        <- JSON "AppendEntry"
        => [202 "Recorded; added to the conversation when the agent's next turn begins" JSON "AppendedEntry",
            200 "The same entry was appended with this key before" JSON "AppendedEntry"];
    POST "/v1/runs/{id}/branch" branchRun [verb BranchRun] entries::branch,
        "Continue the conversation of an agent from an earlier entry"
        <- JSON "BranchRun" => [APPENDED];
    POST "/v1/runs/{id}/messages" sendMessage [verb SendMessage] entries::message, "Send a message to an agent"
        <- JSON "SendMessage" => [APPENDED];
    POST "/v1/attachments" putAttachment [verb PutAttachment] attachments::put,
        "Store an attachment that messages refer to by its hash"
        <- BYTES "Attachment"
        => [201 "Stored durably under the SHA-256 of the bytes" JSON "PutAttachmentReply"];
    POST "/v1/agents/{id}/resume" claimAgent [verb ResumeAgent] claims::resume,
        "Claim an agent that no worker holds; of concurrent requests one succeeds"
        <- JSON "ResumeAgent" optional
        => [200 "Whether the worker holds the agent now, and the reason if not" JSON "ResumedAgent"];
    POST "/v1/runs/{id}/signals" signalRun [verb SignalRun] runs::signal, "Send a signal to a run"
        <- JSON "SendSignal" => [APPENDED];
    POST "/v1/runs/{id}/cancel" cancelRun [verb CancelRun] runs::act::<verb::CancelRun>,
        "Cancel a run; its code may compensate"
        <- JSON "Reason" optional => [APPENDED];
    POST "/v1/runs/{id}/terminate" terminateRun [verb TerminateRun] runs::act::<verb::TerminateRun>, "Terminate a run at once"
        <- JSON "Reason" optional => [APPENDED];
    POST "/v1/runs/{id}/pause" pauseRun [verb PauseRun] runs::act::<verb::PauseRun>, "Pause a run and its timers"
        <- JSON "Reason" optional => [APPENDED];
    POST "/v1/runs/{id}/resume" resumeRun [verb ResumeRun] runs::resume, "Resume a paused run"
        <- JSON "Resume" optional => [APPENDED];
    POST "/v1/runs/{id}/retry" retryRun [verb RetryRun] runs::retry, "Retry a failed run from its failure"
        <- JSON "RetryRun" optional
        => [202 "Continues as its next generation" JSON "StartedRun",
            200 "The same retry was requested before" JSON "StartedRun"];
    POST "/v1/runs/{id}/fork" forkRun [verb ForkRun] runs::fork, "Fork a run: start a new run from a point of its log"
        <- JSON "ForkRun" optional => [FORKED];
    POST "/v1/runs/{id}/reset" resetRun [verb ResetRun] runs::reset, "Reset a run: fork it and end the original"
        <- JSON "ResetRun" optional => [FORKED];
    POST "/v1/runs/{id}/updates" updateRun [verb UpdateRun] runs::update, "Send an update to a run and wait for its result"
        query [WAIT]
        <- JSON "SendUpdate"
        => [200 "Answered" JSON "UpdateAnswer",
            202 "Recorded, without a result yet; a repeat with the same id continues to wait" JSON "UpdateAnswer"];
    POST "/v1/runs/{id}/queries" queryRun [verb QueryRun] runs::query, "Query a run's code; nothing is recorded"
        query [WAIT]
        <- JSON "AskQuery"
        => [200 "Answered" JSON "QueryAnswer"];
    GET "/v1/runs/{id}/result" getRunResult [scope Read] runs::result, "Show the result of a run"
        query [WAIT] => [ENDED];
    POST "/v1/tasks" startTask [verb StartTask] tasks::start,
        "Queue a standalone task; a repeat with the same id returns the existing task"
        <- JSON "StartTask"
        => [201 "Queued" JSON "StartedTask",
            200 "The same task was queued before" JSON "StartedTask",
            400 "The input does not match the schema of its kind" PROBLEM "InputProblem"];
    GET "/v1/tasks" listTasks [scope Read] tasks::list, "List open tasks, of workflows and standalone"
        query [
            Parameter::new("state", "TaskState", "Only tasks in this state: `queued`, `running` or `quarantined`"),
            OF_RUN,
            ROWS_LIMIT
        ]
        => [200 "Open tasks, in the order in which they were scheduled" JSON "OpenTasks"];
    POST "/v1/tasks/{id}/retry" retryTask [verb RetryTask] tasks::retry, "Put a quarantined task back on its queue"
        => [204 "The task is queued again"];
    GET "/v1/queues" listQueues [verb ListQueues] queues::list, "List queues with their tasks, workers and settings"
        => [200 "Every queue with tasks or workers, by kind" JSON "QueueList"];
    GET "/v1/queues/{id}" getQueue [verb ReadQueue] queues::show, "Show a queue with its settings and keys"
        => [200 "The queue; `default` is the default queue" JSON "QueueView"];
    PUT "/v1/queues/{id}" putQueue [verb PutQueue] queues::put, "Replace the settings of a queue"
        <- JSON "PutQueue"
        => [200 "The queue with its new settings" JSON "QueueView"];
    DELETE "/v1/queues/{id}" deleteQueue [verb DeleteQueue] queues::delete, "Remove the settings of a queue"
        => [204 "It has no limits any more"];
    GET "/v1/quotas/{id}" getQuota [verb ReadQuota] quotas::show, "Show the quota of a namespace and what is used of it"
        => [200 "The quota and its use" JSON "QuotaView"];
    PUT "/v1/quotas/{id}" putQuota [verb PutQuota] quotas::put, "Replace the quota of a namespace"
        <- JSON "PutQuota"
        => [200 "The new quota and its use" JSON "QuotaView"];
    DELETE "/v1/quotas/{id}" deleteQuota [verb DeleteQuota] quotas::delete, "Remove the quota of a namespace"
        => [204 "Removed"];
    GET "/v1/rate-limits" listRateLimits [scope Read] tasks::rate_limits, "List kinds of tasks that are rate-limited"
        => [200 "The rate-limited kinds of the namespace, with the end of each limit" JSON "RateLimitList"];
    POST "/v1/rate-limits/reopen" reopenRateLimit [scope Operate] tasks::reopen_rate_limit,
        "Release the tasks of a rate-limited kind before the end of its limit"
        <- JSON "ReopenRateLimit"
        => [200 "Whether the kind was rate-limited" JSON "ReopenedRateLimit"];
    GET "/v1/workers" listWorkers [verb ListWorkers] servers::workers, "List connected workers"
        => [200 "The workers of the namespace" JSON "WorkersReply"];
    GET "/v1/servers" listServers [server_wide Admin] servers::list, "List the servers that share the store"
        => [200 "Every server with a recent heartbeat, and this one" JSON "ServerList"];
    GET "/v1/deleted" listDeletedRuns [verb ListDeleted] runs::deleted, "List manually deleted runs, newest first"
        query [Parameter::new("run", "Name", "Only this run"), ROWS_LIMIT]
        => [200 "The deleted runs with the reasons" JSON "DeletedRuns"];
    GET "/v1/tasks/{id}" getTask [verb ReadTask] tasks::show, "Show a standalone task"
        => [200 "The current state of the task" JSON "TaskView"];
    GET "/v1/tasks/{id}/result" getTaskResult [scope Read] tasks::result, "Show the result of a standalone task"
        query [WAIT] => [ENDED];
    POST "/v1/tasks/{id}/cancel" cancelTask [verb CancelTask] runs::act::<verb::CancelTask>, "Cancel a standalone task"
        <- JSON "Reason" optional => [APPENDED];
    POST "/v1/bulk" bulkRuns [verb BulkRuns] bulk::act, "Apply a verb to a batch of the runs that a filter matches"
        <- JSON "BulkRuns" => [BULK];
    POST "/v1/bulk/delete" bulkDeleteRuns [verb BulkDelete] bulk::delete, "Delete a batch of the runs that a filter matches"
        <- JSON "BulkDelete" => [BULK];
    GET "/v1/runs/{id}/export" exportRun [scope Read] transfer::export_one, "Export a run with all its records as lines of JSON"
        => [EXPORT];
    GET "/v1/export" exportRuns [scope Read] transfer::export, "Export the runs that a filter matches as lines of JSON"
        query [
            KIND, VERSION, STATUS, ATTRIBUTE, CREATED_FROM, CREATED_UNTIL, RUNS_LIMIT,
            Parameter::new("cursor", "string", "The header `Onward-Next` of the previous page")
        ]
        => [EXPORT];
    POST "/v1/import" importRuns [scope Admin] transfer::import, "Import exported runs"
        <- LINES "Lines"
        => [200 "The created, unchanged and refused runs" JSON "Imported"];
    GET "/v1/versions" listVersions [verb ListVersions] runs::versions, "Count the open runs of each version of the code"
        => [200 "The counts, by kind and version" JSON "VersionsReply"];
    GET "/v1/spend" getSpend [verb ReadSpend] runs::spend, "Show what was spent, by model, day, run or tree"
        query [
            Parameter::new("by", "SpendBy", "`model` (the default), `day`, `run`, or `tree`: a run with its children and forks"),
            Parameter::new("from", "Time", "Only attempts that began on this day, in UTC, or later"),
            Parameter::new(
                "to",
                "Time",
                "Only attempts that began on the day of this time, in UTC, or earlier; midnight ends a day"
            ),
            Parameter::new("tree", "Name", "Only the tree of this run"),
            ROWS_LIMIT
        ]
        => [200 "The sums, newest day first, otherwise highest cost first" JSON "SpendReport"];
    GET "/v1/approvals" listApprovals [verb ListApprovals] approvals::list, "List open approvals, oldest first"
        query [OF_RUN, Parameter::new("below", "Name", "Only of this run and its descendants"), ROWS_LIMIT]
        => [200 "Open approvals" JSON "ApprovalList"];
    POST "/v1/approvals/{id}" decideApproval [verb DecideApproval] approvals::decide,
        "Decide an approval; only the first decision counts"
        <- JSON "Decide" => [RECORDED];
    POST "/v1/promises/{id}" resolvePromise [verb ResolvePromise] approvals::resolve,
        "Resolve or reject a promise; only the first result counts"
        <- JSON "Resolve" => [RECORDED];
    POST "/v1/webhooks/{id}" receiveWebhook [public] webhooks::receive,
        "Receive a signed webhook; the signature is the credential"
        <- JSON "Any"
        => [202 "Accepted, now or earlier" JSON "WebhookTaken"];
    GET "/v1/kinds" listKinds [scope Read] kinds::list, "List kinds with their schemas and workers"
        => [200 "The kinds that have schemas or workers" JSON "KindList"];
    GET "/v1/kinds/{id}" getKind [scope Read] kinds::show, "Show a kind"
        => [200 "The workflow and the task of that name" JSON "KindList"];
    DELETE "/v1/kinds/{id}" deleteKind [scope Admin] kinds::remove,
        "Remove the declarations of workers about a kind: its schemas, and whether it is internal"
        => [204 "Removed, until a worker declares it again"];
    GET "/v1/kinds/{id}/defaults" getKindDefaults [verb ListDefaults] kinds::defaults, "Show the defaults of a kind"
        => [200 "The defaults from all sources, in order of precedence" JSON "DefaultsReply"];
    PUT "/v1/kinds/{id}/defaults" putKindDefaults [verb PutDefaults] kinds::put_defaults,
        "Replace the live defaults of a kind; without options they are removed"
        <- JSON "PutDefaults"
        => [200 "The defaults from all sources, in order of precedence" JSON "DefaultsReply"];
    GET "/v1/flows" listFlows [verb ListFlows] flows::list, "List flows"
        => [200 "The current version of every flow, without documents" JSON "FlowsReply"];
    GET "/v1/flows/{id}" getFlow [verb ListFlows] flows::show, "Show the versions of a flow"
        => [200 "All versions with their documents, newest first" JSON "FlowsReply"];
    PUT "/v1/flows/{id}" putFlow [verb PutFlow] flows::put, "Store a document as the current version of a flow"
        <- JSON "PutFlow"
        => [201 "Stored as the current version" JSON "PutFlowReply",
            200 "It was the current version already, or only checked" JSON "PutFlowReply",
            400 "The document has errors, and nothing was stored" PROBLEM "InputProblem"];
    GET "/v1/flows/{id}/graph" getFlowGraph [verb ListFlows] flows::graph, "Draw the graph of a flow"
        query [Parameter::new("version", "Name", "The version; the default is the current one"), GRAPH_FORMAT]
        => [200 "The picture" IMAGE "Text" TEXT "Text"];
    GET "/v1/runs/{id}/graph" getRunGraph [scope Read] flows::run_graph,
        "Draw the graph of a run's flow, with what the run has done"
        query [GRAPH_FORMAT]
        => [200 "The picture" IMAGE "Text" TEXT "Text"];
    DELETE "/v1/flows/{id}" deleteFlow [verb DeleteFlow] flows::remove, "Delete a flow with all its versions"
        query [Parameter::new("force", "Flag", "Also if runs are open, which then wait for a worker with their version")]
        => [204 "Deleted"];
    POST "/v1/memos/invalidate" invalidateMemos [verb InvalidateMemos] memos::invalidate,
        "Invalidate memos by key or by prefix: calls that begin later compute again"
        <- JSON "InvalidateMemos"
        => [200 "The number of memos that were invalidated" JSON "InvalidateMemosReply"];
    GET "/v1/schedules" listSchedules [verb ListSchedules] schedules::list, "List schedules, newest first"
        query [ROWS_LIMIT, CURSOR]
        => [200 "Schedules without their histories" JSON "ScheduleList"];
    PUT "/v1/schedules/{id}" putSchedule [verb PutSchedule] schedules::put, "Create a schedule, or replace its definition"
        <- JSON "PutSchedule"
        => [201 "Created; its first slot is in the future" JSON "Schedule",
            200 "It existed, and has this definition now" JSON "Schedule",
            400 "The definition is invalid, and nothing was stored" PROBLEM "InputProblem"];
    GET "/v1/schedules/{id}" getSchedule [verb ReadSchedule] schedules::show, "Show a schedule with its last runs and its next slots"
        => [200 "The schedule" JSON "Schedule"];
    DELETE "/v1/schedules/{id}" deleteSchedule [verb DeleteSchedule] schedules::remove,
        "Delete a schedule; runs that it started continue"
        => [204 "Deleted"];
    POST "/v1/schedules/{id}/pause" pauseSchedule [verb PauseSchedule] schedules::pause,
        "Pause a schedule: the clock starts nothing until it is resumed"
        <- JSON "ScheduleNote" optional
        => [200 "The schedule" JSON "Schedule"];
    POST "/v1/schedules/{id}/resume" resumeSchedule [verb ResumeSchedule] schedules::resume,
        "Resume a paused schedule; the slots of the pause are skipped"
        <- JSON "ScheduleNote" optional
        => [200 "The schedule" JSON "Schedule"];
    POST "/v1/schedules/{id}/trigger" triggerSchedule [verb TriggerSchedule] schedules::trigger, "Start a run of a schedule at once"
        <- JSON "TriggerOptions" optional
        => [202 "The run, and whether it starts" JSON "TriggeredRun"];
    POST "/v1/schedules/{id}/backfill" backfillSchedule [verb BackfillSchedule] schedules::backfill,
        "Start runs for the slots of a past range"
        <- JSON "BackfillOptions"
        => [202 "The schedule; the backfill continues in the background" JSON "Schedule"];
    GET "/v1/schedules/{id}/slots" listSlots [verb ListSlots] schedules::slots, "List slots of a schedule"
        query [Parameter::new("after", "Time", "Slots after this time; after now by default"), ROWS_LIMIT]
        => [200 "Slots in order, with the times at which they are due" JSON "SlotList"];
    POST "/v1/slots" previewSlots [verb ListSlots] schedules::preview, "List slots of a specification that is not stored"
        <- JSON "PreviewSlots"
        => [200 "Slots in order, with the times at which they are due" JSON "SlotList"];
    POST "/v1/drive/{id}" driveRun [verb DriveRun] claims::drive,
        "Claim one run to work on it, optionally with a signal or a decision"
        <- JSON "Drive" optional
        => [200 "The claimed run, or its current state" JSON "Driven"];
    PUT "/v1/external/{id}" setExternalRun [scope Work] external::set_state, "Set the state of an external run"
        <- JSON "SetExternal" => [KEPT];
    GET "/v1/external/{id}" getExternalRun [scope Read] external::show, "Show an external run"
        => [200 "The state that its engine stored" JSON "ExternalRun"];
    DELETE "/v1/external/{id}" deleteExternalRun [scope Work] external::delete, "Delete an external run, open or closed"
        query [REASON]
        => [204 "Deleted"];
    POST "/v1/external/{id}/events" appendExternalEvents [scope Work] external::append,
        "Append events to an external run at the index that its engine expects"
        <- JSON "AppendExternal" => [KEPT];
    GET "/v1/external/{id}/events" listExternalEvents [scope Read] external::events,
        "Read the log of an external run, or attach to it"
        query [Parameter::new("from", "Index", "First index, as the engine counts; default 0"), EVENTS_LIMIT]
        => [200 "A page of events; with `Accept: text/event-stream`, the events from there on as they arrive"
            JSON "ExternalEvents" EVENTS "ExternalEventStream"];
    POST "/v1/workers/{id}/frames" exchangeFrames [scope Work] workers::frames,
        "Send the frames of a worker and receive the ones for it"
        query [WAIT]
        <- JSON "WorkerFrames"
        => [200 "Frames for the worker, in order; none after a timeout" JSON "ServerFrames"];
    GET "/v1/namespace" getNamespace [public] operations::namespace,
        "Show the namespace of the request: that of the header, otherwise that of a key for one namespace"
        => [200 "The namespace" JSON "RequestNamespace"];
    GET "/v1/session" getSession [public] session::show, "Show what the key or session of the request may do"
        => [200 "Name, scopes and restrictions of the key" JSON "Session"];
    POST "/v1/session" signIn [public] session::sign_in, "Exchange a key for the session cookie of the console"
        <- JSON "SignIn"
        => [204 "The cookie is set for twelve hours; a server without keys sets none"];
    DELETE "/v1/session" signOut [public] session::sign_out, "Remove the session cookie of the console"
        => [204 "Removed"];
    GET "/" getIndex [public] console::index, "Open the console"
        => [200 "The console for browsers, a few lines of text for others" TEXT "Text" HTML "Text"];
    GET "/console/{id}" getConsoleFile [public] console::file, "Read a file of the console"
        => [200 "The file" SCRIPT "Text" STYLE "Text" HTML "Text" IMAGE "Text"];
    GET "/healthz" getHealth [public] operations::healthz, "Check that the process is alive"
        => [200 "Alive" TEXT "Text"];
    GET "/readyz" getReadiness [public] operations::readyz, "Check that the store answers and accepts writes"
        => [200 "Ready; each database that is down has a line" TEXT "Text"];
    GET "/metrics" getMetrics [server_wide Read] operations::metrics, "Metrics for Prometheus, of all namespaces"
        => [200 "The metrics" TEXT "Text"];
    GET "/openapi.json" getOpenApi [public] operations::openapi, "This document"
        => [200 "OpenAPI 3.1" JSON "Document"];
}
