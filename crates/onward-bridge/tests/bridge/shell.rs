//! A shell in Rust: it plays coroutines on one thread, as packages of other languages do.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use onward_bridge::{Bridge, BridgeError, Called, ErrorKind, Function, HandBack, Outcome, StepJob, Work};
use serde_json::{Value, json};

pub type Result<T> = std::result::Result<T, Value>;
pub type Code = Pin<Box<dyn Future<Output = Result<Value>>>>;
type StepFunction = Rc<dyn Fn(&StepJob) -> Ran>;
type Program = Arc<dyn Fn(Ctx, Value) -> Code + Send + Sync>;
type TaskFunction = Arc<dyn Fn(&Bridge, u64, Value, Value) -> Ran + Send + Sync>;
type Handler = Box<dyn FnMut(Value) -> Result<Value>>;

/// What a function returned: at once, or later from another thread.
pub enum Ran {
    Now(Result<Value>),
    /// The test finishes the job.
    Later,
}

/// What a program may use.
#[derive(Clone)]
pub struct Ctx {
    pub run: u64,
    pub info: Value,
    bridge: Bridge,
    state: Rc<RefCell<RunState>>,
}

#[derive(Default)]
struct RunState {
    answers: HashMap<u32, Result<Value>>,
    functions: HashMap<Function, StepFunction>,
    queries: HashMap<String, Handler>,
    updates: HashMap<String, Handler>,
    finished: Vec<(u64, Outcome)>,
    now: u64,
}

pub fn failure(message: &str) -> Value {
    json!({"message": message})
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("the bridge writes JSON")
}

pub fn outcome(result: Result<Value>) -> Outcome {
    result.map(|value| value.to_string()).map_err(|failure| failure.to_string())
}

fn result(outcome: Outcome) -> Result<Value> {
    outcome.map(|text| value(&text)).map_err(|text| value(&text))
}

/// Marks code that must unwind.
const UNWIND: &str = "the code is unwound";

impl Ctx {
    fn called(&self, verb: &str, arguments: Value) -> Result<Called> {
        if std::env::var_os("BRIDGE_LOG").is_some() {
            eprintln!("{verb} {arguments}");
        }
        self.bridge.call(self.run, verb, &arguments.to_string()).map_err(|BridgeError { text, kind }| match kind {
            ErrorKind::Error => value(&text),
            ErrorKind::Stopped => Value::from(UNWIND),
        })
    }

    /// Makes a call that does not wait.
    pub fn call(&self, verb: &str, arguments: Value) -> Result<Value> {
        match self.called(verb, arguments)? {
            Called::Value(text) => Ok(value(&text)),
            other => panic!("{verb} waits: {other:?}"),
        }
    }

    pub fn now(&self) -> u64 {
        self.state.borrow().now
    }

    /// Makes a call that waits.
    pub fn wait(&self, verb: &str, arguments: Value) -> Waiting {
        let number = match self.called(verb, arguments) {
            Err(error) => return Waiting { ctx: self.clone(), call: None, error: Some(error), info: Value::Null },
            Ok(Called::Answered { call, result: answer }) => {
                self.state.borrow_mut().answers.insert(call, result(answer));
                (call, Value::Null)
            }
            Ok(Called::Waits { call, info }) => (call, value(&info)),
            Ok(other) => panic!("{verb} does not wait: {other:?}"),
        };
        Waiting { ctx: self.clone(), call: Some(number.0), error: None, info: number.1 }
    }

    /// Runs a step whose function returns at once.
    pub fn step(&self, name: &str, function: impl Fn() -> Result<Value> + 'static) -> Waiting {
        self.step_with(json!({"name": name}), move |_| Ran::Now(function()))
    }

    pub fn step_with(&self, arguments: Value, function: impl Fn(&StepJob) -> Ran + 'static) -> Waiting {
        let function: StepFunction = Rc::new(function);
        let number = match self.called("step", arguments) {
            Err(error) => return Waiting { ctx: self.clone(), call: None, error: Some(error), info: Value::Null },
            Ok(Called::Step(job)) => {
                let Function::Step(call) = job.function else { panic!("a step has a call") };
                self.state.borrow_mut().functions.insert(job.function, function.clone());
                if let Ran::Now(result) = function(&job) {
                    self.state.borrow_mut().finished.push((job.job, outcome(result)));
                }
                call
            }
            Ok(Called::Waits { call, .. }) => {
                self.state.borrow_mut().functions.insert(Function::Step(call), function);
                call
            }
            Ok(Called::Answered { call, result: answer }) => {
                self.state.borrow_mut().answers.insert(call, result(answer));
                call
            }
            Ok(other) => panic!("a step is a value: {other:?}"),
        };
        Waiting { ctx: self.clone(), call: Some(number), error: None, info: Value::Null }
    }

    pub fn on_failure(&self, name: &str, undo: impl Fn() -> Result<Value> + 'static) {
        let number = self.call("on_failure", json!({"name": name})).expect("a compensation can be registered");
        let function = Function::Undo(number.as_u64().expect("a number"));
        self.state.borrow_mut().functions.insert(function, Rc::new(move |_| Ran::Now(undo())));
    }

    pub fn query(&self, name: &str, handler: impl FnMut(Value) -> Result<Value> + 'static) {
        self.state.borrow_mut().queries.insert(name.to_owned(), Box::new(handler));
    }

    pub fn update(&self, name: &str, handler: impl FnMut(Value) -> Result<Value> + 'static) {
        self.state.borrow_mut().updates.insert(name.to_owned(), Box::new(handler));
        let kept = self.call("update", json!({"name": name})).expect("a handler can be registered");
        for update in kept.as_array().expect("a list") {
            self.answer_update(update["update"].as_str().unwrap(), name, update["input"].clone());
        }
    }

    fn answer_update(&self, update: &str, name: &str, input: Value) {
        let mut handler = self.state.borrow_mut().updates.remove(name).expect("only registered updates come");
        let answer = match handler(input) {
            Ok(result) => json!({"update": update, "result": result}),
            Err(failure) => json!({"update": update, "failure": failure}),
        };
        self.state.borrow_mut().updates.insert(name.to_owned(), handler);
        self.call("update_answer", answer).expect("an update can be answered");
    }
}

/// An awaitable of a call. Dropping it drops the call.
pub struct Waiting {
    ctx: Ctx,
    call: Option<u32>,
    error: Option<Value>,
    pub info: Value,
}

impl Waiting {
    pub fn number(&self) -> u32 {
        self.call.expect("the call was made")
    }
}

impl Future for Waiting {
    type Output = Result<Value>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<Value>> {
        if let Some(error) = self.error.take() {
            return if error == UNWIND { Poll::Pending } else { Poll::Ready(Err(error)) };
        }
        let Some(call) = self.call else { return Poll::Pending };
        let answer = self.ctx.state.borrow_mut().answers.remove(&call);
        match answer {
            None => Poll::Pending,
            Some(answer) => {
                self.call = None;
                Poll::Ready(answer)
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            drop(self.ctx.called("drop", json!({"call": call})));
        }
    }
}

/// Waits for all, in any order.
pub async fn gather<const N: usize>(mut waiting: [Waiting; N]) -> [Result<Value>; N] {
    let mut results = [const { None }; N];
    std::future::poll_fn(move |cx| {
        for (waiting, result) in waiting.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = Pin::new(waiting).poll(cx)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) {
            Poll::Ready(std::array::from_fn(|at| results[at].take().expect("all are there")))
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Returns the first that is answered, and drops the others.
pub async fn race<const N: usize>(mut waiting: [Waiting; N]) -> (usize, Result<Value>) {
    std::future::poll_fn(move |cx| {
        for (at, waiting) in waiting.iter_mut().enumerate() {
            if let Poll::Ready(ready) = Pin::new(waiting).poll(cx) {
                return Poll::Ready((at, ready));
            }
        }
        Poll::Pending
    })
    .await
}

enum Order {
    Stop,
    /// Ends the thread without a shutdown.
    Die,
}

/// A bridge with its shell.
pub struct Host {
    pub bridge: Bridge,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    replies: Arc<Mutex<HashMap<u64, Sender<Message>>>>,
    /// Numbers of code objects, in the order in which they began and closed.
    pub seen: Arc<Mutex<Vec<String>>>,
}

enum Message {
    Item(Value),
    Reply(Result<Value>),
}

/// Programs and tasks by name.
#[derive(Clone, Default)]
pub struct Programs {
    programs: HashMap<String, Program>,
    tasks: HashMap<String, TaskFunction>,
    agents: Vec<String>,
}

impl Programs {
    pub fn with<F: Future<Output = Result<Value>> + 'static>(
        mut self,
        kind: &str,
        program: impl Fn(Ctx, Value) -> F + Send + Sync + 'static,
    ) -> Programs {
        self.programs.insert(kind.to_owned(), Arc::new(move |ctx, input| Box::pin(program(ctx, input)) as Code));
        self
    }

    pub fn agent<F: Future<Output = Result<Value>> + 'static>(
        mut self,
        kind: &str,
        program: impl Fn(Ctx, Value) -> F + Send + Sync + 'static,
    ) -> Programs {
        self.agents.push(kind.to_owned());
        self.with(kind, program)
    }

    pub fn task(mut self, kind: &str, function: impl Fn(&Bridge, u64, Value, Value) -> Ran + Send + Sync + 'static) -> Programs {
        self.tasks.insert(kind.to_owned(), Arc::new(function));
        self
    }

    fn settings(&self, mut settings: Value) -> Value {
        let kind = |kind: &String| json!({"kind": kind, "agent": self.agents.contains(kind)});
        settings["kinds"] = self.programs.keys().map(kind).collect();
        settings["tasks"] = self.tasks.keys().map(|kind| json!({"kind": kind})).collect();
        settings
    }

    pub fn start(self, settings: Value) -> Host {
        self.try_start(settings).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_start(self, settings: Value) -> std::result::Result<Host, BridgeError> {
        let bridge = Bridge::start(&self.settings(settings).to_string())?;
        let (orders, received) = channel();
        let replies: Arc<Mutex<HashMap<u64, Sender<Message>>>> = Arc::default();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let player = Player { bridge: bridge.clone(), programs: self, replies: replies.clone(), seen: seen.clone() };
        let thread = std::thread::spawn(move || player.play(&received));
        Ok(Host { bridge, orders, thread: Some(thread), replies, seen })
    }
}

impl Host {
    fn send(&self, verb: &str, arguments: Value) -> Receiver<Message> {
        let (sender, receiver) = channel();
        // Registered under the lock, so that a reply cannot come before its receiver.
        let mut replies = self.replies.lock().unwrap();
        replies.insert(self.bridge.request(verb, &arguments.to_string()), sender);
        receiver
    }

    /// Sends a request; the returned function waits for its reply.
    pub fn begin(&self, verb: &str, arguments: Value) -> impl FnOnce() -> Result<Value> + use<> {
        let receiver = self.send(verb, arguments);
        move || loop {
            match receiver.recv_timeout(Duration::from_secs(120)).expect("a request is answered") {
                Message::Item(_) => {}
                Message::Reply(reply) => return reply,
            }
        }
    }

    pub fn request(&self, verb: &str, arguments: Value) -> Result<Value> {
        self.begin(verb, arguments)()
    }

    /// Returns the items of a request until its reply.
    pub fn items(&self, verb: &str, arguments: Value) -> Vec<Value> {
        let receiver = self.send(verb, arguments);
        let mut items = Vec::new();
        while let Message::Item(item) = receiver.recv_timeout(Duration::from_secs(120)).expect("a request is answered") {
            items.push(item);
        }
        items
    }

    pub fn start(&self, kind: &str, id: &str, input: Value) {
        self.request("start", json!({"kind": kind, "id": id, "input": input})).unwrap();
    }

    pub fn result(&self, run: &str) -> Result<Value> {
        self.request("result", json!({"run": run}))
    }

    /// Waits until the run waits in this state: `waiting`, `paused`, ...
    pub fn until(&self, run: &str, status: &str) -> Value {
        self.request("wait", json!({"run": run, "status": [status]})).unwrap()
    }

    pub fn event_names(&self, run: &str) -> Vec<String> {
        let log = self.request("log", json!({"run": run})).unwrap();
        let events = log.as_array().unwrap().iter().flat_map(|record| record["events"].as_array().unwrap().clone());
        events.map(|event| event["type"].as_str().or(event["event"].as_str()).unwrap_or_default().to_owned()).collect()
    }

    /// Shuts down in order.
    pub fn stop(mut self) {
        drop(self.orders.send(Order::Stop));
        self.bridge.shut_down(Duration::from_secs(60));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Ends like a process that is killed.
    pub fn kill(mut self) {
        drop(self.orders.send(Order::Die));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.orders.send(Order::Die));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Player {
    bridge: Bridge,
    programs: Programs,
    replies: Arc<Mutex<HashMap<u64, Sender<Message>>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

struct Running {
    code: Option<Code>,
    ctx: Ctx,
}

impl Player {
    fn play(self, orders: &Receiver<Order>) {
        let mut runs: HashMap<u64, Running> = HashMap::new();
        let mut back: Vec<HandBack> = Vec::new();
        loop {
            if let Ok(Order::Die) = orders.try_recv() {
                return;
            }
            for work in self.bridge.take(1024, Duration::from_millis(20)) {
                if matches!(work, Work::Ended) {
                    assert!(runs.is_empty(), "every run is closed before the end");
                    return;
                }
                self.work(work, &mut runs, &mut back);
            }
            self.bridge.hand_back(back.drain(..));
        }
    }

    fn work(&self, work: Work, runs: &mut HashMap<u64, Running>, back: &mut Vec<HandBack>) {
        if std::env::var_os("BRIDGE_LOG").is_some() {
            eprintln!("{work:?}");
        }
        let note = |what: String| self.seen.lock().unwrap().push(what);
        match work {
            Work::Start { run, info, input, now } => {
                let info = value(&info);
                note(format!("start {}", info["id"].as_str().unwrap()));
                let program = self.programs.programs[info["kind"].as_str().unwrap()].clone();
                let state = Rc::new(RefCell::new(RunState { now, ..RunState::default() }));
                let ctx = Ctx { run, info, bridge: self.bridge.clone(), state };
                let code = program(ctx.clone(), value(&input));
                let before = runs.insert(run, Running { code: Some(code), ctx });
                assert!(before.is_none(), "a number of a code object is used once");
                back.push(poll(runs.get_mut(&run).unwrap()));
            }
            Work::Answer { run, call, result: answer, now } => {
                let running = runs.get_mut(&run).expect("work comes between start and close");
                running.ctx.state.borrow_mut().now = now;
                running.ctx.state.borrow_mut().answers.insert(call, result(answer));
                back.push(poll(running));
            }
            Work::Update { run, update, name, input, now } => {
                let running = runs.get_mut(&run).expect("work comes between start and close");
                running.ctx.state.borrow_mut().now = now;
                running.ctx.answer_update(&update, &name, value(&input));
                back.push(poll(running));
            }
            Work::Step(job) => {
                let running = runs.get(&job.run).expect("work comes between start and close");
                let function = running.ctx.state.borrow().functions[&job.function].clone();
                if let Ran::Now(result) = function(&job) {
                    self.bridge.finish(job.job, outcome(result));
                }
            }
            Work::Task { job, kind, input, info } => {
                let function = self.programs.tasks[&kind].clone();
                if let Ran::Now(result) = function(&self.bridge, job, value(&input), value(&info)) {
                    self.bridge.finish(job, outcome(result));
                }
            }
            Work::Cancel { job } => note(format!("cancel job {job}")),
            Work::Query { query, run, name, input } => {
                let running = runs.get(&run).expect("work comes between start and close");
                let handler = running.ctx.state.borrow_mut().queries.remove(&name);
                let answer = handler.map(|mut handler| {
                    let answer = handler(value(&input));
                    running.ctx.state.borrow_mut().queries.insert(name, handler);
                    outcome(answer)
                });
                self.bridge.answer_query(query, answer);
            }
            Work::Close { run } => {
                let running = runs.remove(&run).expect("a run is closed once");
                note(format!("close {}", running.ctx.info["id"].as_str().unwrap()));
                let Running { code, ctx } = running;
                drop(code);
                // Handlers may hold the context.
                let state = std::mem::take(&mut *ctx.state.borrow_mut());
                drop(state);
            }
            Work::Reply { request, result: reply } => {
                let sender = self.replies.lock().unwrap().remove(&request);
                sender.map(|sender| sender.send(Message::Reply(result(reply))));
            }
            Work::Item { request, value: item } => {
                let sender = self.replies.lock().unwrap().get(&request).cloned();
                sender.map(|sender| sender.send(Message::Item(value(&item))));
            }
            Work::Ended => {}
        }
    }
}

/// Lets the code run until it waits.
fn poll(running: &mut Running) -> HandBack {
    let mut end = None;
    if let Some(code) = &mut running.code
        && let Poll::Ready(result) = code.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    {
        running.code = None;
        end = Some(outcome(result));
    }
    let finished = std::mem::take(&mut running.ctx.state.borrow_mut().finished);
    HandBack { run: running.ctx.run, finished, end }
}
