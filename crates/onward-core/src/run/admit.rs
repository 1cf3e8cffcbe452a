//! Admission: the decision on each input and commit, and the update of the head.

use super::{Commit, Committed, Effect, Input, LastCommit, NewRun, QuietTail, RunHead, Status};
use crate::agent::conversation::ENTRY_SIGNAL;
use crate::log::event::{
    Attribute, PauseReason, RunPaused, RunResumed, RunStarted, TaskAttemptEnded, TaskAttempted, is_same_incarnation,
};
use crate::run::attribute;
use crate::run::deadline::deadline_call;
use crate::run::delayed_start::start_call;
use crate::run::internal::InternalRuns;
use crate::run::memo::{MEMO_KEY_BYTES_MAX, MemoScope, is_cell_input};
use crate::run::run_queue::{SLOT_KIND, queue_fault};
use crate::schedule::ScheduleRefusal;
use crate::spend::budget;
use crate::task::EffectClass;
use crate::{CallId, Epoch, Event, Index, Record, RunId, RunKey, TASK_KIND_PREFIX, Timestamp, error_enum};

fn why_fenced(epoch: Epoch, current: Epoch, n: u64, next: u64) -> String {
    match current {
        Epoch(0) => format!("this worker does not hold it under epoch {}", epoch.0),
        current if current != epoch => format!("epoch {} is over, the run is in epoch {}", epoch.0, current.0),
        _ if n != next => format!("commit {n} comes out of order, the next is {next}"),
        _ => "the run has continued as new".to_owned(),
    }
}

error_enum! {
    /// A rejected append. Nothing was written.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum Refusal {
        #[error("run {key} is {status}")]
        Closed { key: RunKey, status: Status } => RunClosed hint(status) closed_hint(*status),
        #[error("the lease on run {key} is lost: {}", why_fenced(*epoch, *current, *n, *next))]
        Fenced { key: RunKey, epoch: Epoch, current: Epoch, n: u64, next: u64 } => LeaseLost,
        #[error("run {key} has unread inputs up to {tail}")]
        Unread { key: RunKey, tail: Index } => InputsUnread,
        #[error("run {key} is paused")]
        Paused { key: RunKey } => RunPaused,
        #[error("run {key} has continued as new, or was deleted and started again")]
        OtherGeneration { key: RunKey } => RunContinued,
        #[error("run {key} has exhausted its {what} budget")]
        BudgetExhausted { key: RunKey, what: &'static str } => BudgetExhausted,
        #[error("run {key} continues from a copy: {count} approvals must be given again")]
        ApprovalNeeded { key: RunKey, count: usize } => ApprovalNeeded,
        #[error(
            "run {key} cannot continue from a copy that restarts child {child}, which was started after the approval at event {approval}"
        )]
        ChildBehindApproval { key: RunKey, child: RunId, approval: Index } => ChildBehindApproval,
        #[error("run {key} is not paused")]
        NotPaused { key: RunKey } => RunNotPaused,
        #[error("run {key} has a pending branch request at event {index}")]
        BranchPending { key: RunKey, index: Index } => BranchPending,
        #[error("run {key} is a standalone task, which can only be canceled or terminated")]
        IsTask { key: RunKey } => RunIsTask,
        #[error("run {key} is {status}: only a failed run can be retried")]
        NotFailed { key: RunKey, status: Status } => RunNotFailed,
        #[error("run {key} was already reset to run {successor}")]
        AlreadyReset { key: RunKey, successor: RunId } => RunReset,
        #[error("run {key} cannot be retried: the code handled its failure at event {failed} with event {next}")]
        FailureHandled { key: RunKey, failed: Index, next: Index } => FailureHandled,
        #[error("run {key} cannot be copied: the call at event {index} may have had its effect, and would be executed again")]
        OutcomeUnknown { key: RunKey, index: Index } => OutcomeUnknown,
        #[error("run {key} cannot be copied up to event {index}: {why}")]
        NoForkPoint { key: RunKey, index: Index, why: String } => ForkPointInvalid,
        #[error("run {key} does not wait for a memo at {call_id}")]
        MemoNotAwaited { key: RunKey, call_id: CallId } => WaitNotFound,
        #[error(
            "run {key} may not use the memo at {call_id}, of the scope `{scope}`: the API key of its worker is bound to kinds, and runs of \
             other kinds may use this memo"
        )]
        SharedKeyNotAllowed { key: RunKey, call_id: CallId, scope: MemoScope } => SharedKeyNotAllowed,
        #[error("run {key} is external: only its own engine can do that")]
        External { key: RunKey } => RunExternal,
        #[error("run {key} is not an external run")]
        NotExternal { key: RunKey } => RunNotExternal,
        #[error("the next event of run {key} is {next}, not {expected}")]
        LogConflict { key: RunKey, expected: Index, next: Index } => LogConflict,
        #[error(transparent)]
        Schedule(ScheduleRefusal) => (error),
        #[error("the append to run {key} is malformed: {why}")]
        Malformed { key: RunKey, why: &'static str } => CommitMalformed,
    }
}

fn closed_hint(status: Status) -> Option<&'static str> {
    (status == Status::Failed).then_some("continue the failed run with `onward run retry RUN`, then send it again")
}

impl Refusal {
    /// Returns the pause to append instead of what is refused: of an attempt if the budget is exhausted (BG1), of a commit if its
    /// worker may not use a memo (MM8).
    pub fn pause(&self) -> Option<Input> {
        if let Refusal::SharedKeyNotAllowed { .. } = self {
            let message = format!("{self}; {}", self.hint().unwrap_or_default());
            return Some(Input::new(RunPaused::because(PauseReason::ActivationFailed, message)));
        }
        let Refusal::BudgetExhausted { what, .. } = self else { return None };
        let message = match *what {
            budget::UNPRICED => {
                "the run has a cost budget and has used a model without a price, so its cost is unknown; give the model a price \
                 (0 if it is free), or resume the run to continue without one"
                    .to_owned()
            }
            what => format!("the run has exhausted its {what} budget"),
        };
        Some(Input::new(RunPaused::because(PauseReason::BudgetExhausted, message)))
    }
}

/// An accepted append: write `record`, carry out `effects`, save the changed head.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    pub record: Record,
    pub effects: Vec<Effect>,
    /// The run's next generation, when it continues as new.
    pub successor: Option<Box<NewRun>>,
}

/// A commit that was not appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitRefusal {
    /// A repeat of the last commit, with its first reply.
    Repeated(Committed),
    Refused(Refusal),
}

impl From<Refusal> for CommitRefusal {
    fn from(refusal: Refusal) -> CommitRefusal {
        CommitRefusal::Refused(refusal)
    }
}

impl RunHead {
    /// Decides on an input. `cost` is that of the last attempt of a task, which precedes the task's result in one record. On
    /// success the head is updated.
    pub fn admit_input(&mut self, input: Input, cost: Option<TaskAttemptEnded>, at: Timestamp) -> Result<Admitted, Refusal> {
        if self.cell.is_some() || is_cell_input(&input.event) {
            return self.admit_to_cell(input, at);
        }
        if self.schedule.is_some() || matches!(input.event, Event::ScheduleDecided(_)) {
            return self.admit_to_schedule(input, at);
        }
        let needs_wait = input.needs_wait().is_some();
        let Input { event, generation, epoch, incarnation, .. } = input;
        self.check_form(&event)?;
        if let Event::ExternalAppended(event) = event {
            return self.admit_external(event, at);
        }
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: self.key.clone(), status: self.status }); // R4
        }
        let keeps_questions = self.is_retried && needs_wait;
        if generation.is_some_and(|generation| generation != self.generation) && !keeps_questions {
            return Err(Refusal::OtherGeneration { key: self.key.clone() });
        }
        if !is_same_incarnation(incarnation, self.incarnation) {
            return Err(Refusal::OtherGeneration { key: self.key.clone() }); // R10
        }
        if let Some(epoch) = epoch.filter(|epoch| *epoch != self.epoch) {
            let (current, next) = (self.epoch, self.next_commit);
            return Err(Refusal::Fenced { key: self.key.clone(), epoch, current, n: next, next }); // R8
        }
        if let Event::MemoAnswered(event) = &event
            && !self.asks_memo(&event.call_id)
        {
            return Err(Refusal::MemoNotAwaited { key: self.key.clone(), call_id: event.call_id.clone() }); // MM2
        }
        if let Event::TaskAttemptEnded(event) = &event
            && let Some(why) = event.malformed()
        {
            return Err(Refusal::Malformed { key: self.key.clone(), why });
        }
        if self.is_task && !ends_task_run(&event) && !event.is_quiet() {
            return Err(Refusal::IsTask { key: self.key.clone() }); // R9
        }
        if !self.is_task && !event.is_input() {
            return Err(Refusal::Malformed { key: self.key.clone(), why: "the event is not an input" });
        }
        if matches!(event, Event::RunResumed(_)) && !self.asks.is_empty() {
            return Err(Refusal::ApprovalNeeded { key: self.key.clone(), count: self.asks.len() }); // Z8
        }
        // A resume with a budget changes the limits, even if the run is not paused.
        if matches!(event, Event::RunResumed(RunResumed { budget: None })) && self.status != Status::Paused {
            return Err(Refusal::NotPaused { key: self.key.clone() });
        }
        if let (Event::BranchRequested(_), Some(index)) = (&event, self.branch_at) {
            return Err(Refusal::BranchPending { key: self.key.clone(), index }); // R15
        }
        if let Event::TaskAttempted(TaskAttempted { ledger_name: Some(_), .. }) = &event
            && let Some(what) = self.budget.as_ref().and_then(|budget| budget.exhausted(self.spend.as_deref(), at))
        {
            return Err(Refusal::BudgetExhausted { key: self.key.clone(), what }); // R13
        }
        if matches!(event, Event::RunBegun(_)) && (self.starts_at.is_none() || self.status == Status::Paused) {
            return Err(Refusal::Malformed { key: self.key.clone(), why: "the run cannot begin now" }); // DS2
        }
        let event = self.recorded_as(event, at);
        let before = cfg!(debug_assertions).then(|| self.clone());
        let mut effects = Vec::new();
        let mut record = Record { index: self.next_index, at, commit: None, events: Vec::with_capacity(1) };
        for event in cost.map(Event::from).into_iter().chain([event]) {
            effects.extend(self.input_effects(&event, at));
            effects.extend(self.memo_effects(self.next_index, std::slice::from_ref(&event), at));
            self.take_input_status(&event, at);
            let one = Record::input(self.next_index, at, event);
            self.advance(&one);
            record.events.extend(one.events);
        }
        debug_assert!(before.is_some_and(|before| self.can_catch_up_from(&before, &record)), "L16: {:?}", record.events);
        Ok(Admitted { record, effects, successor: None })
    }

    /// Fails unless the run can continue as its next generation, from a copy of the log of generation `after`.
    pub fn admit_retry(&self, after: u32) -> Result<(), Refusal> {
        if self.generation != after {
            return Err(Refusal::OtherGeneration { key: self.key.clone() });
        }
        if self.status != Status::Failed {
            return Err(Refusal::NotFailed { key: self.key.clone(), status: self.status });
        }
        Ok(())
    }

    /// Decides on a commit. On success the head is updated; on refusal it is unchanged.
    pub fn admit_commit(&mut self, commit: Commit, at: Timestamp) -> Result<Admitted, CommitRefusal> {
        if let Some(last) = self.last_commit
            && commit.n.checked_add(1) == Some(self.next_commit)
            && last.commit_id == commit.commit_id
            && commit.generation == self.generation
        {
            return Err(CommitRefusal::Repeated(Committed { index: last.index, at: last.at, status: self.status })); // R2
        }
        self.check_commit(&commit)?;
        let before = cfg!(debug_assertions).then(|| self.clone());
        let mut effects = self.commit_effects(&commit.events, at);
        effects.extend(self.memo_effects(self.next_index, &commit.events, at));
        let successor = self.successor(&commit, at);
        self.status = self.status_after(commit.horizon, &commit.events, commit.waits);
        let index = self.next_index;
        let header = commit.header();
        let record = Record { index, at, commit: Some(header), events: commit.events };
        self.next_commit += 1;
        self.last_commit = Some(LastCommit::new(&header, index, at));
        self.advance(&record);
        debug_assert!(before.is_some_and(|before| self.can_catch_up_from(&before, &record)), "L16: {:?}", record.events);
        Ok(Admitted { record, effects, successor })
    }

    fn check_commit(&self, commit: &Commit) -> Result<(), Refusal> {
        let key = || self.key.clone();
        if self.external.is_some() {
            return Err(Refusal::External { key: key() }); // X3
        }
        if commit.generation != self.generation || commit.epoch != self.epoch || commit.n != self.next_commit {
            let (epoch, current, n, next) = (commit.epoch, self.epoch, commit.n, self.next_commit);
            return Err(Refusal::Fenced { key: key(), epoch, current, n, next }); // R1
        }
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: key(), status: self.status }); // R4
        }
        if self.status == Status::Paused && !commit.events.iter().all(Event::is_step_result) {
            return Err(Refusal::Paused { key: key() }); // R7
        }
        let ends = commit.events.last().is_some_and(Event::ends_log);
        // A run never continues as new over unread inputs: its successor could not get them.
        let continues = matches!(commit.events.last(), Some(Event::RunContinued(_)));
        let over_unread = commit.end_over_unread && !continues;
        if ends && !over_unread && self.has_unread(commit.horizon) {
            let tail = Index(self.next_index.0 - 1);
            return Err(Refusal::Unread { key: key(), tail }); // R5
        }
        if let Some(Event::SegmentAbandoned(marker)) = commit.events.first()
            && marker.to.plus(1) != self.next_index
        {
            let tail = Index(self.next_index.0 - 1);
            return Err(Refusal::Unread { key: key(), tail }); // R11
        }
        self.check_shape(commit).map_or(Ok(()), |why| Err(Refusal::Malformed { key: key(), why }))
    }

    /// Returns the reason if the commit is malformed. Checked and not asserted, because a worker may be another program.
    fn check_shape(&self, commit: &Commit) -> Option<&'static str> {
        let Some((_, before_last)) = commit.events.split_last() else { return Some("it has no event") };
        if self.starts_at.is_some() {
            return Some("the run has not begun"); // DS1
        }
        if commit.horizon >= self.next_index {
            return Some("its horizon is past the end of the log");
        }
        if commit.is_while_paused && !commit.events.iter().all(Event::is_step_result) {
            return Some("a commit while paused may have step results only");
        }
        if commit.is_while_paused && self.last_commit.is_some_and(|last| last.horizon > commit.horizon) {
            return Some("its horizon is before that of the previous commit"); // H3
        }
        let leaves = matches!(commit.events.first(), Some(Event::SegmentAbandoned(_)));
        if !commit.is_while_paused && !leaves && self.last_commit.is_some_and(|last| last.index > commit.horizon) {
            return Some("its horizon is before the previous commit"); // H4
        }
        if commit.events.iter().any(Event::is_input) {
            return Some("it contains an input");
        }
        if commit.events.iter().any(|event| matches!(event, Event::SignalSent(sent) if sent.name.as_str() == ENTRY_SIGNAL)) {
            return Some("it sends a signal with a name that is reserved for entries");
        }
        if commit
            .events
            .iter()
            .any(|event| matches!(event, Event::ChildStarted(child) if child.kind.as_str().starts_with(TASK_KIND_PREFIX)))
        {
            return Some("it starts a child of a kind that is reserved for standalone tasks"); // IK1
        }
        let is_internal = |id: &RunId| InternalRuns::of(id).is_some();
        if commit.events.iter().any(|event| matches!(event, Event::ChildStarted(child) if is_internal(&child.child))) {
            return Some("it starts a child with an id that is reserved for memos and schedules"); // MM6, SR4
        }
        if let Some(why) = self.wrong_memo(&commit.events) {
            return Some(why);
        }
        if !self.has_room_for_attributes(&commit.events) {
            return Some("it sets an attribute that is too long, or too many attributes"); // AT1
        }
        if commit.events.iter().filter_map(Event::call_id).any(CallId::is_too_deep) {
            return Some("a call is nested too deeply: combinators may be nested 127 times");
        }
        let reserved = [deadline_call(), start_call()];
        if commit.events.iter().filter_map(Event::call_id).any(|call_id| reserved.contains(call_id)) {
            return Some("a call has the id of the run's deadline or start"); // RD4, DS2
        }
        if let Some(why) = queue_misused(&commit.events, &reserved) {
            return Some(why);
        }
        before_last.iter().any(Event::ends_log).then_some("an event follows the end of the log") // H2
    }

    /// Returns the reason if a memo is malformed, or belongs to a call that may not be repeated (MM5).
    fn wrong_memo(&self, events: &[Event]) -> Option<&'static str> {
        let has_memo = |call_id: &CallId| {
            let asked = events.iter().any(|event| matches!(event, Event::MemoRequested(asked) if asked.call_id == *call_id));
            asked || self.memos.iter().any(|memo| memo.requested.call_id == *call_id)
        };
        events.iter().find_map(|event| match event {
            Event::MemoRequested(asked) if asked.key.is_empty() || asked.key.len() > MEMO_KEY_BYTES_MAX => {
                Some("the key of a memo is empty or too long")
            }
            Event::TaskScheduled(task) if task.options.class == Some(EffectClass::AtMostOnce) && has_memo(&task.call_id) => {
                Some("a task that runs at most once has a memo")
            }
            _ => None,
        })
    }

    fn has_room_for_attributes(&self, events: &[Event]) -> bool {
        if !events.iter().any(|event| matches!(event, Event::AttributeSet(_))) {
            return true;
        }
        let mut attributes = self.attributes.clone();
        set_attributes(&mut attributes, events);
        attribute::check(&attributes).is_ok()
    }

    fn has_unread(&self, horizon: Index) -> bool {
        self.next_index > horizon.plus(1)
    }

    /// Returns the index from which on the log has only quiet inputs; the end of the log if the stored tail is outdated.
    fn quiet_from(&self) -> Index {
        self.quiet.filter(|quiet| quiet.to == self.next_index).map_or(self.next_index, |quiet| quiet.from)
    }

    pub(super) fn status_after(&self, horizon: Index, events: &[Event], waits: bool) -> Status {
        match events.last() {
            _ if self.status == Status::Paused => Status::Paused, // R7
            Some(Event::RunCompleted(_)) => Status::Completed,
            Some(Event::RunFailed(_)) => Status::Failed,
            Some(Event::RunCanceled(_)) => Status::Canceled,
            Some(Event::RunContinued(_)) => Status::Completed,
            _ if waits && self.quiet_from() <= horizon.plus(1) => Status::Waiting, // R3
            _ => Status::Pending,
        }
    }

    /// Returns true if a store that has `before` can derive this head from the record: either it writes the head with the record,
    /// because the status changes or the head stores content of an event, or only the end of the log moves (L16).
    fn can_catch_up_from(&self, before: &RunHead, record: &Record) -> bool {
        if self.status != before.status || record.events.iter().any(Event::is_kept_in_head) {
            return true;
        }
        let RunHead { next_index, next_commit, last_commit, updated_at, .. } = self.clone();
        let quiet = before.quiet.filter(|quiet| quiet.to == next_index);
        *self == RunHead { next_index, next_commit, last_commit, updated_at, quiet, ..before.clone() }
    }

    pub(super) fn advance(&mut self, record: &Record) {
        self.follow_memos(record.index, &record.events);
        set_attributes(&mut self.attributes, &record.events);
        record.events.iter().for_each(|event| budget::follow(&mut self.spend, &mut self.budget, event, record.at));
        let is_quiet = record.commit.is_none() && record.events.iter().all(Event::is_quiet);
        let branch = record.indexed().find(|(_, event)| matches!(event, Event::BranchRequested(_)));
        self.branch_at = self.branch_at.or(branch.map(|(index, _)| index));
        self.quiet = is_quiet.then(|| QuietTail { from: self.quiet_from(), to: record.next_index() });
        self.next_index = record.next_index();
        self.updated_at = record.at;
        if self.status.is_closed() {
            self.ended_at = Some(record.at);
            self.lost_workers = None;
            self.starts_at = None;
        }
    }

    fn successor(&self, commit: &Commit, at: Timestamp) -> Option<Box<NewRun>> {
        let Some(Event::RunContinued(continued)) = commit.events.last() else { return None };
        let generation = self.generation + 1;
        let mut attributes = self.attributes.clone();
        set_attributes(&mut attributes, &commit.events);
        let budget = budget::after(self, &commit.events, at);
        // After a handoff the kind is another one, with versions of its own.
        let taken_over = continued.checkpoint.as_ref().and_then(|checkpoint| checkpoint.handoff.clone());
        let first_kind = taken_over.as_ref().map(|_| self.first_kind().clone()).or_else(|| self.first_kind.clone());
        let version = match (&taken_over, &continued.checkpoint) {
            (Some(_), _) => None,
            (None, Some(_)) => commit.carries.version.clone().or_else(|| self.version.clone()), // R14
            (None, None) => self.version.clone(),
        };
        let kind = taken_over.unwrap_or_else(|| self.kind.clone());
        let started = RunStarted {
            version,
            first_kind,
            nesting: self.nesting,
            queue: RunStarted::held(self.queue.as_deref()), // RQ1
            first_seed: self.origin_incarnation(),
            created_at: Some(self.created_at),
            requester: self.requester.clone(),
            copied_by: self.copied_by.clone(),
            parent: self.parent.clone(),
            generation,
            mailbox: commit.carries.signals.clone(),
            cancel_reason: commit.carries.cancel_reason.clone(),
            deadline_ms: self.deadline_left(at),
            updates: commit.carries.updates.clone(),
            attributes,
            checkpoint: continued.checkpoint.clone(),
            spend: self.spend.clone(), // R12
            budget: budget.map(|budget| Box::new(budget.carried(self.spend.as_deref(), continued.checkpoint.is_some()))),
            // Any seed works that differs between generations and is the same in every store.
            ..RunStarted::new(kind, continued.input.clone(), commit.commit_id.0)
        };
        Some(Box::new(NewRun { key: self.key.clone(), started, signal: None }))
    }
}

/// Returns the reason if an event concerns the place of a run in its queue, or names a queue that cannot be used (RQ7).
fn queue_misused(events: &[Event], reserved: &[CallId]) -> Option<&'static str> {
    events.iter().find_map(|event| match event {
        Event::TaskScheduled(task) if task.kind == *SLOT_KIND => Some("it schedules a task of a reserved kind"),
        Event::TaskScheduled(task) => task.options.queue.as_ref().and_then(queue_fault),
        Event::ChildStarted(child) => child.queue.as_ref().and_then(|queue| queue.fault()),
        Event::SegmentAbandoned(event) if event.withdrawn.iter().any(|call_id| reserved.contains(call_id)) => {
            Some("it withdraws the start of the run")
        }
        _ => None,
    })
}

/// Returns true if the event ends the run of a standalone task (R9).
fn ends_task_run(event: &Event) -> bool {
    matches!(event, Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCanceled(_) | Event::TerminateRequested(_))
}

fn set_attributes(attributes: &mut Vec<Attribute>, events: &[Event]) {
    for event in events {
        if let Event::AttributeSet(event) = event {
            attribute::set(attributes, &event.name, event.value.as_ref());
        }
    }
}
