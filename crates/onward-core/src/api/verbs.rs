//! The table of verbs.
//!
//! A row declares a verb once: its method name in Rust, its name over gRPC, its request, its reply and the scope that a caller
//! needs. The enums [`Call`] and [`Reply`], the methods of a client, the gRPC service and its `.proto` file are generated from
//! the table.

use super::*;
use crate::codec::{DecodeError, Message};

/// Passes the table of verbs to the macro `$callback`.
///
/// A row is `method Name(Request) -> Reply, Scope;`.
#[macro_export]
macro_rules! with_verbs {
    ($callback:ident) => {
        $callback! {
            /// Starts a run, or returns the existing one: the same id with the same kind and input is the same run.
            start_run StartRun(StartRequest) -> StartReply, Start;
            /// Reads the head of a run.
            read_head ReadRun(RunRequest) -> RunHead, Read;
            /// Queues a task without a workflow, or returns the existing one: the same id with the same kind and input is the
            /// same task.
            start_task StartTask(StartTaskRequest) -> StartReply, Start;
            /// Reads a standalone task.
            read_task ReadTask(RunRequest) -> TaskView, Read;
            /// Cancels a standalone task; it ends at once.
            cancel_task CancelTask(ReasonRequest) -> Appended, Operate;
            /// Returns why a pending run or tasks of a run are not executed.
            read_blockers ReadBlockers(RunRequest) -> BlockersReply, Read;
            /// Lists runs that were deleted individually, newest first.
            list_deleted ListDeleted(DeletedQuery) -> DeletedReply, Read;
            /// Reads a page of a run's log.
            read_log_page ReadLog(LogRequest) -> LogPage, Read;
            /// Reads a page of an agent's conversation.
            read_entries ReadEntries(EntriesRequest) -> EntryPage, Read;
            /// Appends an entry to the conversation of an agent, which takes it in when its next turn starts.
            append_entry AppendEntry(AppendEntryRequest) -> AppendedEntry, Signal;
            /// Continues an agent's conversation from an earlier entry; later entries are abandoned and stay readable.
            branch_run BranchRun(BranchRequest) -> Appended, Signal;
            /// Puts a message into the mailbox of an agent: a signal, named `message` by default.
            send_message SendMessage(MessageRequest) -> Appended, Signal;
            /// Stores bytes that messages to agents refer to by their hash.
            put_attachment PutAttachment(PutAttachmentRequest) -> PutAttachmentReply, Signal;
            /// Resumes an agent that no worker holds, by a connected worker. If several compete, one succeeds.
            resume_agent ResumeAgent(ResumeAgentRequest) -> ResumeAgentReply, Work;
            /// Waits until a run has grown or ended, or the time is over. To wait for the ends of many runs, use AwaitEnds.
            await_change AwaitChange(ChangeRequest) -> ChangeReply, Read;
            /// Returns the steps and tasks of a run that workers execute now.
            read_active ReadActive(RunRequest) -> ActiveReply, Read;
            /// Reads the stream of a run after an offset; waits for more up to the given time.
            read_stream ReadStream(StreamRequest) -> StreamPage, Read;
            /// Lists runs, newest first.
            list_runs ListRuns(RunQuery) -> RunList, Read;
            /// Lists the runs that a run started as its children, newest first.
            list_children ListChildren(ChildrenQuery) -> RunList, Read;
            /// Reads the calls of a run with their times and attempts, in order of their first events.
            read_timeline ReadTimeline(TimelineRequest) -> Timeline, Read;
            /// Reads a run as of an event of its log.
            read_at ReadAt(MomentRequest) -> Moment, Read;
            /// Counts runs by status.
            count_runs CountRuns(CountQuery) -> CountsReply, Read;
            /// Counts the starts and ends of runs over time.
            read_activity ReadActivity(ActivityQuery) -> ActivityReply, Read;
            /// Counts the open runs for each version of the code.
            list_versions ListVersions(NamespaceRequest) -> VersionsReply, Read;
            /// Returns the cost by model, day, run or tree, including deleted runs.
            read_spend ReadSpend(SpendQuery) -> SpendReply, Read;
            /// Appends a signal to a run's mailbox.
            signal_run SignalRun(SignalRequest) -> Appended, Signal;
            /// Requests cancellation of a run; its code may compensate first.
            cancel_run CancelRun(ReasonRequest) -> Appended, Operate;
            /// Ends a run at once, without running its code.
            terminate_run TerminateRun(ReasonRequest) -> Appended, Operate;
            /// Pauses a run and its timers until it is resumed.
            pause_run PauseRun(ReasonRequest) -> Appended, Operate;
            /// Resumes a paused run, optionally with other budget limits.
            resume_run ResumeRun(ResumeRequest) -> Appended, Operate;
            /// Continues a failed run: calls that caused the failure are executed again.
            retry_run RetryRun(RetryRequest) -> Restored, Operate;
            /// Starts a run that continues from a point of this run's log.
            fork_run ForkRun(ForkRequest) -> Restored, Operate;
            /// Forks a run and ends the original.
            reset_run ResetRun(ForkRequest) -> Restored, Operate;
            /// Applies one batch of a verb to the runs that match a filter: `cancel`, `terminate`, `pause`, `resume` or `retry`.
            bulk_runs BulkRuns(BulkRequest) -> BulkDone, Operate;
            /// Deletes one batch of the runs that match a filter.
            bulk_delete BulkDelete(BulkRequest) -> BulkDone, Admin;
            /// Deletes a closed run with all its generations.
            delete_run DeleteRun(ReasonRequest) -> DoneReply, Admin;
            /// Sends an update to a run and waits for its recorded result.
            update_run UpdateRun(AskRequest) -> AskReply, Signal;
            /// Queries a run's code; not recorded.
            query_run QueryRun(AskRequest) -> AskReply, Read;
            /// Lists open approvals, oldest first.
            list_approvals ListApprovals(WaitQuery) -> WaitsReply, Read;
            /// Claims a specific run for a connected worker and delivers an input to it; the run arrives over the worker's
            /// connection.
            drive_run DriveRun(DriveRequest) -> DriveReply, Work;
            /// Decides an approval.
            decide_approval DecideApproval(DecideRequest) -> Appended, Approve;
            /// Resolves or rejects a promise.
            resolve_promise ResolvePromise(ResolveRequest) -> Appended, Signal;
            /// Lists the workers of a namespace.
            list_workers ListWorkers(NamespaceRequest) -> WorkersReply, Read;
            /// Lists quarantined tasks, oldest first.
            list_quarantined ListQuarantined(TaskQuery) -> TasksReply, Read;
            /// Puts a task that is quarantined, or waits for a rate limit, back on its queue.
            retry_task RetryTask(TaskRequest) -> DoneReply, Operate;
            /// Lists the queues of a namespace with their tasks and the number of their workers.
            list_queues ListQueues(NamespaceRequest) -> QueuesReply, Read;
            /// Reads a queue as a whole, with its settings and the keys whose tasks wait in it.
            read_queue ReadQueue(QueueRequest) -> QueueView, Read;
            /// Replaces the settings of a queue; they apply to the next claim of every server.
            put_queue PutQueue(PutQueueRequest) -> QueueView, Operate;
            /// Removes the settings of a queue, and with them its limits.
            delete_queue DeleteQueue(QueueRequest) -> DoneReply, Operate;
            /// Reads the quota of a namespace, and what is used of it.
            read_quota ReadQuota(QuotaRequest) -> QuotaView, Read;
            /// Replaces the quota of a namespace. Needs a key for all namespaces.
            put_quota PutQuota(PutQuotaRequest) -> QuotaView, Admin;
            /// Removes the quota of a namespace. Needs a key for all namespaces.
            delete_quota DeleteQuota(QuotaRequest) -> DoneReply, Admin;
            /// Stores a document as the current version of its flow. Nothing is stored if it has errors.
            put_flow PutFlow(PutFlowRequest) -> PutFlowReply, Work;
            /// Lists flows, or the versions of one.
            list_flows ListFlows(FlowQuery) -> FlowsReply, Read;
            /// Replaces the live defaults of a kind.
            put_defaults PutDefaults(PutDefaultsRequest) -> DefaultsReply, Admin;
            /// Lists the defaults of kinds from all sources.
            list_defaults ListDefaults(DefaultsQuery) -> DefaultsReply, Read;
            /// Deletes a flow with all its versions.
            delete_flow DeleteFlow(DeleteFlowRequest) -> DoneReply, Admin;
            /// Invalidates memos by key or by prefix: calls that begin later compute again.
            invalidate_memos InvalidateMemos(InvalidateMemosRequest) -> InvalidateMemosReply, Operate;
            /// Creates a schedule, or replaces its definition. Starts nothing of the past.
            put_schedule PutSchedule(PutScheduleRequest) -> PutScheduleReply, Operate;
            /// Reads a schedule with its last runs and its next slots.
            read_schedule ReadSchedule(ScheduleRequest) -> ScheduleView, Read;
            /// Lists schedules, newest first.
            list_schedules ListSchedules(ScheduleQuery) -> SchedulesReply, Read;
            /// Deletes a schedule. Runs that it started continue.
            delete_schedule DeleteSchedule(ScheduleRequest) -> DoneReply, Operate;
            /// Pauses a schedule: the clock starts nothing until it is resumed.
            pause_schedule PauseSchedule(PauseScheduleRequest) -> ScheduleView, Operate;
            /// Resumes a paused schedule; the slots of the pause are skipped.
            resume_schedule ResumeSchedule(PauseScheduleRequest) -> ScheduleView, Operate;
            /// Starts a run of a schedule at once.
            trigger_schedule TriggerSchedule(TriggerScheduleRequest) -> TriggerScheduleReply, Operate;
            /// Starts runs for the slots of a past range.
            backfill_schedule BackfillSchedule(BackfillScheduleRequest) -> ScheduleView, Operate;
            /// Returns slots of a schedule, or of a specification that is not stored.
            list_slots ListSlots(SlotsRequest) -> SlotsReply, Read;
        }
    };
}

/// A verb: the types of its request and of its reply.
pub trait Verb {
    /// The name of the gRPC method.
    const NAME: &'static str;
    type Request: Message;
    type Reply: Message;

    /// Returns the call with this request.
    fn call(request: Self::Request) -> Call;

    /// Returns the reply, if it is one of this verb.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

macro_rules! declare {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        /// The request of any verb.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Call {
            $($(#[$meta])* $name($request),)*
        }

        /// The reply of any verb.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Reply {
            $($name($reply),)*
        }

        impl Call {
            /// Returns the name of the verb, which is also the name of its gRPC method.
            pub fn name(&self) -> &'static str {
                match self { $(Call::$name(_) => stringify!($name),)* }
            }

            pub fn to_bytes(&self) -> Vec<u8> {
                match self { $(Call::$name(request) => request.to_bytes(),)* }
            }

            /// Decodes the request of the verb with this name.
            pub fn decode(name: &str, bytes: &[u8]) -> Result<Call, DecodeError> {
                match name {
                    $(stringify!($name) => $request::decode_fields(bytes).map(Call::$name),)*
                    _ => Err(DecodeError::Invalid { what: "verb" }),
                }
            }

            /// Returns what the verb acts on.
            pub fn target(&mut self) -> Target<'_> {
                match self { $(Call::$name(request) => request.target(),)* }
            }
        }

        impl Reply {
            pub fn to_bytes(&self) -> Vec<u8> {
                match self { $(Reply::$name(reply) => reply.to_bytes(),)* }
            }

            /// Decodes the reply of the verb with this name.
            pub fn decode(name: &str, bytes: &[u8]) -> Result<Reply, DecodeError> {
                match name {
                    $(stringify!($name) => $reply::decode_fields(bytes).map(Reply::$name),)*
                    _ => Err(DecodeError::Invalid { what: "verb" }),
                }
            }
        }

        /// The verbs as types.
        pub mod verb {
            $(
                $(#[$meta])*
                pub struct $name;

                impl super::Verb for $name {
                    const NAME: &'static str = stringify!($name);
                    type Request = super::$request;
                    type Reply = super::$reply;

                    fn call(request: Self::Request) -> super::Call {
                        super::Call::$name(request)
                    }

                    fn reply(reply: super::Reply) -> Option<Self::Reply> {
                        match reply {
                            super::Reply::$name(reply) => Some(reply),
                            _ => None,
                        }
                    }
                }
            )*
        }
    };
}

with_verbs!(declare);
