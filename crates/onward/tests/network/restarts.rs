//! Servers that die and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Failure, Onward};
use tokio::sync::Notify;

use crate::proxy::Random;
use crate::site::{LEASE, Site, eventually};
use crate::with_seeds;
use crate::workload::{Ran, check, perform, worker};

const RUNS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_come_back_to_a_server_that_was_killed_and_nothing_is_lost() {
    with_seeds(0..2, async |seed| {
        let mut site = Site::directory().await;
        let (url, ran, mut random) = (format!("http://{}", site.address), Ran::default(), Random::new(seed));
        let _workers = [worker(&url, &ran).start().await.unwrap(), worker(&url, &ran).start().await.unwrap()];
        let client = Onward::connect(&url).start().await.unwrap();
        let driving = async {
            for n in 0..RUNS {
                perform(&client, n).await;
            }
        };
        let killing = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
                site.kill().await;
                tokio::time::sleep(Duration::from_millis(random.below(100))).await;
                site.revive().await;
            }
        };
        tokio::join!(driving, killing);
        for n in 0..RUNS {
            check(&site, &client, &ran, n).await;
        }
    })
    .await;
}

/// Q7: running tasks of a worker outlive the server that assigned them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_was_running_when_the_server_died_is_done_once() {
    static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
    let mut site = Site::directory().await;
    let url = format!("http://{}", site.address);
    let go_on = Arc::new(Notify::new());
    let waits = go_on.clone();
    let mail = move |(): ()| {
        let waits = waits.clone();
        async move {
            ATTEMPTS.fetch_add(1, Ordering::SeqCst);
            waits.notified().await;
            Ok::<_, Failure>("sent".to_owned())
        }
    };
    let _worker = Onward::connect(&url).task("mail", mail).start().await.unwrap();
    let client = Onward::connect(&url).start().await.unwrap();
    let task = client.task::<String, _>("mail", &()).id("one").await.unwrap();
    eventually("the task runs", async || (ATTEMPTS.load(Ordering::SeqCst) == 1).then_some(())).await;
    site.kill().await;
    site.revive().await;
    // Longer than a lease, so that a task without a holder would be given out again.
    tokio::time::sleep(LEASE * 2).await;
    go_on.notify_waiters();
    assert_eq!(task.result().await.unwrap(), "sent");
    assert_eq!((ATTEMPTS.load(Ordering::SeqCst), site.count("one", "run_completed").await), (1, 1));
}
