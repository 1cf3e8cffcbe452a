//! F23: a run that kills the program is paused, and everything else continues.

use std::path::Path;
use std::process::{Command, Output};

use onward::prelude::*;
use onward::{BlockReason, Onward, RunHandle};
use onward_core::Status;
use onward_core::event::PauseReason;

use crate::site::{DEADLINE, count, eventually, everywhere, paused};

/// Directory of a process that is the program of a test.
const DIRECTORY: &str = "ONWARD_TEST_POISONED";
/// Set if the program has fixed code.
const FIXED: &str = "ONWARD_TEST_FIXED";
/// The value of `pause_after_lost_workers`, if the program sets it.
const LIMIT: &str = "ONWARD_TEST_LIMIT";

async fn kills(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("before", async || Ok::<_, Failure>(())).await?;
    if std::env::var_os(FIXED).is_none() {
        std::process::abort();
    }
    Ok(7)
}

async fn fine(_: Ctx, n: u32) -> Result<u32> {
    Ok(n)
}

async fn waits(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.signal("go").recv::<u32>().await
}

/// Not a test, but the program of those below, which run this binary again. Ends by itself only if it survives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_itself() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let builder = Onward::embedded(directory).workflow("kills", kills).workflow("fine", fine).workflow("waits", waits);
    let limit = std::env::var(LIMIT).ok().and_then(|limit| limit.parse().ok());
    let builder = limit.into_iter().fold(builder, onward::Builder::pause_after_lost_workers);
    let onward = builder.start().await.unwrap();
    let idle = onward.start::<u32, _>("waits", &()).id("idle").await.unwrap();
    eventually("it waits", async || (idle.view().await.unwrap().head.status == Status::Waiting).then_some(())).await;
    let poison = onward.start::<u32, _>("kills", &()).id("poison").await.unwrap();
    if std::env::var_os(FIXED).is_some() {
        poison.resume().await.unwrap();
        println!("poison returned {}", poison.result().await.unwrap());
    } else {
        let pause = paused(&poison).await;
        let lost = pause.lost_workers.expect("it names the workers");
        println!("poison is paused: {:?}, {} workers, event {}", pause.reason, lost.count, lost.last_index);
        let blocked_on = poison.blocked_on().await.unwrap();
        println!("blocked on: {:?}, {} workers", blocked_on[0].why, blocked_on[0].lost_workers);
    }
    println!("fine returned {}", onward.start::<u32, _>("fine", &5).await.unwrap().result().await.unwrap());
    println!("idle is {}", idle.view().await.unwrap().head.status);
    onward.shutdown().await;
}

fn run(directory: &Path, settings: &[(&str, &str)]) -> Output {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "poison::the_program_itself", "--nocapture", "--test-threads=1"]).env(DIRECTORY, directory);
    program.envs(settings.iter().copied()).output().unwrap()
}

/// Runs the program, which dies.
fn dies(directory: &Path, settings: &[(&str, &str)]) {
    let output = run(directory, settings);
    assert!(!output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("idle is"), "{output:?}");
}

fn survives(directory: &Path, settings: &[(&str, &str)], expected: &[&str]) {
    let output = run(directory, settings);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    expected.iter().for_each(|line| assert!(text.contains(line), "{line}: {text}"));
}

/// F23, CW1: the fourth start finds the run paused. Its neighbors continue, and fixed code finishes it.
#[test]
fn a_run_that_kills_its_program_three_times_is_paused() {
    let directory = tempfile::tempdir().unwrap();
    let three = [(LIMIT, "3")];
    (0..3).for_each(|_| dies(directory.path(), &three));
    let others = ["fine returned 5", "idle is waiting"];
    let paused = ["poison is paused: WorkerCrashed, 3 workers, event #1", "blocked on: WorkerCrashed, 3 workers"];
    for _ in 0..2 {
        survives(directory.path(), &three, &[&paused[..], &others].concat());
    }
    survives(directory.path(), &[(FIXED, "1")], &[&["poison returned 7"], &others[..]].concat());
}

/// CW1: a builder sets the number, and 0 is no limit.
#[test]
fn the_number_of_deaths_is_a_setting() {
    let directory = tempfile::tempdir().unwrap();
    dies(directory.path(), &[(LIMIT, "1")]);
    survives(directory.path(), &[(LIMIT, "1")], &["1 workers, event #1", "fine returned 5"]);
    let directory = tempfile::tempdir().unwrap();
    (0..5).for_each(|_| dies(directory.path(), &[(LIMIT, "0")]));
}

async fn panics_when_replayed(ctx: Ctx, (): ()) -> Result<u32> {
    let value = ctx.step("before", async || Ok::<_, Failure>(3)).await?;
    panic!("cannot continue after {value}")
}

everywhere! {
    /// F23: code that panics over its log pauses at once, with a report: the process survives, so no worker is lost.
    async fn a_run_whose_replay_panics_is_paused_with_a_report_and_a_fixed_build_finishes_it(site) {
        let waits = async |ctx: Ctx, (): ()| {
            ctx.step("before", async || Ok::<_, Failure>(3)).await?;
            ctx.signal("go").recv::<u32>().await
        };
        let onward = site.builder().await.workflow("w", waits).start().await.unwrap();
        let run: RunHandle<u32> = onward.start("w", &()).id("r").await.unwrap();
        eventually("it waits", async || (run.view().await.unwrap().head.status == Status::Waiting).then_some(())).await;
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", panics_when_replayed).workflow("fine", fine).start().await.unwrap();
        let run: RunHandle<u32> = onward.run("r").unwrap();
        run.signal("go", &4).await.unwrap();
        let pause = paused(&run).await;
        assert_eq!((pause.reason, pause.lost_workers), (PauseReason::ActivationFailed, None));
        assert!(pause.message.contains("cannot continue after 3"), "{}", pause.message);
        assert_eq!(run.view().await.unwrap().head.lost_workers, None);
        assert!(run.blocked_on().await.unwrap().iter().all(|blocker| blocker.why != BlockReason::WorkerCrashed));
        let other = onward.start::<u32, _>("fine", &5).await.unwrap();
        assert_eq!(tokio::time::timeout(DEADLINE, other.result()).await.unwrap().unwrap(), 5);
        drop((run, other));
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", waits).start().await.unwrap();
        let run: RunHandle<u32> = onward.run("r").unwrap();
        run.resume().await.unwrap();
        assert_eq!((run.result().await.unwrap(), count(&run, "run_paused").await), (4, 1));
        onward.shutdown().await;
    }
}
