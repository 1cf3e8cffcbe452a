//! Scenario F13 with a real process: stopped past its lease, and continued after another one has done its work.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use onward::Onward;
use onward::prelude::*;

use crate::site::{Site, eventually};

/// In the zombie: its step has begun. The process may be stopped right after that, so it cannot rely on observing the run.
static BEGAN: AtomicBool = AtomicBool::new(false);

/// Returns the name of its process; in the zombie only after an input line.
async fn slow(ctx: Ctx, (): ()) -> Result<String> {
    let name = ctx.dep::<String>();
    ctx.step("slow", async || {
        if name.as_str() == "zombie" {
            BEGAN.store(true, Ordering::SeqCst);
            print_word("began");
            let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().lines().next());
            drop(read.await);
            print_word("returns");
        }
        Ok::<_, Failure>(name.to_string())
    })
    .await
}

fn print_word(word: &str) {
    println!("zombie: {word}");
    std::io::stdout().flush().unwrap();
}

/// Not a test, but the worker process of the one below, which runs this binary again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_zombie_itself() {
    let Ok(url) = std::env::var("ONWARD_ZOMBIE") else { return };
    let worker = Onward::connect(url).workflow("slow", slow).dep("zombie".to_owned()).start().await.unwrap();
    eventually("it let its run go", async || (BEGAN.load(Ordering::SeqCst) && worker.hot_runs() == 0).then_some(())).await;
    print_word("idle");
    std::future::pending().await
}

struct Zombie(Child);

impl Drop for Zombie {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Zombie {
    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_past_its_lease_commits_nothing_when_it_goes_on() {
    let site = Site::memory().await;
    let url = format!("http://{}", site.address);
    let binary = std::env::current_exe().unwrap();
    let child = Command::new(binary)
        .args(["zombie::the_zombie_itself", "--exact", "--nocapture", "--test-threads=1"])
        .env("ONWARD_ZOMBIE", &url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut zombie = Zombie(child.unwrap());
    let (mut word, mut lines) = (zombie.0.stdin.take().unwrap(), BufReader::new(zombie.0.stdout.take().unwrap()).lines());
    let mut wait_for = move |what: &str| while !lines.next().expect("the zombie talks").unwrap().contains(what) {};

    let client = Onward::connect(&url).start().await.unwrap();
    let run = client.start::<String, _>("slow", &()).id("r").await.unwrap();
    wait_for("began");
    zombie.signal("-STOP");
    let _other = Onward::connect(&url).workflow("slow", slow).dep("other".to_owned()).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "other", "another one has it after the lease");
    let log = site.log("r").await;

    // Its step returns as soon as it wakes, before it can know what happened.
    word.write_all(b"\n").unwrap();
    zombie.signal("-CONT");
    wait_for("idle");
    assert_eq!(site.log("r").await, log, "the late commit was refused");
}
