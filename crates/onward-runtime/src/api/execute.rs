//! Execution of any verb of the table: one line for each, which calls the runtime's function.

use std::time::Duration;

use onward_core::api::VersionCount;
use onward_core::api::{
    self, ActiveReply, AskReply, BlockersReply, Call, ChangeReply, ChangeRequest, DecideRequest, DeletedReply, DoneReply,
    FlowsReply, LogPage, MessageRequest, QueuesReply, Reply, ResolveRequest, RetryRequest, RunList, Signal, SpendReply,
    StartReply, TasksReply, VersionsReply, WaitsReply, WorkersReply,
};
use onward_core::budget::{Allowance, Budget};
use onward_core::conversation::MESSAGE;
use onward_core::event::{PauseReason, RunPaused};
use onward_core::internal::InternalRuns;
use onward_core::reopen::Retry;
use onward_core::task::TaskState;
use onward_core::{Name, Namespace};
use onward_store::{Appended, DeletedQuery, Gaps, RunQuery, Started, TaskQuery, WaitQuery};

use crate::api::observe::read_moment;
use crate::conversation::read_page;
use crate::memo::refuse_memo_ids;
use crate::{CallRef, ClientFuture, Decide, Runtime, RuntimeError};

/// What a server knows about the caller of a verb besides the request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallContext {
    /// The name of the caller's credential.
    pub caller: Option<String>,
    /// The budget of a run that is started; without one, the budget of the request is granted.
    pub allowance: Option<Allowance>,
    /// Upper bound on the budget of a run that continues from a copy.
    pub budget_max: Option<Budget>,
}

impl Runtime {
    /// Executes a verb. Waits as long as the verb needs; the caller limits the time. Boxed, because the code of an async function
    /// is compiled again in every crate that awaits it.
    pub fn execute(&self, call: Call, context: CallContext) -> ClientFuture<'_, Reply> {
        Box::pin(self.execute_call(call, context))
    }

    async fn execute_call(&self, mut call: Call, context: CallContext) -> Result<Reply, RuntimeError> {
        refuse_memo_ids(&mut call)?;
        Ok(match call {
            Call::StartRun(of) => Reply::StartRun(start_reply(self.start_run_for(of, context).await?)),
            Call::ReadRun(of) => Reply::ReadRun(self.read_head(&of.run).await?),
            Call::StartTask(of) => Reply::StartTask(start_reply(self.start_task(of).await?)),
            Call::ReadTask(of) => Reply::ReadTask(self.read_task(&of.run).await?),
            Call::CancelTask(of) => Reply::CancelTask(self.cancel_task(&of.run, &of.reason).await?),
            Call::ReadBlockers(of) => Reply::ReadBlockers(BlockersReply { blocked_on: self.blocked_on(&of.run).await? }),
            Call::ListDeleted(of) => Reply::ListDeleted(self.deleted(of).await?),
            Call::ReadLog(of) => {
                let records = self.read_log(&of.run, of.generation, of.from, of.limit).await?;
                Reply::ReadLog(LogPage { records, more: false })
            }
            Call::ReadEntries(of) => Reply::ReadEntries(read_page(self, of.run, of.query).await?),
            Call::AppendEntry(of) if of.is_looked_up => Reply::AppendEntry(self.put_entry(&of.run, of.entry).await?),
            Call::AppendEntry(of) => Reply::AppendEntry(self.append_entry(&of.run, of.entry).await?),
            Call::BranchRun(of) => Reply::BranchRun(self.branch_run(&of.run, of.branch).await?),
            Call::SendMessage(of) => Reply::SendMessage(self.send_message(of).await?),
            Call::AwaitChange(of) => Reply::AwaitChange(self.await_change(of).await?),
            Call::ReadActive(of) => Reply::ReadActive(ActiveReply { active: self.active(&of.run).await? }),
            Call::ReadStream(of) => {
                let wait = Duration::from_millis(of.wait_ms);
                Reply::ReadStream(self.read_stream(&of.run, of.offset.as_deref(), wait).await?)
            }
            Call::ListRuns(of) => Reply::ListRuns(self.runs(of).await?),
            Call::ListChildren(of) => Reply::ListChildren(self.list_children(of).await?),
            Call::ReadTimeline(of) => Reply::ReadTimeline(self.read_timeline(of).await?),
            Call::ReadAt(of) => Reply::ReadAt(read_moment(self, of).await?),
            Call::CountRuns(of) => Reply::CountRuns(self.count_runs(of).await?),
            Call::ReadActivity(of) => Reply::ReadActivity(self.read_activity(of).await?),
            Call::ListVersions(of) => Reply::ListVersions(VersionsReply { versions: self.open_versions(of.namespace).await? }),
            Call::ReadSpend(of) => Reply::ReadSpend(SpendReply { rows: self.store().spend(of).await? }),
            Call::SignalRun(of) => Reply::SignalRun(self.signal_run(&of.run, of.signal).await?),
            Call::CancelRun(of) => Reply::CancelRun(self.cancel_run(&of.run, &of.reason).await?),
            Call::TerminateRun(of) => Reply::TerminateRun(self.terminate_run(&of.run, &of.reason).await?),
            Call::PauseRun(of) => {
                let pause = RunPaused::because(PauseReason::Requested, of.reason);
                Reply::PauseRun(self.pause_run(&of.run, pause).await?)
            }
            Call::ResumeRun(of) => Reply::ResumeRun(self.resume_run(&of.run, of.budget).await?),
            Call::RetryRun(of) => {
                let RetryRequest { run, request_id, reason, include_outcome_unknown } = of;
                let CallContext { caller, budget_max, .. } = context;
                let retry = Retry { request_id, reason, include_outcome_unknown, caller, budget_max };
                Reply::RetryRun(self.retry_run(&run, &retry).await?)
            }
            Call::ForkRun(of) => Reply::ForkRun(self.fork_run(of, false, context).await?),
            Call::ResetRun(of) => Reply::ResetRun(self.fork_run(of, true, context).await?),
            Call::BulkRuns(of) => Reply::BulkRuns(self.bulk_runs(of, false, context).await?),
            Call::BulkDelete(of) => Reply::BulkDelete(self.bulk_runs(of, true, context).await?),
            Call::DeleteRun(of) => {
                self.delete_run(&of.run, &of.reason).await?;
                Reply::DeleteRun(DoneReply {})
            }
            Call::UpdateRun(of) => {
                let answer = self.update_run(&of.run, &of.update_id, of.name, of.payload).await?;
                Reply::UpdateRun(AskReply { answer: Some(answer) })
            }
            Call::QueryRun(of) => Reply::QueryRun(AskReply { answer: self.query_run(&of.run, of.name, of.payload).await? }),
            Call::ListApprovals(of) => Reply::ListApprovals(self.approvals(of).await?),
            Call::DecideApproval(of) => Reply::DecideApproval(self.decide(of, context).await?),
            Call::ResolvePromise(of) => {
                let ResolveRequest { namespace, promise, result, resolution_id } = of;
                let call = CallRef::parse(&namespace, &promise)?;
                Reply::ResolvePromise(self.resolve_promise(&call, result, &resolution_id).await?)
            }
            Call::ListWorkers(of) => Reply::ListWorkers(self.workers(&of.namespace).await?),
            Call::ListQuarantined(of) => Reply::ListQuarantined(self.quarantined(of).await?),
            Call::RetryTask(of) => {
                self.retry_task(&CallRef::parse(&of.namespace, &of.task)?).await?;
                Reply::RetryTask(DoneReply {})
            }
            Call::ListQueues(of) => {
                let settings = self.list_queue_settings(&of.namespace).await?;
                Reply::ListQueues(QueuesReply { queues: self.list_queues(&of.namespace).await?, settings })
            }
            Call::ReadQueue(of) => Reply::ReadQueue(self.read_queue(&of.namespace, of.queue).await?),
            Call::PutQueue(of) => Reply::PutQueue(self.put_queue(of).await?),
            Call::DeleteQueue(of) => {
                self.delete_queue(&of.namespace, of.queue.as_ref()).await?;
                Reply::DeleteQueue(DoneReply {})
            }
            Call::ReadQuota(of) => Reply::ReadQuota(self.read_quota(of.namespace).await?),
            Call::PutQuota(of) => Reply::PutQuota(self.put_quota(of).await?),
            Call::DeleteQuota(of) => {
                self.delete_quota(&of.namespace).await?;
                Reply::DeleteQuota(DoneReply {})
            }
            Call::PutFlow(of) => Reply::PutFlow(self.put_flow(of).await?),
            Call::ListFlows(of) => Reply::ListFlows(FlowsReply { flows: self.list_flows(&of).await? }),
            Call::InvalidateMemos(of) => Reply::InvalidateMemos(self.invalidate_memos(of).await?),
            Call::PutSchedule(of) => Reply::PutSchedule(self.put_schedule(of, context).await?),
            Call::ReadSchedule(of) => Reply::ReadSchedule(self.read_schedule(&of).await?),
            Call::ListSchedules(of) => Reply::ListSchedules(self.list_schedules(of).await?),
            Call::DeleteSchedule(of) => {
                self.delete_schedule(&of).await?;
                Reply::DeleteSchedule(DoneReply {})
            }
            Call::PauseSchedule(of) => Reply::PauseSchedule(self.pause_schedule(of).await?),
            Call::ResumeSchedule(of) => Reply::ResumeSchedule(self.resume_schedule(of).await?),
            Call::TriggerSchedule(of) => Reply::TriggerSchedule(self.trigger_schedule(of, context).await?),
            Call::BackfillSchedule(of) => Reply::BackfillSchedule(self.backfill_schedule(of, context).await?),
            Call::ListSlots(of) => Reply::ListSlots(self.list_slots(of).await?),
            Call::PutDefaults(of) => Reply::PutDefaults(self.put_defaults(of).await?),
            Call::ListDefaults(of) => Reply::ListDefaults(self.list_defaults(&of).await?),
            Call::DeleteFlow(of) => {
                self.delete_flow(of).await?;
                Reply::DeleteFlow(DoneReply {})
            }
            // These need the sessions or the files of a server.
            Call::PutAttachment(_) | Call::ResumeAgent(_) | Call::DriveRun(_) => {
                return Err(RuntimeError::RequestInvalid { why: "only a server has this verb".to_owned() });
            }
        })
    }

    /// Puts a message of a person into the mailbox of an agent.
    async fn send_message(&self, message: MessageRequest) -> Result<Appended, RuntimeError> {
        let MessageRequest { run, content, message_id, signal } = message;
        Runtime::check_message(&content)?;
        let name = signal.map_or_else(|| Name::new(MESSAGE), Ok)?;
        self.signal_run(&run, Signal { name, payload: content, signal_id: message_id }).await
    }

    /// Waits until the run has passed the given position or is closed, or the time is over.
    async fn await_change(&self, request: ChangeRequest) -> Result<ChangeReply, RuntimeError> {
        let ChangeRequest { run, generation, next_index, wait_ms } = request;
        let change = async {
            let mut watch = self.watch_run(&run).await?;
            loop {
                let head = self.read_head(&run).await?;
                if (head.generation, head.next_index) > (generation, next_index) || head.status.is_closed() {
                    return Ok(());
                }
                watch.changed().await?;
            }
        };
        tokio::time::timeout(Duration::from_millis(wait_ms), change).await.unwrap_or(Ok::<_, RuntimeError>(()))?;
        let head = self.read_head(&run).await?;
        let outcome = if head.status.is_closed() { self.read_outcome(&run).await? } else { None };
        Ok(ChangeReply { generation: head.generation, next_index: head.next_index, status: head.status, outcome })
    }

    /// Decides an approval in the name of the caller's credential, if it has one (S8).
    async fn decide(&self, request: DecideRequest, context: CallContext) -> Result<Appended, RuntimeError> {
        let DecideRequest { namespace, approval, decide } = request;
        let decided_by = context.caller.or(decide.decided_by);
        self.decide_approval(&CallRef::parse(&namespace, &approval)?, Decide { decided_by, ..decide }).await
    }

    pub(crate) async fn workers(&self, namespace: &Namespace) -> Result<WorkersReply, RuntimeError> {
        let elsewhere = self.workers_elsewhere(namespace).await?;
        Ok(WorkersReply { workers: self.list_workers(namespace).into_iter().chain(elsewhere).collect() })
    }

    async fn runs(&self, query: api::RunQuery) -> Result<RunList, RuntimeError> {
        let gaps = query.partly.then(Gaps::default);
        let page = self.store().list_runs(RunQuery { gaps: gaps.clone(), ..run_query(query) }).await?;
        Ok(RunList { runs: page.runs, next: page.next, missing: names(gaps) })
    }

    async fn open_versions(&self, namespace: Namespace) -> Result<Vec<VersionCount>, RuntimeError> {
        let mut versions = self.store().count_versions(namespace).await?;
        versions.retain(|version| InternalRuns::of_kind(&version.kind).is_none());
        Ok(versions)
    }

    async fn deleted(&self, query: api::DeletedQuery) -> Result<DeletedReply, RuntimeError> {
        let api::DeletedQuery { namespace, run, limit, partly } = query;
        let gaps = partly.then(Gaps::default);
        let runs = self.store().list_deleted(DeletedQuery { namespace, run, limit, gaps: gaps.clone() }).await?;
        Ok(DeletedReply { runs, missing: names(gaps) })
    }

    async fn approvals(&self, query: api::WaitQuery) -> Result<WaitsReply, RuntimeError> {
        let api::WaitQuery { namespace, run, limit, partly, below } = query;
        let gaps = partly.then(Gaps::default);
        let query = WaitQuery { namespace, run, limit, below, kind: None, gaps: gaps.clone() };
        Ok(WaitsReply { waits: self.list_approvals(query).await?, missing: names(gaps) })
    }

    async fn quarantined(&self, query: api::TaskQuery) -> Result<TasksReply, RuntimeError> {
        let api::TaskQuery { namespace, run, limit, partly } = query;
        let gaps = partly.then(Gaps::default);
        let query = TaskQuery { namespace, run, limit, state: Some(TaskState::Quarantined), gaps: gaps.clone() };
        Ok(TasksReply { tasks: self.store().list_tasks(query).await?, missing: names(gaps) })
    }
}

/// Returns the names of the databases that a list could not reach.
pub(super) fn names(gaps: Option<Gaps>) -> Vec<String> {
    gaps.map(|gaps| gaps.names()).unwrap_or_default()
}

pub(crate) fn run_query(query: api::RunQuery) -> RunQuery {
    let api::RunQuery { namespace, kind, statuses, created_from, created_until, limit, cursor, versions, attributes, partly: _ } =
        query;
    let (parent, gaps, internal) = (None, None, None);
    RunQuery {
        namespace,
        kind,
        versions,
        statuses,
        attributes,
        parent,
        created_from,
        created_until,
        internal,
        limit,
        cursor,
        gaps,
    }
}

/// Returns the reply of the API, without the lease.
pub(crate) fn start_reply(started: Started) -> StartReply {
    StartReply { created: started.created, head: started.head, signal: started.signal }
}
