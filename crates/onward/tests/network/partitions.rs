//! Networks that work in one direction only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onward::Onward;
use onward::prelude::*;

use crate::proxy::{Faults, Proxy};
use crate::site::{LEASE, Site, eventually};

/// A worker process: its name is the result of the step that began there; records whether that step was stopped.
struct Process {
    name: &'static str,
    may_return: tokio::sync::watch::Sender<bool>,
    began: AtomicU32,
    stopped: AtomicBool,
}

struct SetStoppedOnDrop(Arc<Process>);

impl Drop for SetStoppedOnDrop {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }
}

impl Process {
    fn new(name: &'static str, may_return: bool) -> Arc<Process> {
        let may_return = tokio::sync::watch::Sender::new(may_return);
        Arc::new(Process { name, may_return, began: AtomicU32::new(0), stopped: AtomicBool::new(false) })
    }
}

async fn held_up(ctx: Ctx, (): ()) -> Result<String> {
    let process = ctx.dep::<Arc<Process>>();
    ctx.step("long", async || {
        process.began.fetch_add(1, Ordering::SeqCst);
        let guard = SetStoppedOnDrop(Arc::clone(&process));
        process.may_return.subscribe().wait_for(|may| *may).await.unwrap();
        drop(guard);
        Ok::<_, Failure>(process.name.to_owned())
    })
    .await
}

async fn start(url: &str, process: &Arc<Process>) -> Onward {
    Onward::connect(url).workflow("held-up", held_up).dep(process.clone()).start().await.unwrap()
}

/// A is cut off by `faults` in the middle of a step; B, which has another path, finishes the run after the lease. A has stopped
/// by then, and is fenced if it comes back.
async fn another_worker_finishes(faults: Faults) {
    let site = Site::memory().await;
    let (proxy, straight) = (Proxy::new(site.address, 0).await, format!("http://{}", site.address));
    let (a, b) = (Process::new("a", false), Process::new("b", true));
    let cut_off = start(&proxy.url, &a).await;
    let client = Onward::connect(&straight).start().await.unwrap();
    let run = client.start::<String, _>("held-up", &()).id("r").await.unwrap();
    eventually("A is in its step", async || (a.began.load(Ordering::SeqCst) == 1).then_some(())).await;
    let epoch = site.head("r").await.unwrap().epoch;
    let _other = start(&straight, &b).await;
    proxy.set(faults);
    assert_eq!(run.result().await.unwrap(), "b");
    assert!(a.stopped.load(Ordering::SeqCst), "A had stopped before B could begin (F13)");
    assert!(site.head("r").await.unwrap().epoch > epoch, "A is fenced");
    let log = site.log("r").await;
    a.may_return.send_replace(true);
    proxy.heal();
    // A is a worker again, and has dropped the run.
    eventually("A is idle", async || (cut_off.hot_runs() == 0).then_some(())).await;
    assert_eq!(site.log("r").await, log, "nothing of A's comes late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_frames_are_held_up_stops_before_another_has_its_run() {
    another_worker_finishes(Faults { hold_up: true, ..Faults::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_both_ways_stops_before_another_has_its_run() {
    another_worker_finishes(Faults { hold_up: true, hold_down: true, ..Faults::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_receives_nothing_stops_before_another_has_its_run() {
    another_worker_finishes(Faults { hold_down: true, refuse: true, ..Faults::default() }).await;
}

/// The first attempt does not end; it records when it is stopped.
async fn stuck(ctx: TaskCtx, (): ()) -> Result<u32> {
    let process = ctx.dep::<Arc<Process>>();
    if process.began.fetch_add(1, Ordering::SeqCst) > 0 {
        return Ok(ctx.attempt());
    }
    let _guard = SetStoppedOnDrop(Arc::clone(&process));
    std::future::pending().await
}

/// Y4: the server notices nothing: it hears its worker all the time, and the connection is up. Only the worker knows that it has
/// given up its task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_a_worker_has_let_go_in_a_short_silence_is_given_out_again() {
    let site = Site::memory().await;
    let (proxy, process) = (Proxy::new(site.address, 0).await, Process::new("a", false));
    let _worker = Onward::connect(&proxy.url).task("stuck", stuck).dep(process.clone()).start().await.unwrap();
    let client = Onward::connect(site.url()).start().await.unwrap();
    let task = client.task::<u32, _>("stuck", &()).costs().id("t").await.unwrap();
    eventually("it has begun", async || (process.began.load(Ordering::SeqCst) == 1).then_some(())).await;
    proxy.set(Faults { hold_down: true, ..Faults::default() });
    eventually("the worker lets it go", async || process.stopped.load(Ordering::SeqCst).then_some(())).await;
    proxy.heal();
    let result = tokio::time::timeout(LEASE * 20, task.result()).await;
    result.expect("the task is given out again").unwrap();
    assert_eq!(process.began.load(Ordering::SeqCst), 2);
    let spend = site.head("t").await.unwrap().spend.unwrap();
    assert_eq!(spend.attempts, 2, "LG1: the first one was not reported as never begun");
}
