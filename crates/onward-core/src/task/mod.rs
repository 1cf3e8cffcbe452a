//! Tasks: units of work on a queue, their options and every decision about their attempts.
//!
//! Owns the lifecycle of a task from queued to its one result. Stores keep a [`Task`] unchanged and call it for every decision.
//! Must never read a clock.
//!
//! Invariants:
//! - K1 (L8): a task has at most one result; a report for another claim changes nothing.
//! - K2 (L9): a leased task is not handed out again before its lease ends.
//! - K3: a lost worker does not count as a failed attempt, but a task that loses several workers in a row without a report is
//!   quarantined until an operator releases it. Model calls have a higher limit, because they run no user code.
//! - K4: while its run is paused no attempt of a task begins, and its waiting times (visibility, retry delay, total timeout) keep
//!   their remaining time. A running attempt continues, with its own timeouts.
//! - K5 (F22): tasks that lost two workers are handed out at different times: a task that kills its worker does not drag the
//!   others into quarantine.
//! - K6: an `at_most_once` task is executed at most once per reported failure: an attempt that may have begun and ends without a
//!   result (worker lost, interrupted, panicked, timed out, lease expired) ends the task as `outcome_unknown`. Only an attempt
//!   that is known not to have started is handed out again.
//! - K7 (R11): an attempt of a task with an effect class or a cost is recorded in the write that hands it out; if its run rejects
//!   the record, it is not handed out. So code that abandons a part of a log knows which tasks have begun, and a model call
//!   counts in the ledger from its beginning.
//! - K8 (R10): a claim differs from every other one that a worker may still hold: of the same call in an earlier incarnation of
//!   the run, and of the same task before its log was moved or its rows were lost.
//! - K9: two executions of a task never have the same attempt number. Interrupted attempts and lost workers use up a number, but
//!   do not count against the retry limit.
//! - K10 (L9): a worker that moves to another server keeps its attempt. Reports that the previous server makes on its own (lost,
//!   interrupted, not started, still alive) no longer change anything.

mod report;

use std::time::Duration;

pub use report::TaskReport;

use crate::log::event::{
    AttemptRan, Event, RunCompleted, RunFailed, TaskAttempted, TaskCompleted, TaskFailed, is_same_incarnation,
};
use crate::run::Input;
use crate::spend::{AttemptSpend, Spend};
use crate::time::millis;
use crate::{CallId, ErrorCode, Failure, Hash, Name, Payload, RunKey, Timestamp, WorkerId, message, numbered};

/// The number of workers that a task may lose in a row before it is quarantined.
pub const LOST_WORKERS_MAX: u32 = 5;

/// The number of workers that a model call may lose in a row. Its delays grow to minutes, so a call that kills its workers is
/// quarantined after half an hour.
pub const LOST_CALLERS_MAX: u32 = 20;

/// The window over which tasks that lost their second worker are spread; it doubles with each further loss.
const APART_FIRST_MS: u64 = 500;

message! {
    /// The number of attempts and the delays between them.
    #[derive(Eq)]
    #[serde(default)]
    pub struct RetryPolicy {
        /// The maximum number of attempts; 0 = no limit.
        1 => attempts_max: u32,
        2 => first_delay_ms: u64,
        /// The growth of each delay over the one before; 200 doubles.
        3 => growth_percent: u32,
        4 => delay_max_ms: u64,
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy::attempts(1)
    }
}

/// `.retry(5)` is five attempts in total, and `.retry(0)` is one, like `.retry(1)`.
impl From<u32> for RetryPolicy {
    fn from(attempts: u32) -> RetryPolicy {
        RetryPolicy::attempts(attempts)
    }
}

impl RetryPolicy {
    /// Returns a policy of so many attempts in total, at least one, with delays of one second at first, doubling up to a minute.
    pub const fn attempts(attempts_max: u32) -> RetryPolicy {
        let attempts_max = if attempts_max == 0 { 1 } else { attempts_max };
        RetryPolicy { attempts_max, ..RetryPolicy::forever() }
    }

    /// Retries until it succeeds, fails fatally or times out, with the delays of [`RetryPolicy::attempts`].
    pub const fn forever() -> RetryPolicy {
        RetryPolicy { attempts_max: 0, first_delay_ms: 1_000, growth_percent: 200, delay_max_ms: 60_000 }
    }

    /// Sets the delay after the first attempt. If it is longer than the maximum delay, it replaces the maximum.
    pub fn delay(self, first: Duration) -> RetryPolicy {
        RetryPolicy { first_delay_ms: millis(first), ..self }
    }

    /// Sets the maximum delay; the default is a minute.
    pub fn delay_max(self, max: Duration) -> RetryPolicy {
        RetryPolicy { delay_max_ms: millis(max), ..self }
    }

    pub fn growth_percent(self, percent: u32) -> RetryPolicy {
        RetryPolicy { growth_percent: percent, ..self }
    }

    /// Returns the time of the next attempt after `attempt` (1, 2, …) failed at `now`; `None` makes the failure final.
    pub fn next_attempt(&self, attempt: u32, failure: &Failure, now: Timestamp) -> Option<Timestamp> {
        if !failure.retryable || (self.attempts_max != 0 && attempt >= self.attempts_max) {
            return None;
        }
        let delay_max = self.delay_max_ms.max(self.first_delay_ms);
        let mut delay = self.first_delay_ms;
        for _ in 1..attempt {
            delay = delay.saturating_mul(u64::from(self.growth_percent)) / 100;
            if delay >= delay_max {
                break;
            }
        }
        let delay = delay.min(delay_max).max(failure.retry_after_ms.unwrap_or(0));
        Some(now.after(Duration::from_millis(delay)))
    }
}

message! {
    #[derive(Default)]
    #[serde(default)]
    pub struct TaskOptions {
        /// Absent for the default queue.
        1 => queue: Option<Name>,
        /// Higher goes first, 0 by default; one level is worth a minute of waiting.
        #[serde(with = "priority_text")]
        2 => priority: Option<i32>,
        /// One attempt by default.
        3 => retry: Option<RetryPolicy>,
        /// The maximum wait for the first attempt.
        4 => queued_timeout_ms: Option<u64>,
        /// The maximum duration of one attempt.
        5 => attempt_timeout_ms: Option<u64>,
        /// The maximum duration of all attempts and the delays between them.
        6 => total_timeout_ms: Option<u64>,
        /// The maximum time between two heartbeats of an attempt.
        7 => heartbeat_timeout_ms: Option<u64>,
        /// Replaces the key that is derived from the call id.
        8 => idempotency_key: Option<String>,
        /// The effect of a repeated attempt. If it is known, every attempt is recorded before it begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        9 => class: Option<EffectClass>,
        /// The task costs money: its attempts are in the ledger, and the run's budget is checked before each of them.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        10 => costs: bool,
        /// The options that the call did not set and its kind has a default for (KD1).
        #[serde(skip_serializing_if = "Vec::is_empty")]
        11 => from_kind: Vec<String>,
        /// The key whose limits and share of the queue apply to the task.
        #[serde(skip_serializing_if = "Option::is_none")]
        12 => key: Option<Name>,
    }
}

/// The priority as JSON: a number, which is 0 if the call sets none.
mod priority_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(priority: &Option<i32>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(priority.unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
        Ok(Option::<i32>::deserialize(deserializer)?.filter(|priority| *priority != 0))
    }
}

impl TaskOptions {
    /// Returns the priority, or the built-in default.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or_default()
    }

    /// Returns the key as a column has it: empty if there is none.
    pub fn key_text(&self) -> &str {
        self.key.as_ref().map_or("", Name::as_str)
    }

    /// Returns the retry policy, or the built-in default.
    pub fn retry(&self) -> RetryPolicy {
        self.retry.clone().unwrap_or_default()
    }
}

numbered! {
    /// The effect of a repeated attempt.
    pub enum EffectClass {
        /// May run more than once.
        0 => AtLeastOnce / "at_least_once",
        /// None: it only reads or computes.
        1 => Pure / "pure",
        /// None: the callee deduplicates by an idempotency key.
        2 => Keyed / "keyed",
        /// Harm: it is not retried after an attempt with an unknown outcome.
        3 => AtMostOnce / "at_most_once",
    }
}

/// The failure code that a worker reports if the task's code panicked or was aborted.
pub const PANICKED: &str = "panicked";

/// The failure code of an `at_most_once` task whose attempt may have had its effect (K6).
pub const OUTCOME_UNKNOWN: &str = crate::ErrorCode::OutcomeUnknown.as_str();

/// The kind prefix of model calls; the model's name follows.
pub const MODEL_CALL: &str = "llm.";

/// Returns true if attempts of the task cost money.
pub fn costs(kind: &Name, options: &TaskOptions) -> bool {
    options.costs || kind.as_str().starts_with(MODEL_CALL)
}

message! {
    /// The id of a task: the call that scheduled it.
    #[derive(Eq, PartialOrd, Ord)]
    pub struct TaskId {
        1 => run: RunKey,
        2 => generation: u32,
        3 => call_id: CallId,
        /// The incarnation of the run (see [`crate::RunHead::incarnation`]); `None` if a person names the task.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        4 => incarnation: Option<u64>,
    }
}

impl TaskId {
    /// Returns true if both are the same task; the same call of another incarnation of the run is not (K8).
    pub fn is_same_task(&self, other: &TaskId) -> bool {
        (&self.run, self.generation, &self.call_id) == (&other.run, other.generation, &other.call_id)
            && is_same_incarnation(self.incarnation, other.incarnation)
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}~{}~{}", self.run, self.generation, self.call_id)
    }
}

numbered! {
    pub enum TaskState {
        0 => Queued / "queued",
        1 => Leased / "leased",
        /// Taken off its queue after losing too many workers; an operator decides.
        2 => Quarantined / "quarantined",
    }
}

message! {
    /// The number of open tasks of a kind on a queue.
    #[derive(Eq)]
    pub struct TaskCount {
        /// `None` is the default queue.
        1 => queue: Option<Name>,
        2 => kind: Name,
        /// Tasks that wait for a worker or for their next attempt.
        3 => queued: u64,
        4 => running: u64,
        5 => quarantined: u64,
        /// The time at which the first queued task became or becomes visible.
        6 => oldest_at: Option<Timestamp>,
    }

    /// A task row, from its scheduling to its result.
    pub struct Task {
        1 => id: TaskId,
        2 => kind: Name,
        3 => input: Payload,
        4 => options: TaskOptions,
        5 => scheduled_at: Timestamp,
        6 => state: TaskState,
        /// The current attempt (1, 2, …), or the next one while queued.
        7 => attempt: u32,
        /// The time from which on a queued task is handed out.
        8 => visible_at: Timestamp,
        9 => started_at: Option<Timestamp>,
        10 => heartbeat_at: Timestamp,
        11 => lease_until: Timestamp,
        12 => worker: Option<WorkerId>,
        /// The number of the claim; fences reports of earlier claims. Begins at a timestamp if the task was rebuilt from its log
        /// alone.
        13 => claim: u64,
        14 => lost_workers: u32,
        15 => last_failure: Option<Failure>,
        16 => first_started_at: Option<Timestamp>,
        /// The latest progress that its worker reported.
        17 => progress: Option<Payload>,
        /// The start of the run's current pause.
        18 => paused_at: Option<Timestamp>,
        /// The total length of earlier pauses since the task was scheduled.
        19 => paused_ms: u64,
        /// A standalone task: its end is the end of its run (R9).
        #[serde(default)]
        20 => ends_run: bool,
        /// The number of attempts before `attempt` that do not count against the retry limit: interrupted, or their worker was
        /// lost (K9).
        #[serde(default)]
        21 => uncounted_attempts: u32,
    }
}

impl TaskCount {
    /// Adds the tasks of another count.
    pub fn add(&mut self, other: &TaskCount) {
        self.queued += other.queued;
        self.running += other.running;
        self.quarantined += other.quarantined;
        self.oldest_at = [self.oldest_at, other.oldest_at].into_iter().flatten().min();
    }
}

/// The result of a change of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskTransition {
    /// Still open: save the changed task.
    Open,
    /// Ended: remove the task and append this input to its run.
    Ended(Box<Event>),
}

/// A report that came too late or from the wrong worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the attempt is over: another result was recorded, or the task was given to another worker")]
pub struct StaleReport;

/// The task is running, queued or ended: it is not in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task is not in quarantine")]
pub struct NotQuarantined;

impl Task {
    pub fn new(id: TaskId, kind: Name, input: Payload, options: TaskOptions, now: Timestamp) -> Task {
        Task {
            id,
            kind,
            input,
            options,
            scheduled_at: now,
            state: TaskState::Queued,
            attempt: 1,
            visible_at: now,
            started_at: None,
            heartbeat_at: now,
            lease_until: Timestamp(0),
            worker: None,
            claim: 0,
            lost_workers: 0,
            last_failure: None,
            first_started_at: None,
            progress: None,
            paused_at: None,
            paused_ms: 0,
            ends_run: false,
            uncounted_attempts: 0,
        }
    }

    /// Returns the number of the attempt without those that do not count against the retry limit.
    pub fn counted_attempt(&self) -> u32 {
        self.attempt.saturating_sub(self.uncounted_attempts).max(1)
    }

    /// Raises the claim number above all claims until `now`, after the rows that counted them were lost or moved. No task is
    /// claimed a thousand times per second (K8).
    pub fn claim_after(&mut self, now: Timestamp) {
        self.claim = self.claim.max(now.0);
    }

    /// Returns the task as newly scheduled, because it continues in another log or its failure was set aside. Attempt numbers in
    /// the log are not reused (K9).
    pub(crate) fn rescheduled(&self, now: Timestamp) -> Task {
        let (attempt, uncounted_attempts) = (self.attempt, self.attempt.saturating_sub(1));
        let task = Task::new(self.id.clone(), self.kind.clone(), self.input.clone(), self.options.clone(), now);
        Task { attempt, uncounted_attempts, ..task }
    }

    /// Records that attempt number `attempt` has begun and nothing else is known. An `at_most_once` task ends at its next expiry
    /// (K6); any other continues with the next number and its full retry limit.
    pub(crate) fn lose_attempt(&mut self, attempt: u32, at: Timestamp) {
        self.attempt = self.attempt.max(attempt);
        if self.is_at_most_once() {
            (self.state, self.started_at, self.lease_until) = (TaskState::Leased, Some(at), at);
        } else {
            self.skip_attempts(attempt);
        }
    }

    /// Continues with the number after `attempt`; no attempt so far counts against the retry limit.
    pub(crate) fn skip_attempts(&mut self, attempt: u32) {
        self.attempt = self.attempt.max(attempt.saturating_add(1));
        self.uncounted_attempts = self.attempt - 1;
    }

    fn is_at_most_once(&self) -> bool {
        self.options.class == Some(EffectClass::AtMostOnce)
    }

    /// Returns the idempotency key for the task's code: the same for every attempt.
    pub fn idempotency_key(&self) -> String {
        self.options
            .idempotency_key
            .clone()
            .unwrap_or_else(|| idempotency_key(&self.id.run, self.id.generation, &self.id.call_id))
    }

    /// Returns the ledger name of an attempt with an unknown cost; `None` for a task without cost.
    pub fn ledger_name(&self) -> Option<String> {
        costs(&self.kind, &self.options)
            .then(|| self.kind.as_str().strip_prefix(MODEL_CALL).unwrap_or(self.kind.as_str()).to_owned())
    }

    /// Returns true if every attempt is recorded in the run's log (K7).
    pub fn is_recorded(&self) -> bool {
        self.options.class.is_some() || self.ledger_name().is_some() || self.is_slot()
    }

    /// Returns the record of the attempt that was just handed out, if it is to be recorded (K7).
    pub fn attempted(&self) -> Option<Input> {
        if let Some(begin) = self.begin_run() {
            return Some(begin);
        }
        let ledger_name = self.ledger_name();
        let began_at = ledger_name.as_ref().and(self.started_at);
        let attempted = TaskAttempted { call_id: self.id.call_id.clone(), attempt: self.attempt, ledger_name, began_at };
        self.is_recorded().then(|| Input { generation: Some(self.id.generation), ..Input::new(attempted) })
    }

    /// Returns the cost of the current attempt, as its worker reports it.
    pub fn attempt_spend(&self, lines: Vec<Spend>) -> AttemptSpend {
        let began_at = self.started_at.unwrap_or(self.heartbeat_at);
        AttemptSpend { attempt: self.attempt, began_at, ledger_name: self.ledger_name(), lines }
    }

    /// Returns the report that the attempt was handed out and its code was never called: the task is queued again without loss.
    pub fn not_started(&self) -> TaskReport {
        self.unbegun(TaskReport::NotStarted)
    }

    /// Returns a report for an attempt that was not begun: it is removed from the ledger.
    pub fn unbegun(&self, report: TaskReport) -> TaskReport {
        self.attempt_spend(Vec::new()).of_unbegun(report)
    }

    /// Returns true if an attempt may begin at `now`.
    pub fn may_be_claimed(&self, now: Timestamp) -> bool {
        self.waits_its_turn() && self.visible_at <= now
    }

    /// Returns the position of the task among those of its queue and key (QL6).
    pub fn rank(&self) -> i64 {
        crate::queue::rank(self.options.priority(), self.visible_at)
    }

    /// Returns true if the task is queued and its run is not paused.
    pub fn waits_its_turn(&self) -> bool {
        self.state == TaskState::Queued && self.paused_at.is_none() // K4
    }

    /// Gives the task to `worker` for `lease`.
    ///
    /// The caller has checked that it may be claimed.
    pub fn claim(&mut self, worker: &WorkerId, lease: Duration, now: Timestamp) {
        assert!(self.may_be_claimed(now), "K2, K4");
        if self.is_slot() {
            return self.hold(now);
        }
        self.state = TaskState::Leased;
        self.worker = Some(worker.clone());
        self.claim += 1;
        self.started_at = Some(now);
        self.first_started_at.get_or_insert(now);
        self.heartbeat_at = now;
        self.lease_until = now.after(lease);
    }

    /// Applies a worker's report about claim number `claim`. Fails if the claim is not current.
    pub fn report(
        &mut self,
        claim: u64,
        report: TaskReport,
        lease: Duration,
        now: Timestamp,
    ) -> Result<TaskTransition, StaleReport> {
        if self.state != TaskState::Leased || self.claim != claim || self.is_slot() {
            return Err(StaleReport); // K1, RQ7
        }
        Ok(match report {
            TaskReport::Completed(output) => {
                let (call_id, attempts) = (self.id.call_id.clone(), self.attempt);
                TaskTransition::Ended(Box::new(match self.ends_run {
                    true => RunCompleted { output, attempts: Some(attempts) }.into(),
                    false => TaskCompleted { call_id, output, attempts, ran: self.ran() }.into(),
                }))
            }
            // The code of the task could not report what it has done.
            TaskReport::Failed(failure) if self.is_at_most_once() && failure.code == PANICKED => {
                self.end(self.outcome_unknown(&failure.bounded().message)) // K6
            }
            TaskReport::Failed(failure) => {
                self.lost_workers = 0; // the worker is alive
                self.fail(failure.bounded(), now)
            }
            TaskReport::Spent { report, .. } => return self.report(claim, *report, lease, now),
            TaskReport::BySession { session, report } => {
                if self.worker.as_ref() != Some(&session) {
                    return Err(StaleReport); // K10
                }
                return self.report(claim, *report, lease, now);
            }
            TaskReport::Adopted { session } => {
                self.worker = Some(session);
                return self.report(claim, TaskReport::Heartbeat { progress: None }, lease, now);
            }
            TaskReport::Interrupted | TaskReport::WorkerLost if self.is_at_most_once() => {
                let why = match report {
                    TaskReport::Interrupted => "its worker stopped before the attempt ended",
                    _ => "its worker was lost",
                };
                self.end(self.outcome_unknown(why)) // K6
            }
            TaskReport::Interrupted => {
                self.queue_next_attempt(now, now);
                TaskTransition::Open
            }
            TaskReport::WorkerLost => {
                self.lose_worker(now);
                TaskTransition::Open
            }
            TaskReport::NotStarted => {
                self.queue_again(now, now);
                TaskTransition::Open
            }
            TaskReport::Heartbeat { progress } => {
                self.heartbeat_at = now;
                self.lease_until = now.after(lease);
                if progress.is_some() {
                    self.progress = progress;
                }
                TaskTransition::Open
            }
        })
    }

    /// Returns the next time at which [`Task::expire`] has something to do.
    pub fn due_at(&self) -> Option<Timestamp> {
        let options = &self.options;
        let after = |start: Option<Timestamp>, span: Option<u64>| Some(start?.after(Duration::from_millis(span?)));
        let total = self.timeout_since_scheduled(options.total_timeout_ms);
        let own = match self.state {
            TaskState::Quarantined => None,
            TaskState::Queued if self.first_started_at.is_none() => self.timeout_since_scheduled(options.queued_timeout_ms),
            TaskState::Queued => None,
            TaskState::Leased if self.is_slot() => None, // RQ1
            TaskState::Leased => [
                Some(self.lease_until),
                after(self.started_at, options.attempt_timeout_ms),
                after(Some(self.heartbeat_at), options.heartbeat_timeout_ms),
            ]
            .into_iter()
            .flatten()
            .min(),
        };
        [total, own].into_iter().flatten().min()
    }

    /// Returns the end of a timeout that counts from the scheduling; `None` while the run is paused (K4).
    fn timeout_since_scheduled(&self, span: Option<u64>) -> Option<Timestamp> {
        let counted = Duration::from_millis(span?.saturating_add(self.paused_ms));
        self.paused_at.is_none().then(|| self.scheduled_at.after(counted))
    }

    /// Pauses the task from `at` on; a second pause changes nothing.
    pub fn freeze(&mut self, at: Timestamp) {
        self.paused_at.get_or_insert(at);
    }

    /// Resumes the task after a pause of `shift`.
    pub fn unfreeze(&mut self, shift: Duration) {
        let Some(paused_at) = self.paused_at.take() else { return };
        self.paused_ms = self.paused_ms.saturating_add(millis(shift));
        // A pause does not move the start of a run (DS3).
        if self.state == TaskState::Queued && self.visible_at > paused_at && !self.is_slot() {
            self.visible_at = self.visible_at.after(shift);
        }
    }

    /// Handles what is due by `now`: timeouts end or retry the attempt, an expired lease queues the task again.
    pub fn expire(&mut self, now: Timestamp) -> TaskTransition {
        if self.due_at().is_none_or(|due| due > now) {
            return TaskTransition::Open;
        }
        let passed =
            |start: Timestamp, span: Option<u64>| span.is_some_and(|span| start.after(Duration::from_millis(span)) <= now);
        let options = &self.options;
        if self.state == TaskState::Leased && self.is_at_most_once() {
            return self.end(self.outcome_unknown("its worker did not report a result in time")); // K6
        }
        if self.timeout_since_scheduled(options.total_timeout_ms).is_some_and(|due| due <= now) {
            return self.end(Failure { retryable: false, ..Failure::timed_out("the task, in all its attempts,") });
        }
        if self.state == TaskState::Queued {
            return self.end(Failure { retryable: false, ..Failure::timed_out("waiting for a worker") });
        }
        if self.started_at.is_some_and(|started| passed(started, options.attempt_timeout_ms)) {
            return self.fail(Failure::timed_out("the attempt"), now);
        }
        if passed(self.heartbeat_at, options.heartbeat_timeout_ms) {
            return self.fail(Failure::new("heartbeat_timed_out", "the attempt sent no heartbeat in time"), now);
        }
        self.lose_worker(now);
        TaskTransition::Open
    }

    fn outcome_unknown(&self, why: &str) -> Failure {
        let message =
            format!("attempt {} may have had its effect: {why}; the task is `at_most_once` and is not tried again", self.attempt);
        Failure { retryable: false, ..Failure::new(OUTCOME_UNKNOWN, message) }
    }

    /// Queues the task for another worker, without counting the attempt against the retry limit (K3).
    pub fn lose_worker(&mut self, now: Timestamp) {
        if self.is_at_most_once() {
            self.lease_until = now; // and then it ends (K6)
            return;
        }
        self.lost_workers += 1;
        if self.lost_workers <= self.lost_workers_max() {
            return self.queue_next_attempt(now.after(self.apart()), now);
        }
        self.queue_next_attempt(now, now);
        self.state = TaskState::Quarantined;
    }

    /// Returns the quarantine limit. Model calls run code of Onward that catches panics and bounds its input, so a lost worker
    /// rarely is their fault, and a conversation must not stop because of it (K3).
    fn lost_workers_max(&self) -> u32 {
        let is_model_call = self.kind.as_str().starts_with(MODEL_CALL) && self.options.class == Some(EffectClass::Pure);
        if is_model_call { LOST_CALLERS_MAX } else { LOST_WORKERS_MAX }
    }

    /// Returns the time of the quarantine, if the task is quarantined.
    pub fn quarantined_at(&self) -> Option<Timestamp> {
        (self.state == TaskState::Quarantined).then_some(self.visible_at)
    }

    /// Returns the delay of a task that lost its worker, which separates it from others (K5).
    fn apart(&self) -> Duration {
        let Some(again) = self.lost_workers.checked_sub(2) else { return Duration::ZERO };
        let window = APART_FIRST_MS << again.min(10);
        let (id, lost) = (self.id.to_string(), self.lost_workers.to_le_bytes());
        let chance = crate::Hash::of_parts(&[id.as_bytes(), &lost]).0;
        Duration::from_millis(u64::from(u32::from_le_bytes([chance[0], chance[1], chance[2], chance[3]])) % window)
    }

    /// Returns whether the task waits for its next attempt because a rate limit refused the last one.
    pub fn waits_for_rate_limit(&self, now: Timestamp) -> bool {
        let is_limited = |failure: &Failure| failure.limited_ms.is_some() || failure.code == ErrorCode::ModelRateLimited;
        self.state == TaskState::Queued && self.visible_at > now && self.last_failure.as_ref().is_some_and(is_limited)
    }

    /// Makes a task claimable on the request of an operator: one that is quarantined, with a fresh limit (K3), or one that waits
    /// for a rate limit.
    pub fn retry(&mut self, now: Timestamp) -> Result<(), NotQuarantined> {
        match self.state {
            TaskState::Quarantined => self.lost_workers = 0,
            _ if self.waits_for_rate_limit(now) => {}
            _ => return Err(NotQuarantined),
        }
        self.queue_again(now, now);
        Ok(())
    }

    /// Queues the task after an attempt that may have begun and did not fail by itself: the next execution has the next number,
    /// and the retry limit is not used up (K9).
    fn queue_next_attempt(&mut self, visible_at: Timestamp, now: Timestamp) {
        self.attempt = self.attempt.saturating_add(1);
        self.uncounted_attempts = self.uncounted_attempts.saturating_add(1);
        self.queue_again(visible_at, now);
    }

    /// Queues the task. A delay that begins while the run is paused keeps its full length: resuming adds the whole pause,
    /// including the part that has passed.
    fn queue_again(&mut self, visible_at: Timestamp, now: Timestamp) {
        self.state = TaskState::Queued;
        self.worker = None;
        self.started_at = None;
        self.visible_at = visible_at.before(self.paused_at.map_or(Duration::ZERO, |paused_at| now.since(paused_at)));
    }

    fn fail(&mut self, failure: Failure, now: Timestamp) -> TaskTransition {
        match self.options.retry().next_attempt(self.counted_attempt(), &failure, now) {
            None => self.end(failure),
            Some(at) => {
                self.attempt += 1;
                self.last_failure = Some(failure);
                self.queue_again(at, now);
                TaskTransition::Open
            }
        }
    }

    /// Returns the current attempt, if a worker got it.
    fn ran(&self) -> Option<AttemptRan> {
        self.started_at.map(|started_at| AttemptRan { started_at, worker: self.worker.clone() })
    }

    fn end(&self, failure: Failure) -> TaskTransition {
        let (call_id, attempts) = (self.id.call_id.clone(), self.attempt);
        TaskTransition::Ended(Box::new(match self.ends_run {
            true => RunFailed { failure, attempts: Some(attempts) }.into(),
            false => TaskFailed { call_id, failure, attempts, ran: self.ran() }.into(),
        }))
    }
}

/// Derives the stable key of the call at `call_id`: the same for every attempt and after every crash, different for any other call.
pub fn idempotency_key(run: &RunKey, generation: u32, call_id: &CallId) -> String {
    let call_id = call_id.to_string();
    let parts = [run.namespace.as_str().as_bytes(), run.id.as_str().as_bytes(), &generation.to_le_bytes(), call_id.as_bytes()];
    Hash::of_parts(&parts).to_string()
}

#[cfg(test)]
mod tests;
