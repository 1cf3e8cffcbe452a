//! What the shell and the worker share: the queue, the code of the runs in memory, and functions that run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onward::shell::{Activation, Query, QueryAnswer, Shell, ShellCode};
use onward::{Failure, TaskCtx};
use onward_store::sync::lock;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::error::{outcome_text, read_outcome, text_of};
use crate::kit::KitKind;
use crate::middleware::Continuation;
use crate::queue::Queue;
use crate::{Function, Outcome, StepJob, Work};

thread_local! {
    /// The step that the call under way on this thread has started; `None` outside of calls.
    static STARTED: RefCell<Option<Option<StepJob>>> = const { RefCell::new(None) };
}

/// A function that the shell runs.
struct Job {
    reply: oneshot::Sender<Result<Box<RawValue>, Failure>>,
    task: Option<TaskCtx>,
}

pub(crate) struct Host {
    pub queue: Queue,
    /// The registered code by kind, for the test kit.
    pub kinds: Mutex<HashMap<String, KitKind>>,
    /// The process that started the bridge.
    process: u32,
    codes: Mutex<HashMap<u64, Arc<ShellCode>>>,
    jobs: Mutex<HashMap<u64, Job>>,
    /// Model calls that wait for the middleware of the shell.
    pub continuations: Mutex<HashMap<u64, oneshot::Sender<Continuation>>>,
    queries: Mutex<HashMap<u64, QueryAnswer>>,
    next: AtomicU64,
    /// The shell is gone.
    is_over: AtomicBool,
}

impl Host {
    pub fn new() -> Host {
        Host {
            queue: Queue::default(),
            kinds: Mutex::default(),
            process: std::process::id(),
            codes: Mutex::default(),
            jobs: Mutex::default(),
            continuations: Mutex::default(),
            queries: Mutex::default(),
            next: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns a number for a job, query or request.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether this is a forked child of the process that started the bridge: its threads do not exist here.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    pub fn code(&self, run: u64) -> Option<Arc<ShellCode>> {
        lock(&self.codes).get(&run).cloned()
    }

    pub fn task(&self, job: u64) -> Option<TaskCtx> {
        lock(&self.jobs).get(&job).and_then(|job| job.task.clone())
    }

    pub fn counts(&self) -> (usize, usize) {
        (lock(&self.codes).len(), lock(&self.jobs).len())
    }

    /// Ends the work of the shell: code that waits for it is released. The shell gets the `Close` of code that is still there,
    /// because the worker may drop it later (BR-Q).
    pub fn end(&self, last: Option<Work>) {
        self.is_over.store(true, Ordering::SeqCst);
        let codes = {
            let mut codes = lock(&self.codes);
            for run in codes.keys() {
                self.queue.push(Work::Close { run: *run });
            }
            self.queue.close(last);
            std::mem::take(&mut *codes)
        };
        codes.values().for_each(|code| code.abandon());
        lock(&self.jobs).clear();
        lock(&self.continuations).clear();
        lock(&self.queries).clear();
        lock(&self.kinds).clear(); // they hold the host
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Creates a job, and the receiver of its result. Dropping the guard cancels the function.
    pub fn begin_job(self: Arc<Host>, task: Option<TaskCtx>) -> (JobGuard, oneshot::Receiver<Result<Box<RawValue>, Failure>>) {
        let (reply, result) = oneshot::channel();
        let job = JobGuard { number: self.number(), host: self };
        lock(&job.host.jobs).insert(job.number, Job { reply, task });
        (job, result)
    }

    /// Runs a function of the shell. Dropping the future cancels it.
    async fn run_job(
        self: Arc<Host>,
        task: Option<TaskCtx>,
        work: impl FnOnce(u64) -> Option<Work>,
    ) -> Result<Box<RawValue>, Failure> {
        let (job, result) = self.begin_job(task);
        if let Some(work) = work(job.number) {
            job.host.queue.push(work);
        }
        match result.await {
            Ok(result) => result,
            // The shell is gone, which is no result: another process runs the function again.
            Err(_) => std::future::pending().await,
        }
    }

    /// Runs a task of the shell, or with the name of an agent a tool.
    pub async fn run_task(
        self: Arc<Host>,
        kind: String,
        agent: Option<String>,
        ctx: TaskCtx,
        input: Box<RawValue>,
    ) -> Result<Box<RawValue>, Failure> {
        let info = serde_json::json!({
            "agent": agent,
            "run": ctx.run_id().as_str(),
            "attempt": ctx.attempt(),
            "idempotency_key": ctx.idempotency_key(),
            "trace": ctx.trace().map(|trace| trace.to_string()),
        });
        let work = |job| Some(Work::Task { job, kind, input: Box::<str>::from(input).into_string(), info: info.to_string() });
        self.run_job(Some(ctx), work).await
    }

    /// Runs a function of the shell for a script, and blocks until it has ended.
    pub fn run_scripted(self: Arc<Host>, kind: &str, input: Box<RawValue>, attempt: u32) -> Result<Box<RawValue>, Failure> {
        let (job, result) = self.begin_job(None);
        let info = serde_json::json!({"attempt": attempt, "idempotency_key": format!("{kind}-{attempt}"), "is_scripted": true});
        let input = Box::<str>::from(input).into_string();
        job.host.queue.push(Work::Task { job: job.number, kind: kind.to_owned(), input, info: info.to_string() });
        result.blocking_recv().unwrap_or_else(|_| Err(Failure::fatal("the shell is gone")))
    }

    pub async fn run_step(
        self: Arc<Host>,
        run: u64,
        function: Function,
        name: Arc<str>,
        attempt: onward::ctx::Attempt,
    ) -> Result<Box<RawValue>, Failure> {
        let work = |job| {
            let step = StepJob {
                job,
                run,
                function,
                name: name.to_string(),
                attempt: attempt.number,
                idempotency_key: attempt.idempotency_key(),
                trace: attempt.trace().map(|trace| trace.to_string()),
            };
            // The call under way returns it, which is faster than the queue.
            STARTED.with_borrow_mut(|started| match started {
                Some(slot) if slot.is_none() => {
                    *slot = Some(step);
                    None
                }
                _ => Some(Work::Step(step)),
            })
        };
        self.run_job(None, work).await
    }

    /// Makes a call; returns the step that it has started, too.
    pub fn starting<T>(&self, call: impl FnOnce() -> T) -> (T, Option<StepJob>) {
        STARTED.set(Some(None));
        let result = call();
        (result, STARTED.take().flatten())
    }

    pub fn finish(&self, job: u64, outcome: Outcome) {
        let job = lock(&self.jobs).remove(&job);
        if let Some(Job { reply, .. }) = job {
            drop(reply.send(read_outcome(outcome)));
        }
    }

    pub fn answer_query(&self, query: u64, answer: Option<Outcome>) {
        let reply = lock(&self.queries).remove(&query);
        if let Some(reply) = reply {
            drop(reply.send(answer.map(|answer| read_outcome(answer).map(crate::error::payload_of))));
        }
    }
}

/// Cancels the function of the shell if its result is no longer needed.
pub(crate) struct JobGuard {
    pub number: u64,
    pub host: Arc<Host>,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        let unfinished = lock(&self.host.jobs).remove(&self.number);
        lock(&self.host.continuations).remove(&self.number);
        if unfinished.is_some() {
            self.host.queue.push(Work::Cancel { job: self.number });
        }
    }
}

/// The code of one kind and version.
pub(crate) struct KindShell {
    pub host: Arc<Host>,
    pub kind: String,
    pub version: Option<String>,
}

impl KindShell {
    fn info(&self, code: &ShellCode) -> String {
        let info = code.read(|ctx| {
            let parent = ctx.parent().map(|parent| parent.run_id().to_string());
            serde_json::json!({
                "id": ctx.run_id().as_str(),
                "kind": self.kind,
                "version": self.version,
                "generation": ctx.generation(),
                "is_agent": code.is_agent(),
                "nesting": ctx.nesting(),
                "parent": parent,
                "is_called": ctx.is_called(),
            })
        });
        info.unwrap_or_default().to_string()
    }
}

impl Shell for KindShell {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        let run = code.number();
        let now = code.read(|ctx| ctx.now().0).unwrap_or_default();
        let mut begun = None;
        let work = match activation {
            Activation::Start(input) => {
                let work = Work::Start { run, info: self.info(code), input: text_of(&input), now };
                // Held until the work is in the queue: the start comes before a `Close` of `Host::end`.
                begun.insert(lock(&self.host.codes)).insert(run, code.clone());
                work
            }
            Activation::Answer { call, result } => Work::Answer { run, call, result: outcome_text(&result), now },
            Activation::Update(update) => {
                let (name, input) = (update.name.to_string(), text_of(&update.payload));
                Work::Update { run, update: update.update_id, name, input, now }
            }
        };
        let is_queued = self.host.queue.push(work);
        drop(begun);
        if !is_queued || self.host.is_over() {
            code.abandon();
        }
    }

    fn query(&self, code: &Arc<ShellCode>, query: Query) {
        let number = self.host.number();
        let Query { name, input, answer } = query;
        lock(&self.host.queries).insert(number, answer);
        let work = Work::Query { query: number, run: code.number(), name: name.to_string(), input: text_of(&input) };
        if !self.host.queue.push(work) {
            lock(&self.host.queries).remove(&number);
        }
    }

    fn close(&self, code: &Arc<ShellCode>) {
        if lock(&self.host.codes).remove(&code.number()).is_some() {
            self.host.queue.push(Work::Close { run: code.number() });
        }
    }
}
