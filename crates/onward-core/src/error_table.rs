//! The table of error codes: the only place where a code, its HTTP status, its consequence and its hint are written.
//!
//! Error enums of all crates map a variant to an [`ErrorCode`], most of them with [`error_enum`](crate::error_enum); everything else
//! follows from the row. `docs/errors/README.md` has a section for every row, and a test compares the two. Once released, a code is never renamed or reused.
//!
//! Attempts of models and MCP servers have their hints in onward-llm and onward-mcp, which do not depend on this crate. Rows without
//! a hint belong to errors whose hint depends on the case; a test lists them.

/// The reaction that an error requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// The request cannot succeed; a retry changes nothing.
    Fail,
    /// The lease is lost: drop the cached run and stop working on it.
    StopRun,
    /// The same call may succeed later.
    Retry,
    /// The data of this run is damaged; other runs are not affected.
    IsolateRun,
    /// This process cannot write any more.
    StopProcess,
}

/// What every error has besides its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorInfo {
    pub code: &'static str,
    pub consequence: Consequence,
    pub hint: Option<&'static str>,
}

impl ErrorInfo {
    /// Replaces the hint, if there is another one.
    pub fn with_hint(self, hint: impl Into<Option<&'static str>>) -> ErrorInfo {
        ErrorInfo { hint: hint.into().or(self.hint), ..self }
    }
}

/// Defines an error enum with the functions `info`, `code`, `consequence` and `hint`.
///
/// Each variant names its row of the error table. `hint(field) expression` replaces the hint of the row, unless the expression is
/// `None`. A variant with `(error)` in place of a row contains another error and has its code, consequence and hint.
#[macro_export]
macro_rules! error_enum {
    ($(#[$($meta:tt)+])* pub enum $name:ident {
        $($(#[$($attribute:tt)+])* $variant:ident $(($(#[$from:ident])? $of:ty))? $({ $($field:ident: $type:ty),* })?
            => $(($inner:ident))? $($code:ident $(hint($($bound:ident)?) $hint:expr)?)?,)*
    }) => {
        $(#[$($meta)+])*
        pub enum $name {
            $($(#[$($attribute)+])* $variant $(($(#[$from])? $of))? $({ $($field: $type),* })?,)*
        }

        impl $name {
            /// Returns code, consequence and hint.
            pub fn info(&self) -> $crate::ErrorInfo {
                match self {
                    $($name::$variant { $(0: $inner,)? $($($($bound,)?)?)? .. } => {
                        $($inner.info())? $($crate::ErrorCode::$code.info()$(.with_hint($hint))?)?
                    })*
                }
            }

            /// Returns the stable code, which `docs/errors` describes.
            pub fn code(&self) -> &'static str {
                self.info().code
            }

            /// Returns the reaction that the error requires of its caller.
            pub fn consequence(&self) -> $crate::Consequence {
                self.info().consequence
            }

            /// Returns advice on how to proceed.
            pub fn hint(&self) -> Option<&'static str> {
                self.info().hint
            }
        }
    };
}

/// Row of the table.
struct ErrorRow {
    text: &'static str,
    status: u16,
    consequence: Consequence,
    meaning: &'static str,
    hint: Option<&'static str>,
}

macro_rules! error_table {
    ($($(#[$doc:meta])* $code:ident $text:literal $status:literal $consequence:ident $meaning:literal $(=> $hint:literal)?;)*) => {
        /// Stable code of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $meaning] $code,)*
        }

        impl ErrorCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$code),*];
        }

        const ROWS: &[ErrorRow] = &[$(ErrorRow {
            text: $text,
            status: $status,
            consequence: Consequence::$consequence,
            meaning: $meaning,
            hint: [$(Some($hint),)? None][0],
        }),*];
    };
}

impl ErrorCode {
    /// Returns the row of a code as text; `None` for an unknown one.
    pub fn find(text: &str) -> Option<ErrorCode> {
        ROWS.iter().position(|row| row.text == text).map(|at| ErrorCode::ALL[at])
    }

    const fn row(self) -> &'static ErrorRow {
        &ROWS[self as usize]
    }

    /// Returns the code as text, such as `run_not_found`.
    pub const fn as_str(self) -> &'static str {
        self.row().text
    }

    /// Returns the HTTP status. Codes that only the library or the command line returns have one too.
    pub fn status(self) -> u16 {
        self.row().status
    }

    pub fn consequence(self) -> Consequence {
        self.row().consequence
    }

    /// Returns what the code means, as a sentence without a full stop.
    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }

    /// Returns advice on how to proceed.
    pub fn hint(self) -> Option<&'static str> {
        self.row().hint
    }

    pub fn info(self) -> ErrorInfo {
        let ErrorRow { text: code, consequence, hint, .. } = *self.row();
        ErrorInfo { code, consequence, hint }
    }
}

/// Compares with the text of a code, which may have come over a network.
impl PartialEq<ErrorCode> for &str {
    fn eq(&self, code: &ErrorCode) -> bool {
        *self == code.as_str()
    }
}

/// Compares with the text of a code, which may have come over a network.
impl PartialEq<ErrorCode> for String {
    fn eq(&self, code: &ErrorCode) -> bool {
        self == code.as_str()
    }
}

impl From<ErrorCode> for &'static str {
    fn from(code: ErrorCode) -> &'static str {
        code.as_str()
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> String {
        code.as_str().to_owned()
    }
}

// Name, code, HTTP status, consequence, meaning => hint.
error_table! {
    // Runs
    RunNotFound "run_not_found" 404 Fail "There is no run of this id"
        => "list the runs of this store with `onward run list`";
    RunExists "run_exists" 409 Fail "The id belongs to a run with another kind or input"
        => "use another id, or start with the same kind and input to get the existing run";
    RunClosed "run_closed" 409 Fail "The run has ended"
        => "a closed run takes no more inputs; start a new one";
    RunPaused "run_paused" 409 Fail "The run is paused, so its worker could not commit"
        => "see the reason with `onward run show`, then continue it with `onward run resume`";
    BudgetExhausted "budget_exhausted" 409 Fail "The run has exhausted its budget; the message names the limit"
        => "raise the budget with `onward run resume ID --budget tokens=N`";
    RunNotPaused "run_not_paused" 409 Fail "The run is not paused"
        => "check its status with `onward run show`; only a paused run can be resumed";
    ApprovalNeeded "approval_needed" 409 Fail "The run is paused until approvals of a copied log are decided again"
        => "decide them (`onward approval list`): the run continues once all are approved and stays paused if one is declined";
    ChildBehindApproval "child_behind_approval" 409 Fail
        "The copy would start a child again that was started after an approval"
        => "reset to a point before that event to request the approval again, or fork and await the child";
    RunIsTask "run_is_task" 409 Fail
        "The run is a standalone task, without signals, updates, queries, pauses or running on demand"
        => "cancel it with POST /v1/tasks/ID/cancel; a standalone task takes no other input";
    EntryKeyTaken "entry_key_taken" 409 Fail "The idempotency key belongs to another entry of the conversation"
        => "use another key: a key belongs to one role and content";
    EntryNotFound "entry_not_found" 404 Fail "The conversation has no such entry"
        => "list the ids with `onward run entries RUN`; entries that a fork shares with a deleted run are gone";
    NoCheckpoint "no_checkpoint" 409 Fail "The conversation cannot continue from this entry"
        => "name a later entry, or start another run";
    BranchPending "branch_pending" 409 Fail "Another branch of the conversation was requested and has not been executed yet"
        => "wait until the agent has taken that branch (`onward run resume` if it is paused), read its conversation and retry";
    TaskNotFound "task_not_found" 404 Fail "There is no standalone task of this id"
        => "look for a task of a workflow in its run";
    AttributeInvalid "attribute_invalid" 400 Fail "An attribute is too long, or there are too many"
        => "keep data in the input or the state; attributes are for finding runs";
    WaitAbandoned "wait_abandoned" 409 Fail "The run no longer waits for this approval or promise"
        => "nothing was decided; see `onward run show` for what the run waits for";
    MessageInvalid "message_invalid" 400 Fail "A gRPC message cannot be decoded"
        => "see the .proto file, which reflection serves";
    MessageEmpty "message_empty" 400 Fail "A message to an agent is empty"
        => "send a text or at least one block with content";
    AttachmentInvalid "attachment_invalid" 400 Fail "A message has an attachment that no model could be shown"
        => "upload the bytes with `POST /v1/attachments` and use the hash that it returns; see docs/guide/models.md";
    FilterEmpty "filter_empty" 400 Fail "A bulk operation has no filter"
        => "name a kind, version, status, attribute or time, or select all runs with `all`";
    ImportInvalid "import_invalid" 422 Fail "The lines are not the format of an export"
        => "import whole lines, as `onward export` writes them";
    NotConfirmed "not_confirmed" 400 Fail "A bulk operation was not confirmed";
    RunNotFailed "run_not_failed" 409 Fail "The run has not failed and cannot be retried"
        => "use `onward run fork`, which continues any run from any point";
    RunReset "run_reset" 409 Fail "The run was reset before; the message names its successor"
        => "reset the run that replaced it, or fork this one, which keeps both";
    FailureHandled "failure_handled" 409 Fail "The code continued after the failure, so the run cannot be retried"
        => "use `onward run reset` to continue from a point that you choose; compensated steps are not repeated otherwise";
    ForkPointInvalid "fork_point_invalid" 422 Fail "The log cannot be copied up to this event"
        => "choose an event at which a commit ends (`onward run events`)";
    LogInvalid "log_invalid" 422 Fail "A complete log violates the rules of logs"
        => "check the source of the log; nothing was written";
    RunContinued "run_continued" 409 StopRun "The answer belongs to an earlier generation of the run"
        => "retry against the current generation; the run has begun a new log";
    RunFailed "run_failed" 422 Fail "The awaited run ended with a failure"
        => "look at the log with `onward run events`; `error.failure()` has the code, causes and details";
    NoCompatibleWorker "no_compatible_worker" 409 Fail "No connected worker has the kind and version of the run"
        => "start a worker that has it; the run waits and nothing is lost";
    QueryUnanswered "query_unanswered" 409 Fail "No worker answered the query"
        => "retry the query";
    RunBusy "run_busy" 409 Fail "The run cannot be deleted now, or another worker holds it"
        => "end it with `onward run terminate`, wait for its children, and retry; only a closed run can be deleted";
    RunExternal "run_external" 409 Fail "The run belongs to an external engine"
        => "use the engine that owns this run";
    RunNotExternal "run_not_external" 409 Fail "The run is not one of an external engine"
        => "append only to external runs; the code of this run belongs to Onward";
    RootRunDiffers "root_run_differs" 409 Fail "The id of a child would place it in another database than its parent"
        => "begin the child's id with its parent's up to the first `/`, or omit the id to get a generated one";
    LogConflict "log_conflict" 409 Fail "The log of an external run does not end at the expected index"
        => "read on from there and append again; another writer was first";
    WaitTimedOut "wait_timed_out" 504 Fail "`onward run wait --timeout` ended before the run";
    // Approvals, promises, updates and queries
    UpdateAbandoned "update_abandoned" 409 Fail "The run ended before the handler of an update did"
        => "send it again if the run continues; the code can wait with `updates_finished` before it ends";
    IdTaken "id_taken" 409 Fail "The signal, update, decision or resolution id was used before with other content"
        => "use another id for different content; the recorded content stands";
    SignalLost "signal_lost" 409 Fail "The approval or promise was already answered, or its deadline passed"
        => "the first answer stands; this one was not recorded";
    WaitNotFound "wait_not_found" 404 Fail "There is no such approval or promise"
        => "list the open approvals with `onward approval list`";
    CallIdInvalid "call_id_invalid" 400 Fail "The text is not the id of an approval, promise or task"
        => "use the form RUN~GENERATION~CALL; `onward approval list` shows open approvals";
    TaskNotQuarantined "task_not_quarantined" 409 Fail "The task is not in quarantine"
        => "wait: only a quarantined task needs a manual retry";
    NotADecider "not_a_decider" 403 Fail "This person may not decide the approval"
        => "ask one of the deciders that the approval names";
    AnswerInvalid "answer_invalid" 400 Fail "The answer does not match the schema that the approval requires, and nothing was decided"
        => "see `answer_schema` of the approval (`onward approval list --json`) and send the answer as JSON; a rejection needs none";
    MemoKeyInvalid "memo_key_invalid" 400 Fail "The key of a memo is empty or too long"
        => "use a key of 1 to 1024 bytes, or the beginning of one with `--prefix`";
    SharedKeyNotAllowed "shared_key_not_allowed" 403 Fail "A worker whose API key is bound to kinds may not use a memo of the whole namespace"
        => "use a memo of the scope `tree`, or run the worker with a key that is not bound to kinds; then resume the run";
    IdReserved "id_reserved" 400 Fail "The id is reserved: a decision or resolution id, a signal name, or the id of a memo"
        => "use another id";
    UpdateUnanswered "update_unanswered" 409 Fail "The run ended before its code answered the update"
        => "see `onward run show` for how the run ended";
    UnknownQuery "unknown_query" 404 Fail "The run's code has no query of this name"
        => "register it with `ctx.query(name, ..)`; the code must have reached that call";
    AnswerFailed "answer_failed" 422 Fail "The run's code answered a query or an update with a failure"
        => "read the handler's code and message with `error.failure()`; the run continues";
    // Values and names
    NameInvalid "name_invalid" 400 Fail "A name, run id or namespace is invalid"
        => "1 to 255 bytes of UTF-8 without control characters";
    IdInvalid "id_invalid" 400 Fail "A signal, decision, resolution or update id, or a decider, is invalid"
        => "1 to 255 bytes of UTF-8 without control characters";
    TextTooLong "text_too_long" 400 Fail "A reason, feedback or pause message is too long"
        => "keep long texts elsewhere and pass a reference";
    ContextMisused "context_misused" 409 Fail "Code in another language used the context of a workflow outside of its run's code"
        => "use it only in the workflow's own code, not in a step, a task, a query, another thread, or after the end";
    ProcessForked "process_forked" 409 Fail "The process was forked after Onward was started in its parent"
        => "start Onward after the fork, in each process that uses it; with multiprocessing, use the start method `spawn`";
    ValueInvalid "value_invalid" 400 Fail "A value cannot be converted to JSON, or JSON to the expected type"
        => "use a value that both sides read and write as JSON with serde; floats must be finite, and `Some(None)` and `Some(())` are not allowed";
    PayloadInvalid "payload_invalid" 400 Fail "The payload is not JSON"
        => "put text in quotes, or send data that is not JSON with its type, such as `text/plain`";
    PayloadTooLarge "payload_too_large" 413 Fail "An input, result, signal or state value exceeds the limit"
        => "store large data elsewhere and pass a reference";
    InputInvalid "input_invalid" 400 Fail "The input does not match the schema of its kind, and nothing was started"
        => "see `GET /v1/kinds/KIND` for its schema";
    SignalInvalid "signal_invalid" 400 Fail "A signal does not match its schema in the kind of the run, and nothing was written"
        => "see `GET /v1/kinds/KIND` for the schemas of its signals";
    UpdateInvalid "update_invalid" 400 Fail "An update does not match its schema in the kind of the run, and nothing was written"
        => "see `GET /v1/kinds/KIND` for the schemas of its updates";
    OutputInvalid "output_invalid" 500 Fail "An output does not match the schema of its kind, and the run or task failed"
        => "correct the code or the schema";
    KindReserved "kind_reserved" 400 Fail "A run cannot have a kind that begins with `task:` or `flow:`"
        => "start them with `POST /v1/tasks`; begin no kind of workflow with `task:`";
    BudgetTooLarge "budget_too_large" 403 Fail "A start or resume requests more than a ceiling allows"
        => "set a lower limit; ceilings are per namespace in the settings and per key";
    KindInternal "kind_internal" 403 Fail "Callers may not start runs or tasks of an internal kind"
        => "start the agent or workflow that uses it; `GET /v1/kinds` lists what callers may start";
    DefaultsInvalid "defaults_invalid" 400 Fail "An option of a kind's defaults is invalid, and nothing was stored"
        => "correct the option; docs/guide/defaults.md lists those of tasks and runs";
    QueueInvalid "queue_invalid" 400 Fail "A setting of a queue is invalid, and nothing was stored"
        => "correct the named field; docs/guide/queues.md lists the settings";
    QueueFull "queue_full" 429 Retry "The queue has as many waiting tasks as its settings permit, and nothing was queued"
        => "retry later, or raise `depth_max` of the queue";
    QuotaInvalid "quota_invalid" 400 Fail "A limit of a quota is invalid, and nothing was stored"
        => "correct the named field; docs/guide/quotas.md lists the limits";
    QuotaExceeded "quota_exceeded" 429 Retry "The namespace has reached its quota, and nothing was started"
        => "retry after the named time, or ask an administrator of the server to raise the quota; `onward quota show` shows what is used";
    FlowInvalid "flow_invalid" 400 Fail "The document of a flow has errors, and nothing was stored"
        => "correct the listed problems; `onward flow validate FILE` shows them in the document";
    FlowNotFound "flow_not_found" 404 Fail "The namespace has no flow of this name"
        => "see `onward flow list` for the flows of the namespace";
    FlowChanged "flow_changed" 409 Fail "The flow has another current version than the request expects"
        => "compare the documents with `onward flow diff`, then expect the current version";
    FlowInUse "flow_in_use" 409 Fail "Open runs are pinned to versions of the flow"
        => "wait for these runs, cancel them, or delete the flow with `force`: then they wait for a worker with their version";
    KindNotFound "kind_not_found" 404 Fail "The namespace has no kind of this name"
        => "see GET /v1/kinds for the kinds with schemas or workers";
    PayloadUnreadable "payload_unreadable" 500 Fail "A codec could not encode or decode a payload"
        => "keep encryption keys for as long as payloads that they encrypted are read";
    ScheduleNotFound "schedule_not_found" 404 Fail "The namespace has no schedule of this id"
        => "list the schedules with `onward schedule list`";
    ScheduleInvalid "schedule_invalid" 400 Fail
        "The definition of a schedule, or a request to it, is invalid, and nothing was stored"
        => "correct the part that the message names";
    CursorInvalid "cursor_invalid" 400 Fail "The cursor was not returned by this store"
        => "start without a cursor; a cursor is valid only for the query that returned it";
    IndexOutOfRange "index_out_of_range" 400 Fail "The log of this generation has no event with this index"
        => "use an index below `event_count` of the run";
    // Programs and workers
    HelloMissing "hello_missing" 409 Fail "A worker sent frames over HTTP without a connection"
        => "send hello again; a session ends with its server or its lease";
    HelloOvertaken "hello_overtaken" 409 Fail "The `hello` of a worker arrived after that of a later connection"
        => "give every worker an id of its own";
    ProtocolUnsupported "protocol_unsupported" 400 Fail "Worker and server use different versions of the worker protocol"
        => "use an SDK of the server's version";
    ServerUrlInvalid "server_url_invalid" 400 Fail "The address given to `Onward::connect` is invalid"
        => "use a URL like http://127.0.0.1:7400";
    RegisterInvalid "register_invalid" 400 Fail "A registration on the builder is invalid";
    SchemaInvalid "schema_invalid" 400 Fail "A worker declared an unacceptable schema and was refused"
        => "see docs/guide/schemas.md for the supported schemas";
    KeyInvalid "key_invalid" 400 Fail "The key given to `Onward::connect` is malformed"
        => "copy the whole key as `onward key create` printed it";
    OnlyChecked "only_checked" 400 Fail "The program was started by `onward check` and only replayed recorded runs"
        => "unset `ONWARD_CHECK` to start the program normally";
    CheckFailed "check_failed" 400 Fail "`onward check` could not compare recorded runs with the program"
        => "unset `ONWARD_CHECK` to start the program normally";
    UnknownKind "unknown_kind" 404 Fail "No workflow of this name and version is registered in this process"
        => "register it on the builder with `.workflow(&NAME, function)` or `.workflow(\"name\", function)`";
    ShutDown "shut_down" 503 Fail "The engine was shut down"
        => "start the engine again over the same store to continue the run; requests without a response may have been executed, so repeat them with the same id";
    WorkerNotStarted "worker_not_started" 500 Fail "The threads for workflow code could not be started"
        => "raise the system's thread limit, or set fewer with `.threads(..)`";
    // Requests over HTTP
    RouteNotFound "route_not_found" 404 Fail "There is no route at this path"
        => "see GET /openapi.json for all routes";
    MethodNotAllowed "method_not_allowed" 405 Fail "The path does not accept this method"
        => "use a method that the header Allow lists";
    ContentTypeUnsupported "content_type_unsupported" 415 Fail "The body is not `application/json` in UTF-8"
        => "send the header `Content-Type: application/json`, in UTF-8 and without Content-Encoding";
    JsonInvalid "json_invalid" 400 Fail "The body is not the JSON of the route"
        => "see GET /openapi.json for the schema of every body";
    JsonTooDeep "json_too_deep" 400 Fail "The body nests deeper than 64 levels"
        => "keep deep structures elsewhere, or as text";
    BodyTooLarge "body_too_large" 413 Fail "The body exceeds the limit of the server"
        => "keep large data elsewhere and pass a reference";
    BodyTooSlow "body_too_slow" 408 Fail "The body did not arrive in time"
        => "send the body faster, or change the limits in the server's settings";
    BodyBroken "body_broken" 400 Fail "The connection broke while the body was read"
        => "send the request again";
    QueryInvalid "query_invalid" 400 Fail "A query parameter is unknown, duplicate or invalid"
        => "see GET /openapi.json for the parameters of every route";
    HeaderInvalid "header_invalid" 400 Fail "A header is invalid: `Onward-Namespace`, `Last-Event-ID` or `Host`"
        => "send it once, as described in docs/http.md, or omit it";
    HostRefused "host_refused" 403 Fail "The request uses a foreign host name"
        => "use localhost or its address; a server on loopback accepts no other name";
    OriginRefused "origin_refused" 403 Fail "A page of another origin tried to change something"
        => "send the request from a page of this server, or allow the origin with the setting `server.cors_origins`";
    Csrf "csrf" 403 Fail "A request with the session of the console does not come from the console"
        => "send the header `X-Onward-Console: 1` from a page of this server, or use an API key";
    Unauthenticated "unauthenticated" 401 Fail "The key is missing or invalid"
        => "send one header `Authorization: Bearer onw_…`; create a key: `onward key create`";
    NotAllowed "not_allowed" 403 Fail "The key is valid but not for this request"
        => "create a key for other scopes, namespaces, kinds and queues: `onward key create`";
    NotReady "not_ready" 503 Retry "The server cannot serve requests"
        => "retry in a moment; GET /readyz reports when the server is ready";
    // Server start
    ListenRefused "listen_refused" 400 Fail "`onward server` does not listen on a public address without keys";
    ListenFailed "listen_failed" 500 Fail "The server could not listen on the address";
    StoreUnsupported "store_unsupported" 400 Fail "`onward server --store` names an unknown kind of store";
    // Keys
    TlsFilesUnusable "tls_files_unusable" 500 Fail "The TLS certificate or its key cannot be used";
    KeyFileUnusable "key_file_unusable" 500 Fail "The key file cannot be used";
    KeyFileNotWritten "key_file_not_written" 500 Fail "The key file could not be written";
    KeyNotFound "key_not_found" 404 Fail "The key file has no key of this id"
        => "list the ids with `onward key list`";
    KeyEnded "key_ended" 409 Fail "The key is revoked or expired and cannot be rotated"
        => "create a new one with `onward key create`";
    // Webhooks
    WebhookRefused "webhook_refused" 401 Fail "The webhook request was refused"
        => "see docs/operations.md for how to create and sign webhooks";
    WebhookUnroutable "webhook_unroutable" 422 Fail "The body of a signed webhook does not name its run or signal"
        => "check the webhook's pointers with `onward webhook list`";
    WebhookFileUnusable "webhook_file_unusable" 500 Fail "The webhook file cannot be read, and all webhooks are refused";
    WebhookFileNotWritten "webhook_file_not_written" 500 Fail "The webhook file could not be written";
    WebhookNotFound "webhook_not_found" 404 Fail "There is no webhook of this name"
        => "list webhooks with `onward webhook list`";
    WebhookExists "webhook_exists" 409 Fail "A webhook of this name exists"
        => "change its secret with `onward webhook rotate`; for other changes, delete it first";
    WebhookSecretInvalid "webhook_secret_invalid" 400 Fail "The secret of a webhook is invalid";
    // Command line, directory and database
    DirectoryLocked "directory_locked" 409 Fail "A process has the directory open for writing"
        => "stop the process that has it open, or drop the other store; commands that only read work meanwhile";
    Usage "usage" 400 Fail "The command line is invalid";
    Io "io" 500 Fail "A file or stream could not be read or written";
    Failed "failed" 500 Fail "The command failed for the reason in its message";
    LogUnreadable "log_unreadable" 400 Fail "The file given to `onward replay` is not the log of a run";
    ConfigInvalid "config_invalid" 400 Fail "A setting is unknown or its value is invalid";
    DirectoryMissing "directory_missing" 404 Fail "The directory does not exist";
    DatabaseNewer "database_newer" 500 Fail "The tables of the database belong to a newer version of Onward"
        => "use the newer program; the database was not changed";
    DatabaseUnusable "database_unusable" 500 Fail "The database or its address cannot be used"
        => "check the address and the database name, and that the user may create a schema";
    DatabaseUntrusted "database_untrusted" 500 Fail "The database does not satisfy the `sslmode` of its address"
        => "set `sslrootcert` to the CA file and use the host name of the certificate; `sslmode=require` encrypts without verifying the certificate";
    DirectoryNewer "directory_newer" 500 Fail "The directory was written by a newer version of Onward"
        => "use the newer program; the directory was not changed";
    DirectoryForeign "directory_foreign" 500 Fail "The directory does not belong to Onward"
        => "choose an empty directory or one that Onward created";
    DatabasesDiffer "databases_differ" 500 Fail "The list of databases is not the one over which the runs are sharded"
        => "pass the same databases as at creation, all of them and in the same order";
    DirectoryUnusable "directory_unusable" 500 Fail "The directory or a file in it cannot be read or written"
        => "make the directory and its files readable and writable for this user";
    DiskFull "disk_full" 507 Retry "There is no space on the disk or within the size limit of the database"
        => "free disk space; writes then resume without a restart";
    StoreReadOnly "store_read_only" 503 Fail "The store was opened for reading"
        => "write through the process that opened the store for writing";
    StoreStopped "store_stopped" 503 StopProcess "The store accepts no more writes in this process"
        => "check the disk and restart; acknowledged writes are durable";
    ServerUnreachable "server_unreachable" 503 Retry "No server answers at the address, or the connection broke";
    StoreUnavailable "store_unavailable" 503 Retry "The store cannot be reached or did not answer"
        => "retry; a repeat with the same id is recorded once";
    StoreCorrupt "store_corrupt" 500 StopProcess "Data of the store is damaged, beyond one run"
        => "run `onward doctor --repair`, which keeps what is readable, lists what is lost and copies the damaged files; or restore a backup";
    StoreDamaged "store_damaged" 503 StopProcess "Acknowledged writes cannot be read, so the directory is read-only"
        => "run `onward doctor --repair`, which keeps what is readable, lists what is lost and copies the damaged files; or restore a backup";
    LogCorrupt "log_corrupt" 500 IsolateRun "Recorded bytes of a run do not match their checksum"
        => "check the store with `onward doctor`; `onward doctor --repair` keeps every record that verifies; or restore a backup, or discard this run with `onward run terminate`, then `onward run delete`";
    // Commits and reports of workers
    LeaseLost "lease_lost" 409 StopRun "A worker committed to a run that it no longer holds"
        => "another worker has the run now; stop working on it";
    InputsUnread "inputs_unread" 409 Retry "A run tried to end with inputs that its code had not seen"
        => "deliver the inputs from there on to the code first";
    CommitMalformed "commit_malformed" 422 Fail "A worker sent an invalid commit, or an external engine an invalid append"
        => "fix the worker: it violates the protocol (docs/protocol.md)";
    TaskAttemptOver "task_attempt_over" 409 Fail "A worker reported an attempt that it no longer holds"
        => "stop the attempt; the task has another result or another worker";
    AttemptRateLimited "attempt_rate_limited" 429 Retry "A rate limit of the worker refused an attempt"
        => "retry it after the time in the message, let it wait with `wait_max`, or raise the limit";
    // Models
    ModelRateLimited "model_rate_limited" 429 Fail "The provider rate-limits the key";
    ModelQuotaExhausted "model_quota_exhausted" 402 Fail "The account at the provider has no credit left";
    ModelOverloaded "model_overloaded" 503 Fail "The provider of a model is overloaded";
    ModelFailed "model_failed" 502 Fail "The provider of a model failed";
    EmptyModelResponse "empty_model_response" 502 Fail "A model returned an empty answer";
    ModelRequestRefused "model_request_refused" 422 Fail "The provider rejected the request";
    ModelKeyRefused "model_key_refused" 502 Fail "The provider of a model rejected the key";
    ContextTooLong "context_too_long" 422 Fail "The conversation is too long for the model";
    ModelAnswerBroken "model_answer_broken" 502 Fail "The answer of a model broke off or is malformed";
    ModelAnswerTooLarge "model_answer_too_large" 502 Fail "The answer of a model exceeds a limit";
    ModelTimedOut "model_timed_out" 504 Fail "The answer of a model did not arrive in time";
    ModelDisconnected "model_disconnected" 502 Fail "The connection to a model ended before the answer began";
    ModelUnreachable "model_unreachable" 503 Fail "The provider of a model cannot be reached";
    AttachmentMissing "attachment_missing" 422 Fail "The bytes of an attachment are not found by its hash";
    AttachmentDamaged "attachment_damaged" 422 Fail "The bytes of an attachment do not match its hash";
    AttachmentsDisabled "attachments_disabled" 404 Fail "The server has no folder for attachments"
        => "set `server.attachments` to a folder and restart the server, or send the bytes in the message as `base64`";
    AttachmentUnreadable "attachment_unreadable" 503 Fail "The place of an attachment cannot be read at the moment";
    UnknownModel "unknown_model" 404 Fail "The model is not in the table of models";
    ModelKeyMissing "model_key_missing" 500 Fail "The key of a provider is not set";
    // MCP servers
    McpServerUnreachable "mcp_server_unreachable" 503 Fail "The MCP server cannot be started or reached";
    McpServerGone "mcp_server_gone" 502 Fail "The MCP server is gone";
    ToolTimedOut "tool_timed_out" 504 Fail "The MCP server did not answer in time";
    ToolResultTooLarge "tool_result_too_large" 502 Fail "The MCP server returned too much";
    ToolCallRefused "tool_call_refused" 422 Fail "The MCP server rejected a call";
    ToolKeyRefused "tool_key_refused" 502 Fail "The MCP server rejected the credentials";
    McpServerBroken "mcp_server_broken" 502 Fail "The MCP server violates the protocol";
    // Failure codes
    OutcomeUnknown "outcome_unknown" 409 Fail
        "An attempt of an `at_most_once` task may have started, and its result is unknown"
        => "check whether the effect happened; execute it again with `--include-outcome-unknown` (`include_outcome_unknown`)";
}

#[cfg(test)]
mod tests;
