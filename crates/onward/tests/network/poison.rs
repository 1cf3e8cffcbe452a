//! Scenarios F22 and F23 with real processes: work that kills its worker.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{BlockReason, Onward, TaskStatus};
use onward_core::Status;
use onward_core::event::PauseReason;

use crate::proxy::{Faults, Proxy};
use crate::site::{DEADLINE, Site, eventually};

/// Not a test, but the worker process of those below, which run this binary again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_itself() {
    let Ok(url) = std::env::var("ONWARD_POISONED") else { return };
    let never = || async { std::future::pending::<Result<()>>().await };
    let _worker = Onward::connect(url)
        .task("good", async |n: u32| Ok::<_, Failure>(n + 1))
        .task("panics", |(): ()| async { panic!("poison") as Result<()> })
        .task("aborts", |(): ()| async { std::process::abort() as Result<()> })
        .task("overflows", |(): ()| async { Ok::<_, Failure>(deeper(0)) })
        .task("hangs", move |(): ()| never())
        .workflow("kills", async |_: Ctx, (): ()| std::process::abort() as Result<()>)
        .start()
        .await
        .unwrap();
    std::future::pending().await
}

/// Exhausts the stack; the sum keeps the compiler from turning it into a loop.
#[allow(unconditional_recursion, reason = "that is the point")]
fn deeper(n: u64) -> u64 {
    let page = std::hint::black_box([n; 512]);
    deeper(n + 1) + page[n as usize % 512]
}

/// Restarts the worker whenever it dies, like an init system.
pub struct Supervisor {
    child: Arc<Mutex<Child>>,
    deaths: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
}

impl Supervisor {
    pub fn start(url: &str) -> Supervisor {
        let spawn = {
            let url = url.to_owned();
            move || {
                let worker = ["poison::the_worker_itself", "--exact", "--nocapture", "--test-threads=1"];
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(worker).env("ONWARD_POISONED", &url);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            }
        };
        let supervisor = Supervisor { child: Arc::new(Mutex::new(spawn())), deaths: Arc::default(), stop: Arc::default() };
        let (child, deaths, stop) = (supervisor.child.clone(), supervisor.deaths.clone(), supervisor.stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                if child.lock().unwrap().try_wait().unwrap().is_some() {
                    deaths.fetch_add(1, Ordering::SeqCst);
                    *child.lock().unwrap() = spawn();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        supervisor
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let mut child = self.child.lock().unwrap();
        drop(child.kill());
        drop(child.wait());
    }
}

/// F22: work that panics fails after its attempts, work that kills its process is quarantined, and other work gets its results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_kills_its_worker_is_taken_off_its_queue_and_its_neighbors_go_on() {
    let site = Site::memory().await;
    let url = format!("http://{}", site.address);
    let supervisor = Supervisor::start(&url);
    let client = Onward::connect(&url).start().await.unwrap();
    let policy = RetryPolicy::attempts(3).delay(Duration::ZERO);
    let panics = client.task::<(), _>("panics", &()).retry(policy).await.unwrap();
    let failed = tokio::time::timeout(DEADLINE, panics.result()).await.expect("attempts end").unwrap_err();
    assert!(failed.to_string().contains("poison"), "{failed}");
    assert_eq!(panics.view().await.unwrap().attempts, 3);
    assert_eq!(supervisor.deaths.load(Ordering::SeqCst), 0, "a panic does not kill the process");

    for poison in ["aborts", "overflows"] {
        let before = supervisor.deaths.load(Ordering::SeqCst);
        let killer = client.task::<u64, _>(poison, &()).await.unwrap();
        let mut good = Vec::new();
        for n in 0..8 {
            good.push(client.task::<u32, _>("good", &n).await.unwrap());
        }
        let state = async || {
            let view = killer.view().await.ok()?;
            (view.state == TaskStatus::Quarantined).then_some(view)
        };
        let view = eventually("the poison is taken off its queue", state).await;
        let deaths = supervisor.deaths.load(Ordering::SeqCst) - before;
        assert!(view.attempts == 6 && deaths >= 6, "{poison}: {deaths} processes died in {} attempts", view.attempts);
        for (n, task) in good.into_iter().enumerate() {
            let done = tokio::time::timeout(DEADLINE, task.result()).await.expect("neighbors go on").unwrap();
            assert_eq!(done, n as u32 + 1);
        }
        // An operator has looked at it: it is retried, or ended.
        let queues = site.runtime().list_queues(&Default::default()).await.unwrap();
        assert!(queues.iter().any(|queue| queue.count.kind.as_str() == poison && queue.count.quarantined == 1), "{queues:?}");
        killer.cancel("a bug").await.unwrap();
        assert_eq!(killer.view().await.unwrap().state, TaskStatus::Canceled);
    }
}

/// F22: an attempt that never ends times out, and its worker does other work meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_never_ends_is_given_up_after_its_time() {
    let site = Site::memory().await;
    let url = format!("http://{}", site.address);
    let supervisor = Supervisor::start(&url);
    let client = Onward::connect(&url).start().await.unwrap();
    let hangs = client.task::<(), _>("hangs", &()).retry(2).timeout(Duration::from_millis(50)).await.unwrap();
    assert_eq!(client.task::<u32, _>("good", &1).await.unwrap().result().await.unwrap(), 2);
    let failed = hangs.result().await.unwrap_err();
    assert!(failed.to_string().contains("timed out"), "{failed}");
    assert_eq!((hangs.view().await.unwrap().attempts, supervisor.deaths.load(Ordering::SeqCst)), (2, 0));
}

/// F23, CW1: a workflow that kills its process affects only that process; the server and other kinds continue, and the run is
/// paused when it has killed three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_that_kills_its_process_is_paused_and_the_others_go_on() {
    let site = Site::memory().await;
    let url = format!("http://{}", site.address);
    let supervisor = Supervisor::start(&url);
    let client = Onward::connect(&url).start().await.unwrap();
    let killer = client.start::<(), _>("kills", &()).await.unwrap();
    let good = client.task::<u32, _>("good", &1).await.unwrap();
    let is_paused = async || {
        let view = killer.view().await.ok()?;
        (view.head.status == Status::Paused).then_some(view)
    };
    let view = eventually("it is paused", is_paused).await;
    let (pause, deaths) = (view.pause.unwrap(), supervisor.deaths.load(Ordering::SeqCst));
    let lost = pause.lost_workers.unwrap();
    assert_eq!((pause.reason, lost.count, lost.latest.len()), (PauseReason::WorkerCrashed, 3, 3));
    assert!(lost.latest.iter().all(|lost| !lost.worker.as_str().contains(':')), "as the workers call themselves: {lost:?}");
    assert_eq!(good.result().await.unwrap(), 2);
    assert_eq!(client.task::<u32, _>("good", &2).await.unwrap().result().await.unwrap(), 3);
    let blocked_on = killer.blocked_on().await.unwrap();
    assert_eq!((blocked_on[0].why, blocked_on[0].lost_workers), (BlockReason::WorkerCrashed, 3));
    assert!(supervisor.deaths.load(Ordering::SeqCst) <= deaths + 1, "no worker dies of it any more");
    // A person who resumes it without a fix loses three more.
    killer.resume().await.unwrap();
    eventually("it is paused again", is_paused).await;
    assert!(supervisor.deaths.load(Ordering::SeqCst) >= deaths + 2);
    killer.terminate("it kills its worker").await.unwrap();
}

/// CW3: a worker that is cut off for longer than its lease and comes back has not crashed, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_comes_back_after_its_lease_casts_no_suspicion_on_its_runs() {
    let site = Site::memory().await;
    let proxy = Proxy::new(site.address, 0).await;
    let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let slow = move |ctx: Ctx, (): ()| {
        let began = began.clone();
        async move {
            let step = async || {
                let _ = began.send(());
                std::future::pending::<Result<()>>().await
            };
            ctx.step("slow", step).await
        }
    };
    let worker = Onward::connect(&proxy.url).workflow("slow", slow).start().await.unwrap();
    let client = Onward::connect(site.url()).start().await.unwrap();
    let run = client.start::<(), _>("slow", &()).id("r").await.unwrap();
    for _ in 0..5 {
        begins.recv().await.unwrap();
        proxy.set(Faults { refuse: true, ..Faults::default() });
        proxy.cut();
        let is_lost = async || (run.view().await.ok()?.head.status == Status::Pending).then_some(());
        eventually("its lease is over", is_lost).await;
        proxy.heal();
    }
    begins.recv().await.unwrap();
    let head = run.view().await.unwrap().head;
    assert_eq!((head.status, head.lost_workers), (Status::Running, None));
    worker.shutdown().await;
}
