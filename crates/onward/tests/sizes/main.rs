//! Resources of runs: memory and slots while agents wait, time and memory to continue a long conversation, memory to replay large
//! payloads.
//!
//! The memory of the whole process is measured, so one test runs at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod long;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onward::agent::{AgentCtx, Role, Turn};
use onward::prelude::*;
use onward::{Builder, RunView};
use onward_runtime::Runtime;
use onward_server::{Server, grpc, router_with, serve};
use onward_store::SystemClock;
use onward_store_embedded::EmbeddedStore;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Limit for waiting on a condition.
const DEADLINE: Duration = Duration::from_secs(300);

/// Returns a line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Returns the peak memory since [`forget_peak`].
fn peak() -> u64 {
    status("VmHWM")
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Holds a noticeable amount of memory, and waits for a message.
async fn patient(ctx: AgentCtx, number: u32) -> Result<u32> {
    let large = vec![u8::try_from(number % 251).unwrap_or(0); 200_000];
    ctx.append(Role::User, &number).await?;
    let word: u32 = ctx.signal("message").recv().await?;
    Ok(word + u32::from(large[7] == 255))
}

fn waits(view: &RunView) -> bool {
    !view.awaiting.is_empty()
}

fn with_few_seats(directory: &Path) -> Builder {
    Onward::embedded(directory).agent("patient", patient).runs_max(16).cached_runs_max(8).threads(1)
}

/// A9: three hundred agents wait at a worker that has room for sixteen. Each would take 200 kB in memory.
#[test]
fn waiting_agents_use_no_worker_slot_and_no_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (tokio, directory) = (runtime(), tempfile::tempdir().unwrap());
    tokio.block_on(async {
        let onward = with_few_seats(directory.path()).start().await.unwrap();
        let start = async |numbers: std::ops::Range<u32>| {
            for number in numbers.clone() {
                onward.start::<u32, _>("patient", &number).id(format!("a{number}")).await.unwrap();
            }
            for number in numbers {
                let run = onward.run::<u32>(&format!("a{number}")).unwrap();
                tokio::time::timeout(DEADLINE, run.until(waits)).await.expect("each gets its turn").unwrap();
            }
        };
        start(0..30).await;
        let before = status("VmRSS");
        start(30..300).await;
        let taken = status("VmRSS").saturating_sub(before);
        println!("{} kB for 270 agents more, {} in memory", taken / 1_000, onward.hot_runs());
        assert!(onward.hot_runs() <= 16, "{} are in memory", onward.hot_runs());
        assert!(mb(taken) < 20, "{} MB for agents that wait", mb(taken));
        // A waiting agent resumes as soon as there is a message.
        for number in [0, 150, 299] {
            let run = onward.run::<u32>(&format!("a{number}")).unwrap();
            run.signal("message", &number).await.unwrap();
            assert_eq!(run.result().await.unwrap(), number);
        }
        onward.shutdown().await;
    });
}

/// Appends many entries, and then returns their number.
async fn talker(ctx: AgentCtx, (turns, entries): (u32, u32)) -> Result<usize> {
    ctx.turns(0u32, async |turn| {
        if turn < turns {
            for number in turn * entries / turns..(turn + 1) * entries / turns {
                let words =
                    format!("entry {number}, which has as many words as people need for a question: {}", "word ".repeat(40));
                ctx.append(if number % 2 == 0 { "user" } else { "assistant" }, &words).await?;
            }
            return Ok(if turn + 1 == turns { Turn::Await(turns, "message") } else { Turn::Next(turn + 1) });
        }
        let word: String = ctx.signal("message").recv().await?;
        ctx.append(Role::User, &word).await?;
        Ok(Turn::Done(ctx.messages().await?.len()))
    })
    .await
}

/// A10, scenario 55: another process continues a conversation of ten thousand entries, and reads all of it.
#[test]
fn ten_thousand_entries_are_taken_up_in_fifty_megabytes_and_half_the_time_they_took() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    runtime().block_on(async {
        let onward = Onward::embedded(directory.path()).agent("talker", talker).start().await.unwrap();
        let run = onward.start::<usize, _>("talker", &(200u32, 10_000u32)).id("r").await.unwrap();
        tokio::time::timeout(DEADLINE, run.until(waits)).await.expect("all is said").unwrap();
        drop(run);
        onward.shutdown().await;
    });
    let appending = begun.elapsed();
    runtime().block_on(async {
        let onward = Onward::embedded(directory.path()).agent("talker", talker).start().await.unwrap();
        let run = onward.run::<usize>("r").unwrap();
        forget_peak();
        let (before, begun) = (status("VmRSS"), Instant::now());
        run.message("and now?").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 10_001);
        let (taken, time) = (peak().saturating_sub(before), begun.elapsed());
        println!("{} kB and {time:?}; to say it took {appending:?}", taken / 1_000);
        assert!(mb(taken) < 50, "{} MB", mb(taken));
        assert!(time < appending / 2, "{time:?} of {appending:?}");
        onward.shutdown().await;
    });
}

/// Number of payloads in the log, and bytes of each.
const LOADS: u32 = 12;
const LOAD: usize = 5_000_000;

/// Fetches large payloads, one after the other, and keeps none.
async fn hauler(ctx: Ctx, loads: u32) -> Result<usize> {
    let mut bytes = 0;
    for number in 0..loads {
        bytes += ctx.task::<String>("load", &number).await?.len();
    }
    ctx.signal("end").recv::<()>().await?;
    Ok(bytes)
}

fn with_loads(url: &str) -> Builder {
    let load = |number: u32| std::future::ready(Ok::<_, Failure>(number.to_string().repeat(LOAD)[..LOAD].to_owned()));
    Onward::connect(url).workflow("hauler", hauler).task("load", load).threads(1)
}

/// Starts a server over a directory, in this process.
async fn server(directory: &Path) -> String {
    let store = Arc::new(EmbeddedStore::open(directory, Default::default()).unwrap());
    let runtime = Runtime::new(store, Arc::new(SystemClock), Default::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let _background = runtime.spawn();
        let server = Server::new(runtime, onward_server::Options::default());
        let clients = router_with(server.clone(), grpc(&server));
        serve(&server, listener, clients, std::future::pending()).await;
    });
    url
}

/// The processes of the test below, so that its memory is measured without other tests: the first one creates the log, the second
/// one replays it.
#[test]
fn the_hauler_itself() {
    let (Ok(part), Ok(directory)) = (std::env::var("HAULER_PART"), std::env::var("HAULER_DIRECTORY")) else { return };
    runtime().block_on(async {
        let worker = with_loads(&server(Path::new(&directory)).await).start().await.unwrap();
        if part == "first" {
            let run = worker.start::<usize, _>("hauler", &LOADS).id("r").await.unwrap();
            let is_there = |view: &RunView| view.awaiting.iter().any(|awaited| awaited.kind == onward::AwaitedKind::Signal);
            tokio::time::timeout(DEADLINE, run.until(is_there)).await.expect("all is there").unwrap();
        } else {
            let before = status("VmRSS");
            let run = worker.run::<usize>("r").unwrap();
            run.signal("end", &()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), LOAD * LOADS as usize);
            let taken = peak().saturating_sub(before);
            println!("{} kB for a log of {} MB", taken / 1_000, mb(LOAD as u64 * u64::from(LOADS)));
            assert!(taken < 3 * LOAD as u64 * u64::from(LOADS), "{} MB", mb(taken));
        }
    });
}

/// Scenario 55: another worker replays a log with payloads of five megabytes. It reads the log a few records at a time: worker
/// and server together need less than three times as much.
#[test]
fn large_payloads_are_replayed_over_a_server_in_less_than_three_times_their_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    for part in ["first", "second"] {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process
            .args(["the_hauler_itself", "--exact", "--nocapture"])
            .env("HAULER_PART", part)
            .env("HAULER_DIRECTORY", directory.path());
        assert!(process.status().unwrap().success(), "the {part} part");
    }
}
