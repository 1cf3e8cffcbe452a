#![forbid(unsafe_code)]
//! Hosts Onward for a package of another language: its *shell*.
//!
//! The bridge has the store, the worker and the client. The shell has the code: it plays activations, runs the functions of steps
//! and tasks, and converts values to and from JSON text. It takes [`Work`] from a queue, in batches and on a thread of its
//! choice, because crossing the border of a language costs more than a durable step. [`onward::shell`] has the rules (OT1 to
//! OT3).
//!
//! A shell loops: [`Bridge::take`] a batch; play its activations, with [`Bridge::call`] for each function of `ctx`, until the
//! code of every run is quiescent; [`Bridge::hand_back`] them together. A batch has at most one activation for a run.
//!
//! Only [`Bridge::start`], and [`Bridge::take`] with a wait, block.
//!
//! Must never decide, and must never call into the shell: only the function of [`Bridge::set_wake`] is called, which schedules a
//! `take`.
//!
//! Invariants:
//! - BR-Q: the work of one run is taken in the order in which it arose: its start first, its `Close` last.
//! - A job, query or request is answered once; what is late or unknown is ignored.

mod client;
mod error;
mod host;
mod kit;
mod middleware;
mod queue;
mod settings;
mod table;
mod verbs;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::Onward;
use onward::shell::ShellCode;
use onward_core::ErrorCode;
use onward_store::sync::lock;
use tokio::task::JoinHandle;

pub use error::{BridgeError, ErrorKind, Outcome};
use host::Host;
use settings::Settings;

/// Time limit for the threads of a bridge that is dropped.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The function of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// That of the call with this number.
    Step(u32),
    /// That of the compensation with this number.
    Undo(u64),
}

/// One attempt of a step, to be run and [finished](Bridge::finish).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepJob {
    pub job: u64,
    pub run: u64,
    pub function: Function,
    pub name: String,
    /// 1, 2, …
    pub attempt: u32,
    /// The same for every attempt of this step.
    pub idempotency_key: String,
    /// The attempt's position in its trace, as a `traceparent`.
    pub trace: Option<String>,
}

/// Work for the shell. `run` is the number of a code object: the same run has another one when it is loaded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// An activation: start the code. `info` is `{id, kind, version, generation, is_agent, nesting, parent, is_called}`; `now` is
    /// the time of the event in milliseconds since 1970.
    Start {
        run: u64,
        info: String,
        input: String,
        now: u64,
    },
    /// An activation: the call is answered.
    Answer {
        run: u64,
        call: u32,
        result: Outcome,
        now: u64,
    },
    /// An activation: call the update handler, and answer with the verb `update_answer`.
    Update {
        run: u64,
        update: String,
        name: String,
        input: String,
        now: u64,
    },
    Step(StepJob),
    /// An attempt of a task, to be run and finished. `info` is `{run, attempt, idempotency_key, trace, agent}`; `agent` is present
    /// for a tool: the name of the ready-made agent it belongs to, or empty. With `is_model_call` it is a model call for the
    /// middlewares, whose `next` is the request `attempt_next` with `{job, input, mute}`.
    Task {
        job: u64,
        kind: String,
        input: String,
        info: String,
    },
    /// The result of this job is no longer needed.
    Cancel {
        job: u64,
    },
    Query {
        query: u64,
        run: u64,
        name: String,
        input: String,
    },
    /// The code is to be dropped (OT3).
    Close {
        run: u64,
    },
    /// The last message of a request.
    Reply {
        request: u64,
        result: Outcome,
    },
    Item {
        request: u64,
        value: String,
    },
    /// Nothing follows.
    Ended,
}

/// The reply of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    Value(String),
    Answered {
        call: u32,
        result: Outcome,
    },
    /// An activation will have the answer.
    Waits {
        call: u32,
        info: String,
    },
    /// A step that starts: run its function.
    Step(StepJob),
}

/// An activation that was played.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandBack {
    pub run: u64,
    /// Jobs that ended meanwhile.
    pub finished: Vec<(u64, Outcome)>,
    /// The result of the code, if it ended.
    pub end: Option<Outcome>,
}

/// Numbers of entries in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    pub runs: usize,
    pub jobs: usize,
    pub requests: usize,
    pub queued: usize,
}

/// A worker and client for one shell. Cheap to clone. Dropping the last clone stops everything at once, like the end of the
/// process.
#[derive(Clone)]
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    host: Arc<Host>,
    namespace: String,
    onward: Mutex<Option<Onward>>,
    requests: Arc<Requests>,
    /// Present until the last clone is dropped.
    runtime: Option<tokio::runtime::Runtime>,
    tokio: tokio::runtime::Handle,
}

/// The requests under way; an entry is removed when its reply is sent.
type Requests = Mutex<HashMap<u64, Option<JoinHandle<()>>>>;

impl Bridge {
    /// Returns the version of Onward.
    pub fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Opens the store or connects, registers the kinds, and starts the worker. Blocks until then.
    ///
    /// # Errors
    /// Fails if the settings are invalid, or the store cannot be opened.
    pub fn start(settings: &str) -> Result<Bridge, BridgeError> {
        let settings = Settings::read(settings)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads((cores / 2).clamp(1, 4)).thread_name("onward-bridge").enable_all().build();
        let runtime = runtime.map_err(onward::Error::Threads)?;
        let host = Arc::new(Host::new());
        let onward = runtime.block_on(settings.start(&host))?;
        let namespace = onward.namespace().to_string();
        let (tokio, onward) = (runtime.handle().clone(), Mutex::new(Some(onward)));
        Ok(Bridge { inner: Arc::new(Inner { host, namespace, onward, requests: Arc::default(), runtime: Some(runtime), tokio }) })
    }

    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// Sets the function that is called when there is work, on a thread of the bridge; then not again before a [`Bridge::take`]
    /// has returned fewer items than its maximum. It must not call the bridge.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.inner.host.queue.set_wake(Arc::new(wake));
    }

    /// Takes at most `max` items; waits up to `wait` for the first.
    pub fn take(&self, max: usize, wait: Duration) -> Vec<Work> {
        if self.inner.host.is_forked() {
            return vec![Work::Ended];
        }
        self.inner.host.queue.take(max, wait)
    }

    /// Makes a call of the code of `run`, which has an activation.
    ///
    /// # Errors
    /// Fails if the arguments are invalid, the code may make no call, or the call fails at once.
    pub fn call(&self, run: u64, verb: &str, arguments: &str) -> Result<Called, BridgeError> {
        let host = &self.inner.host;
        self.check_process()?;
        let code = host.code(run).ok_or_else(BridgeError::stopped)?;
        verbs::call(&verbs::Caller { host, code: &code }, verb, arguments)
    }

    /// Hands activations back. Those of code that was closed meanwhile are ignored (OT3).
    pub fn hand_back(&self, activations: impl IntoIterator<Item = HandBack>) {
        if self.inner.host.is_forked() {
            return;
        }
        for HandBack { run, finished, end } in activations {
            finished.into_iter().for_each(|(job, result)| self.inner.host.finish(job, result));
            if let Some(code) = self.inner.host.code(run) {
                let end = end.map(|end| error::read_outcome(end).map(error::payload_of));
                ShellCode::hand_back(&code, end);
            }
        }
    }

    /// Ends the job of a step or task.
    pub fn finish(&self, job: u64, result: Outcome) {
        if !self.inner.host.is_forked() {
            self.inner.host.finish(job, result);
        }
    }

    /// Calls a function of the context of a task: `heartbeat`, `spend`, `stream`, `is_canceled`.
    ///
    /// # Errors
    /// Fails if the verb or its arguments are invalid.
    pub fn task(&self, job: u64, verb: &str, arguments: &str) -> Result<String, BridgeError> {
        self.check_process()?;
        verbs::of_task(self.inner.host.task(job).as_ref(), verb, arguments)
    }

    /// Answers a query; `None` if the code does not have it.
    pub fn answer_query(&self, query: u64, answer: Option<Outcome>) {
        if !self.inner.host.is_forked() {
            self.inner.host.answer_query(query, answer);
        }
    }

    /// Executes a request of a caller. Its items and its reply come as work with the returned number.
    pub fn request(&self, verb: &str, arguments: &str) -> u64 {
        let (host, requests) = (self.inner.host.clone(), self.inner.requests.clone());
        let request = host.number();
        if host.is_forked() {
            return request;
        }
        let reply = move |host: &Host, requests: &Requests, result| {
            if lock(requests).remove(&request).is_some() {
                host.queue.push(Work::Reply { request, result });
            }
        };
        lock(&requests).insert(request, None);
        let Some(onward) = lock(&self.inner.onward).clone() else {
            reply(&host, &requests, Err(BridgeError::from(onward::Error::ShutDown).text));
            return request;
        };
        let (verb, arguments, own) = (verb.to_owned(), arguments.to_owned(), requests.clone());
        let task = self.inner.tokio.spawn(async move {
            let item = |value| {
                if lock(&own).contains_key(&request) {
                    host.queue.push(Work::Item { request, value });
                }
            };
            let result = match verb.as_str() {
                "script" | "replay" => {
                    let own = host.clone();
                    let played = tokio::task::spawn_blocking(move || kit::request(&own, &verb, &arguments));
                    played.await.unwrap_or_else(|_| Err(onward::Error::ShutDown.into()))
                }
                "attempt_next" => middleware::attempt_next(&host, &arguments).await,
                _ => client::request(onward, &verb, &arguments, item).await,
            };
            reply(&host, &own, result.map_err(|error| error.text));
        });
        if let Some(entry) = lock(&requests).get_mut(&request) {
            *entry = Some(task);
        }
        request
    }

    /// Ends a request without a reply. What it did already stays.
    pub fn abandon(&self, request: u64) {
        let task = lock(&self.inner.requests).remove(&request).flatten();
        task.iter().for_each(JoinHandle::abort);
        let is_of =
            |work: &Work| matches!(work, Work::Item { request: of, .. } | Work::Reply { request: of, .. } if *of == request);
        self.inner.host.queue.retain(|work| !is_of(work));
    }

    /// Stops claiming work, and waits at most `timeout` for running steps and tasks. Returns at once; the shell goes on until it
    /// takes [`Work::Ended`]. Waiting requests fail with `shut_down`.
    pub fn shut_down(&self, timeout: Duration) {
        if self.inner.host.is_forked() {
            return;
        }
        let Some(onward) = lock(&self.inner.onward).take() else { return };
        let (host, requests) = (self.inner.host.clone(), self.inner.requests.clone());
        self.inner.tokio.spawn(async move {
            let open: Vec<_> = lock(&requests).drain().collect();
            for (request, task) in open {
                if let Some(task) = task {
                    task.abort();
                    drop(task.await); // it holds the engine
                }
                let result = Err(BridgeError::from(onward::Error::ShutDown).text);
                host.queue.push(Work::Reply { request, result });
            }
            onward.shutdown_within(timeout).await;
            host.end(Some(Work::Ended));
        });
    }

    /// Returns the numbers of entries in memory, for tests.
    pub fn stats(&self) -> Stats {
        let (runs, jobs) = self.inner.host.counts();
        Stats { runs, jobs, requests: lock(&self.inner.requests).len(), queued: self.inner.host.queue.len() }
    }

    fn check_process(&self) -> Result<(), BridgeError> {
        if self.inner.host.is_forked() {
            let message = "this process was forked from the one that started Onward, whose threads it does not have";
            return Err(BridgeError::new(ErrorCode::ProcessForked, message));
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (onward, runtime) = (lock(&self.onward).take(), self.runtime.take());
        if self.host.is_forked() {
            // Their threads do not exist here, so they cannot be stopped.
            std::mem::forget((onward, runtime));
            return;
        }
        self.host.end(None);
        // A thread of its own, because the caller's may be inside of an async runtime.
        let stop = move || runtime.into_iter().for_each(|runtime| runtime.shutdown_timeout(STOP_MAX));
        drop(std::thread::Builder::new().spawn(stop).map(std::thread::JoinHandle::join));
    }
}
