//! Steps: side effects that run in the worker of their run and have their result recorded.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use onward_core::ancestry::Identity;
use onward_core::engine::StepPoll;
use onward_core::live::{RunningStep, StepsReport};
use onward_core::task::{RetryPolicy, idempotency_key};
use onward_core::trace::{TraceContext, step_span};
use onward_core::{BoxError, CallId, Failure, Hash, Index, Name, Payload};
use onward_store::sync::lock;
use pin_project_lite::pin_project;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::memo::Memo;
use super::{Ctx, Durable, name_or_misuse, payload_or_failure, payload_or_misuse, small};
use crate::Result;
use crate::host::cell::{RunCell, RunCellState, StepAttempt};
use crate::host::code::panic_message;
use crate::host::wake::{StepWaker, held_back, polling};
use crate::middleware::{Around, AttemptCall, Middlewares};

/// The largest input that is recorded with a step.
const RECORDED_BYTES_MAX: usize = 64 * 1024;

/// One attempt of a step, as passed to its closure. It holds nothing of the run, so it may outlive the step, for example on a
/// blocking thread.
#[derive(Clone)]
pub struct Attempt {
    /// 1, 2, …
    pub number: u32,
    call_id: CallId,
    known_as: Identity,
    trace: Option<TraceContext>,
}

impl Attempt {
    fn new(call: &StepCall, number: u32) -> Attempt {
        let state = call.cell.lock();
        let known_as = state.engine.known_as(&call.call_id).clone();
        let span = || step_span(state.engine.key(), state.engine.generation(), &call.call_id, number);
        Attempt {
            number,
            call_id: call.call_id.clone(),
            known_as,
            trace: call.cell.shared.origin.map(|origin| origin.context(span())),
        }
    }

    /// Returns the idempotency key: the same for every attempt of this step, also after a crash. Pass it to the called system,
    /// which discards repeats by it.
    pub fn idempotency_key(&self) -> String {
        idempotency_key(&self.known_as.run, self.known_as.generation, &self.call_id)
    }

    /// Returns the attempt's position in the run's trace, to pass to services that it calls; `None` in processes without tracing.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace
    }
}

impl Ctx {
    /// Runs `f` in this process and records its result. A recorded step never runs again. A step that was running when the
    /// process died may run again, so use the idempotency key of [`Ctx::step_with`] for its effects.
    ///
    /// Values that `f` captures are not compared on replay; pass them to `.input(&x)` if they should be.
    pub fn step<'a, F, Fut, T, E>(&self, name: &str, f: F) -> Step<impl Future<Output = Result<T>> + use<'a, F, Fut, T, E>>
    where
        F: FnOnce() -> Fut + Clone + 'a,
        Fut: Future<Output = Result<T, E>> + 'a,
        T: Serialize + DeserializeOwned + 'a,
        E: Into<BoxError> + 'a,
    {
        self.step_with(name, move |_| f())
    }

    /// Runs a step like [`Ctx::step`], with the attempt passed to `f`.
    pub fn step_with<'a, F, Fut, T, E>(&self, name: &str, f: F) -> Step<impl Future<Output = Result<T>> + use<'a, F, Fut, T, E>>
    where
        F: FnOnce(Attempt) -> Fut + Clone + 'a,
        Fut: Future<Output = Result<T, E>> + 'a,
        T: Serialize + DeserializeOwned + 'a,
        E: Into<BoxError> + 'a,
    {
        let name = name_or_misuse(&self.cell, "step", name);
        let call_id = self.cell.call("step").engine.open_step(name.clone());
        let call =
            Arc::new(StepCall { cell: self.cell.clone(), call_id, name, timeout: OnceLock::new(), input: Mutex::default() });
        let future = run_step(call.clone(), f);
        let records = self.cell.lock().record_inputs;
        Step { call, over: false, input: None, records, memo: None, future }
    }
}

struct StepCall {
    cell: Arc<RunCell>,
    call_id: CallId,
    name: Name,
    timeout: OnceLock<Duration>,
    /// The input, if there are middlewares, which see it.
    input: Mutex<Option<Payload>>,
}

impl StepCall {
    fn middlewares(&self) -> &Middlewares {
        &self.cell.shared.middlewares
    }
}

/// The futures may be dropped before the call has ended: then the code no longer awaits it.
impl Drop for StepCall {
    fn drop(&mut self) {
        self.cell.lock().drop_call(&self.call_id);
    }
}

/// Returns the recorded result, or runs attempts and reports each to the engine until one is recorded as the result.
async fn run_step<F, Fut, T, E>(call: Arc<StepCall>, f: F) -> Result<T>
where
    F: FnOnce(Attempt) -> Fut + Clone,
    Fut: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: Into<BoxError>,
{
    loop {
        let number = match next(&call).await {
            Err(recorded) => return recorded.and_then(|payload| Ok(payload.read()?)),
            Ok(number) => number,
        };
        let started = Instant::now();
        let result = match scripted(&call, number) {
            Some(result) => result,
            None => {
                let attempt = Attempt::new(&call, number);
                let around = around(&call, &attempt);
                let f = f.clone();
                let make = move || async move {
                    let value = f(attempt).await.map_err(|error| Failure::from_box(error.into()))?;
                    payload_or_failure("the result", &value)
                };
                InStep { call: &call, make: Some((make, around)), future: None, sleep: None }.await
            }
        };
        let max = call.cell.shared.payload_bytes_max;
        let result = result.and_then(|payload| small(max, format_args!("the result of step `{}`", call.name), payload));
        // In the virtual time of tests, a step takes no time.
        let took_ms = if call.cell.shared.script.is_some() { 0 } else { started.elapsed().as_millis() as u64 };
        call.cell.lock().engine.report_step(&call.call_id, result, took_ms);
    }
}

fn scripted(call: &StepCall, attempt: u32) -> Option<Result<Payload>> {
    let script = call.cell.shared.script.as_ref()?;
    let generation = call.cell.lock().engine.generation();
    let answer = script.answer(&StepAttempt { name: &call.name, generation, call_id: &call.call_id, attempt });
    if answer.is_none() {
        script.ran(&call.name);
    }
    answer
}

/// Notes the start of an attempt, and reports it if the run is watched.
fn report_start(call: &StepCall, mut state: MutexGuard<'_, RunCellState>, attempt: u32) {
    let Some(clock) = &call.cell.shared.clock else { return };
    let started_at = clock.now();
    state.engine.set_step_start(&call.call_id, started_at);
    let Some(outlet) = call.cell.shared.outlet.as_ref().filter(|_| state.is_watched) else { return };
    let (run, generation) = (state.engine.key().clone(), state.engine.generation());
    let input = state.engine.recorded_step_input(&call.call_id);
    drop(state);
    let (call_id, name) = (call.call_id.clone(), call.name.clone());
    let step = RunningStep { call_id, name, attempt, started_at, input };
    outlet.report_steps(StepsReport { run, generation, is_complete: false, steps: vec![step] });
}

/// Waits for the number of the attempt to run (`Ok`) or the recorded result (`Err`).
fn next(call: &StepCall) -> impl Future<Output = Result<u32, Result<Payload>>> + '_ {
    poll_fn(move |cx| {
        if held_back(cx, || call.cell.lock().engine.ready_at(&call.call_id)) {
            return Poll::Pending;
        }
        let mut state = call.cell.call("step");
        match state.engine.poll_step(&call.call_id) {
            StepPoll::Recorded(result) => Poll::Ready(Err(result)),
            StepPoll::Start { attempt } => {
                report_start(call, state, attempt);
                Poll::Ready(Ok(attempt))
            }
            StepPoll::Pending => {
                state.watch(&call.call_id, cx);
                Poll::Pending
            }
        }
    })
}

/// Returns the middlewares of an attempt with what they see of it, if there are any.
fn around(call: &StepCall, attempt: &Attempt) -> Option<(Middlewares, AttemptCall)> {
    let middlewares = call.middlewares();
    if middlewares.is_empty() {
        return None;
    }
    let run = call.cell.lock().engine.key().id.clone();
    let (input, deps) = (lock(&call.input).clone(), call.cell.shared.deps.clone());
    Some((middlewares.clone(), AttemptCall::of_step(&call.name, attempt, run, input, deps)))
}

/// Polls the closure's future with a real waker and inside the async runtime; workflow code has neither.
struct InStep<'a, M, Fut> {
    call: &'a StepCall,
    make: Option<(M, Option<(Middlewares, AttemptCall)>)>,
    future: Option<AttemptFuture<M, Fut>>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

enum AttemptFuture<M, Fut> {
    Plain(Pin<Box<Fut>>),
    Around(Around<M, Fut>),
}

impl<M, Fut> Unpin for InStep<'_, M, Fut> {}

impl<M, Fut> Future for InStep<'_, M, Fut>
where
    M: FnOnce() -> Fut,
    Fut: Future<Output = Result<Payload>>,
{
    type Output = Result<Payload>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Payload>> {
        if held_back(cx, || None) {
            return Poll::Pending;
        }
        let cell = self.call.cell.clone();
        let driver = {
            let mut state = cell.lock();
            state.in_step = true;
            state.driver.clone()
        };
        let arm = polling(cx.waker()).and_then(|polling| polling.arm).map(|(arms, arm)| (arms.clone(), arm));
        let waker = if arm.is_some() { Waker::from(Arc::new(StepWaker { driver, arm })) } else { driver };
        let polled = {
            let _runtime = cell.shared.runtime.as_ref().map(tokio::runtime::Handle::enter);
            catch_unwind(AssertUnwindSafe(|| self.poll_closure(&mut Context::from_waker(&waker))))
        };
        cell.lock().in_step = false;
        polled.unwrap_or_else(|panic| {
            let message = format!("the step panicked: {}", panic_message(&*panic));
            Poll::Ready(Err(Failure::new("panicked", message)))
        })
    }
}

impl<M, Fut> InStep<'_, M, Fut>
where
    M: FnOnce() -> Fut,
    Fut: Future<Output = Result<Payload>>,
{
    fn poll_closure(&mut self, cx: &mut Context<'_>) -> Poll<Result<Payload>> {
        if let Some((make, around)) = self.make.take() {
            self.future = Some(match around {
                None => AttemptFuture::Plain(Box::pin(make())),
                Some((middlewares, call)) => AttemptFuture::Around(Around::new(middlewares, call, make)),
            });
            self.sleep = self.call.timeout.get().map(|timeout| Box::pin(tokio::time::sleep(*timeout)));
        }
        let polled = match &mut self.future {
            None => return Poll::Pending,
            Some(AttemptFuture::Plain(future)) => future.as_mut().poll(cx),
            Some(AttemptFuture::Around(around)) => Pin::new(around).poll(cx),
        };
        if polled.is_ready() {
            return polled;
        }
        let timed_out = self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if timed_out { Poll::Ready(Err(Failure::timed_out("the step"))) } else { Poll::Pending }
    }
}

pin_project! {
    /// A configured step, and the future of its result.
    #[must_use = "a step runs when it is awaited"]
    pub struct Step<F> {
        call: Arc<StepCall>,
        over: bool,
        input: Option<Payload>,
        records: bool,
        // Set with the first poll, when the input is known.
        memo: Option<Memo>,
        #[pin]
        future: F,
    }
}

impl<F> Step<F> {
    /// Sets the retry policy: `.retry(5)` is five attempts in all, [`RetryPolicy::forever`] has no limit. Waits between attempts
    /// are durable.
    pub fn retry(self, policy: impl Into<RetryPolicy>) -> Self {
        self.call.cell.lock().engine.set_step_retry(&self.call.call_id, policy.into());
        self
    }

    /// Sets the timeout of one attempt. On timeout its future is dropped, and the attempt fails with `timed_out`.
    pub fn timeout(self, timeout: Duration) -> Self {
        if self.call.timeout.set(timeout).is_err() {
            self.call.cell.lock().engine.misuse("a step can have only one timeout");
        }
        self
    }

    /// Sets a value that the step depends on. It is compared on every replay, so a changed value is a divergence.
    pub fn input(mut self, input: &impl Serialize) -> Self {
        let payload = payload_or_misuse(&self.call.cell, "step input", input);
        self.call.cell.lock().engine.set_step_input(&self.call.call_id, Hash::of(&payload));
        if !self.call.middlewares().is_empty() {
            *lock(&self.call.input) = Some(payload.clone());
        }
        self.input = Some(payload);
        let records = self.records;
        self.record_if(records)
    }

    /// Uses the result of an equal step of another run, recorded within this time; a hit is an event that names that run. A step
    /// that equals one in progress waits for it. The memo needs a key, or [`Step::input`]. See [`Memo`].
    pub fn memo(mut self, memo: impl Into<Memo>) -> Self {
        self.memo = Some(memo.into());
        self
    }

    /// Records the value of [`Step::input`] with the step's results, for people who read the run; replay does not use it. Values
    /// over 64 KiB are not recorded. Do not record secrets: every reader of the run sees the value.
    ///
    /// `Builder::record_inputs` does this for all steps of a kind.
    pub fn record(self) -> Self {
        self.record_if(true)
    }

    /// Sets the value that is recorded in place of that of [`Step::input`], if the input is recorded. Call it after `input`.
    pub fn record_as(mut self, shown: &impl Serialize) -> Self {
        self.input = Some(payload_or_misuse(&self.call.cell, "recorded step input", shown));
        let records = self.records;
        self.record_if(records)
    }

    fn record_if(mut self, records: bool) -> Self {
        self.records = records;
        let max = RECORDED_BYTES_MAX.min(self.call.cell.shared.payload_bytes_max);
        let input = self.input.take_if(|_| records).map(|input| self.call.middlewares().recorded_input(&self.call.name, input));
        if let Some(input) = input.filter(|input| input.data().len() <= max) {
            self.call.cell.lock().engine.record_step_input(&self.call.call_id, input);
        }
        self
    }
}

impl<F: Future> Future for Step<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if *this.over {
            return this.call.cell.polled_again(&format!("step {}", this.call.name), Some(&this.call.call_id));
        }
        if let Some(memo) = this.memo.take() {
            memo.set(&this.call.cell, &this.call.call_id);
        }
        let polled = this.future.poll(cx);
        *this.over = polled.is_ready();
        polled
    }
}

impl<F: Future> Durable for Step<F> {
    fn ready_at(&self) -> Option<Index> {
        self.call.cell.lock().engine.ready_at(&self.call.call_id)
    }
}
