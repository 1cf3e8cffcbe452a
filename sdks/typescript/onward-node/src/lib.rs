//! The native part of the npm package `onward`: the bridge, as functions of Node.js.
//!
//! Must never decide: it converts. Batches cross as one JSON text in each direction, so that a thousand activations cost one
//! conversion of a string.

#![allow(unsafe_code, reason = "the macros of napi generate C functions")]

mod batch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use napi::bindgen_prelude::{AsyncTask, Result, Status};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Error, Task};
use napi_derive::napi;
use onward_bridge::{Bridge, BridgeError};

/// The function that makes Node.js take work. Taken out when the bridge is closed: as long as it exists, the process stays alive.
type Wake = Arc<Mutex<Option<ThreadsafeFunction<(), (), (), Status, false>>>>;

/// Returns the version of the engine.
#[napi]
pub fn version() -> &'static str {
    Bridge::version()
}

/// Starts a bridge on a thread of Node's pool. The promise fails with an error whose message is the JSON text of the bridge's.
#[napi(ts_return_type = "Promise<NativeBridge>")]
pub fn start(settings: String, wake: ThreadsafeFunction<(), (), (), Status, false>) -> AsyncTask<Start> {
    AsyncTask::new(Start { settings, wake: Some(wake) })
}

pub struct Start {
    settings: String,
    wake: Option<ThreadsafeFunction<(), (), (), Status, false>>,
}

impl Task for Start {
    type Output = NativeBridge;
    type JsValue = NativeBridge;

    fn compute(&mut self) -> Result<NativeBridge> {
        let bridge = Bridge::start(&self.settings).map_err(|error| Error::from_reason(error.text))?;
        let wake: Wake = Arc::new(Mutex::new(self.wake.take()));
        let waking = wake.clone();
        bridge.set_wake(move || {
            if let Some(wake) = &*waking.lock().unwrap_or_else(PoisonError::into_inner) {
                wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
            }
        });
        Ok(NativeBridge { bridge: Some(bridge), wake })
    }

    fn resolve(&mut self, _: Env, bridge: NativeBridge) -> Result<NativeBridge> {
        Ok(bridge)
    }
}

/// A bridge of this environment. After `close`, nothing happens any more.
#[napi]
pub struct NativeBridge {
    bridge: Option<Bridge>,
    wake: Wake,
}

#[napi]
impl NativeBridge {
    /// Returns the JSON text of a batch of at most `max` pieces of work; see [`batch::write_work`].
    #[napi]
    pub fn take(&self, max: u32) -> String {
        let work = self.bridge.as_ref().map(|bridge| bridge.take(max as usize, Duration::ZERO));
        batch::write_work(&work.unwrap_or_default())
    }

    /// Makes a call of a run and returns the JSON text of what came of it; see [`batch::write_called`].
    #[napi]
    pub fn call(&self, run: f64, verb: String, arguments: String) -> Result<String> {
        Ok(batch::write_called(self.bridge()?.call(run as u64, &verb, &arguments)))
    }

    /// Hands back activations; see [`batch::HandedBack`].
    #[napi]
    pub fn hand_back(&self, activations: String) -> Result<()> {
        let activations = batch::read_hand_backs(&activations).map_err(malformed)?;
        if let Some(bridge) = &self.bridge {
            bridge.hand_back(activations);
        }
        Ok(())
    }

    /// Reports the results of jobs; see [`batch::Finished`].
    #[napi]
    pub fn finish(&self, jobs: String) -> Result<()> {
        let jobs = batch::read_finished(&jobs).map_err(malformed)?;
        for (job, outcome) in jobs {
            if let Some(bridge) = &self.bridge {
                bridge.finish(job, outcome);
            }
        }
        Ok(())
    }

    /// Makes a call of a running task.
    #[napi]
    pub fn task(&self, job: f64, verb: String, arguments: String) -> Result<String> {
        self.bridge()?.task(job as u64, &verb, &arguments).map_err(|error: BridgeError| Error::from_reason(error.text))
    }

    /// Answers a query; without an answer, the code has no such query.
    #[napi]
    pub fn answer_query(&self, query: f64, ok: bool, answer: Option<String>) {
        if let Some(bridge) = &self.bridge {
            bridge.answer_query(query as u64, answer.map(|answer| if ok { Ok(answer) } else { Err(answer) }));
        }
    }

    /// Makes a request; its items and its reply are work.
    #[napi]
    pub fn request(&self, verb: String, arguments: String) -> Result<f64> {
        Ok(self.bridge()?.request(&verb, &arguments) as f64)
    }

    /// Stops the delivery of items and of the reply of a request.
    #[napi]
    pub fn abandon(&self, request: f64) {
        if let Some(bridge) = &self.bridge {
            bridge.abandon(request as u64);
        }
    }

    /// Begins to shut down; the last piece of work is the end.
    #[napi]
    pub fn shut_down(&self, timeout_ms: f64) {
        if let Some(bridge) = &self.bridge {
            bridge.shut_down(Duration::from_millis(timeout_ms as u64));
        }
    }

    /// Returns the numbers of runs, jobs, requests and queued pieces of work.
    #[napi]
    pub fn stats(&self) -> Vec<f64> {
        let stats = self.bridge.as_ref().map(Bridge::stats);
        stats.map_or_else(Vec::new, |stats| [stats.runs, stats.jobs, stats.requests, stats.queued].map(|n| n as f64).to_vec())
    }

    /// Drops the bridge, and the function that keeps the process alive.
    #[napi]
    pub fn close(&mut self) {
        self.bridge = None;
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn bridge(&self) -> Result<&Bridge> {
        let closed = r#"{"code":"shut_down","message":"this Onward is closed","hint":"start another one","status":503}"#;
        self.bridge.as_ref().ok_or_else(|| Error::from_reason(closed))
    }
}

fn malformed(error: serde_json::Error) -> Error {
    Error::from_reason(format!("malformed text of the shell: {error}"))
}
