//! Appends per second: many committers, each on a run it holds, each waiting for its commit before the next.
//!
//! `cargo run --release -p onward-store-embedded --example append_bench -- [committers] [seconds] [steps per run] [directory]`
//!
//! With 0 committers: the time to read the log of one run of that many steps.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use onward_core::event::{RunCompleted, RunStarted, StepCompleted};
use onward_core::run::{Commit, NewRun};
use onward_core::{CallId, CommitId, Index, Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_store::{Change, Listener, Store};
use onward_store_embedded::{EmbeddedStore, Options};

struct Nobody;
impl Listener for Nobody {
    fn changed(&self, _: Change<'_>) {}
}

/// Futures to be polled again, by number.
#[derive(Default)]
struct Ready {
    numbers: Mutex<Vec<usize>>,
    wake: Condvar,
}

struct Ring {
    number: usize,
    ready: Arc<Ready>,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        let mut numbers = self.ready.numbers.lock().unwrap();
        numbers.push(self.number);
        if numbers.len() == 1 {
            self.ready.wake.notify_one();
        }
    }
}

/// Polls all futures on this thread until they complete.
fn drive(mut futures: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    let ready = Arc::new(Ready::default());
    let wakers: Vec<Waker> =
        (0..futures.len()).map(|number| Waker::from(Arc::new(Ring { number, ready: ready.clone() }))).collect();
    let mut open = futures.len();
    let mut batch: Vec<usize> = (0..futures.len()).collect();
    while open > 0 {
        for number in batch.drain(..) {
            open -= usize::from(futures[number].as_mut().poll(&mut Context::from_waker(&wakers[number])).is_ready());
        }
        let mut numbers = ready.numbers.lock().unwrap();
        while numbers.is_empty() && open > 0 {
            numbers = ready.wake.wait(numbers).unwrap();
        }
        std::mem::swap(&mut *numbers, &mut batch);
    }
}

struct Load {
    store: EmbeddedStore,
    steps_per_run: u64,
    stop: AtomicBool,
    appends: AtomicU64,
    runs: AtomicU64,
}

impl Load {
    /// Starts a run, commits its steps one by one, and ends it.
    async fn live_one_run(&self) {
        let id = self.runs.fetch_add(1, Ordering::Relaxed);
        // Spread like random ids, so that the index of keys is used as in practice.
        let id = format!("run-{:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key = RunKey::new(Namespace::default(), RunId::new(id).unwrap());
        let input = Payload::from_json_text("{\"order\":42}");
        let kind = Name::new("order").unwrap();
        let started = RunStarted::new(kind, input, 1);
        let run = NewRun { key: key.clone(), started, signal: None };
        let held = self.store.start_run(run, Some(WorkerId::new("bench").unwrap())).await.unwrap().claimed.unwrap().head;
        self.appends.fetch_add(1, Ordering::Relaxed);
        let name = Name::new("charge").unwrap();
        let output = Payload::from_json_text(format!("\"{}\"", "x".repeat(198)));
        let mut horizon = Index(0);
        for n in 0..=self.steps_per_run {
            let (call_id, name, output) = (CallId::root(n as u32), name.clone(), output.clone());
            let event = match n == self.steps_per_run {
                true => RunCompleted { output, attempts: None }.into(),
                false => StepCompleted { call_id, name, input_hash: None, output, attempt: 1, took_ms: 3 }.into(),
            };
            let commit = Commit {
                key: key.clone(),
                generation: 0,
                epoch: held.epoch,
                n,
                commit_id: CommitId(n + 1),
                horizon,
                events: vec![event],
                waits: false,
                end_over_unread: false,
                is_standing: false,
                carries: Default::default(),
            };
            horizon = self.store.commit(commit).await.unwrap().index;
            self.appends.fetch_add(1, Ordering::Relaxed);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Load {
    /// Prints the time in which a worker reads the log of a run that it has just claimed.
    async fn read_long_log(&self) {
        self.live_one_run().await;
        let key = self.store.list_runs(Default::default()).await.unwrap().runs.remove(0).key;
        for _ in 0..3 {
            let started = Instant::now();
            let records = self.store.read_log(key.clone(), None, Index(0), usize::MAX).await.unwrap();
            println!("a log of {} records: {:.1} ms", records.len(), started.elapsed().as_secs_f64() * 1e3);
        }
    }
}

async fn live(load: Arc<Load>) {
    while !load.stop.load(Ordering::Relaxed) {
        load.live_one_run().await;
    }
}

/// Returns the processor time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10)
}

fn report(load: &Load, seconds: f64, committers: usize) {
    let store = &load.store;
    let (started, before, stats, cpu_before) = (Instant::now(), load.appends.load(Ordering::Relaxed), store.stats(), cpu());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (took, done, after) = (started.elapsed(), load.appends.load(Ordering::Relaxed) - before, store.stats());
    let cpu = cpu() - cpu_before;
    load.stop.store(true, Ordering::Relaxed);
    let share = |before: Duration, after: Duration| 100.0 * (after - before).as_secs_f64() / took.as_secs_f64();
    println!(
        "{committers} committers, {} steps per run: {:.0} appends/s, {:.1} us of processor each, {:.0} per batch; \
         writer: {:.0}% sql, {:.0}% commit and sync, {:.0}% checkpoints ({}), {:.0}% replies, {:.0}% idle",
        load.steps_per_run,
        done as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / done as f64,
        (after.operations - stats.operations) as f64 / (after.batches - stats.batches) as f64,
        share(stats.sql, after.sql),
        share(stats.sync, after.sync),
        share(stats.checkpoint, after.checkpoint),
        after.checkpoints - stats.checkpoints,
        share(stats.reply, after.reply),
        share(stats.idle, after.idle),
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let committers: usize = arguments.next().map_or(512, |text| text.parse().unwrap());
    let seconds: f64 = arguments.next().map_or(3.0, |text| text.parse().unwrap());
    let steps_per_run: u64 = arguments.next().map_or(100, |text| text.parse().unwrap());
    let scratch = tempfile::tempdir_in(".").unwrap();
    let directory = arguments.next().map_or(scratch.path().join("data"), Into::into);
    let store = EmbeddedStore::open(&directory, Options::default()).unwrap();
    store.subscribe(Arc::new(Nobody));
    let (stop, appends, runs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let load = Arc::new(Load { store, steps_per_run, stop, appends, runs });
    let clock = (committers > 0).then(|| {
        let load = load.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            report(&load, seconds, committers);
        })
    });
    if committers == 0 {
        return drive(vec![Box::pin(async move { load.read_long_log().await })]);
    }
    drive((0..committers).map(|_| Box::pin(live(load.clone())) as Pin<Box<dyn Future<Output = ()>>>).collect());
    clock.into_iter().for_each(|clock| clock.join().unwrap());
}
