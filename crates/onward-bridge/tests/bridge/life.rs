//! The life of a bridge: crashes, evictions, shutdowns, late answers, and many runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use onward_bridge::{Bridge, Called, ErrorKind, HandBack, Work};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::shell::{Ctx, Programs, Ran};
use crate::{directory, memory};

const STEPS: usize = 10;

fn ten_steps() -> Programs {
    Programs::default().with("steps", async |ctx: Ctx, _| {
        let mut sum = 0;
        for step in 0..STEPS as u64 {
            sum += ctx.step("add", move || Ok(json!(step))).await?.as_u64().unwrap();
        }
        Ok(json!(sum))
    })
}

/// Runs so many runs, with 512 at a time.
fn run_many(host: &crate::shell::Host, round: usize, count: usize) {
    let mut open = std::collections::VecDeque::new();
    for number in 0..count {
        let id = format!("r-{round}-{number}");
        open.push_back(host.begin("run", json!({"kind": "steps", "id": id})));
        if open.len() == 512 {
            assert_eq!(open.pop_front().unwrap()(), Ok(json!(45)));
        }
    }
    open.into_iter().for_each(|result| assert_eq!(result(), Ok(json!(45))));
}

#[test]
fn five_hundred_runs_run_together_and_leave_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let mut settings = directory(&folder);
    settings["check_replay"] = "off".into();
    let host = ten_steps().start(settings);
    let rounds = std::env::var("ONWARD_BRIDGE_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let began = Instant::now();
        run_many(&host, round, 512);
        let rate = (512 * STEPS) as f64 / began.elapsed().as_secs_f64();
        println!("{rate:.0} steps/s, {:?}", host.bridge.stats());
    }
    let mut stats = host.bridge.stats();
    while stats.runs > 0 || stats.queued > 0 {
        std::thread::yield_now();
        stats = host.bridge.stats();
    }
    assert_eq!((stats.runs, stats.jobs, stats.queued), (0, 0, 0), "{stats:?}");
    host.stop();
}

#[test]
fn evicted_runs_are_closed_and_resume_from_their_logs() {
    let folder = TempDir::new().unwrap();
    let mut settings = directory(&folder);
    settings["cached_runs_max"] = 1.into();
    let steps = Arc::new(AtomicU32::new(0));
    let counted = steps.clone();
    let programs = Programs::default().with("wait", move |ctx: Ctx, _| {
        let counted = counted.clone();
        async move {
            ctx.step("once", move || Ok(json!(counted.fetch_add(1, Ordering::SeqCst)))).await?;
            ctx.wait("recv", json!({"signal": "go"})).await
        }
    });
    let host = programs.start(settings);
    for run in 0..8 {
        host.start("wait", &format!("r-{run}"), Value::Null);
        host.until(&format!("r-{run}"), "waiting");
    }
    let closed = || host.seen.lock().unwrap().iter().filter(|seen| seen.starts_with("close")).count();
    while closed() < 7 {
        std::thread::yield_now();
    }
    for run in 0..8 {
        let id = format!("r-{run}");
        host.request("signal", json!({"run": id, "name": "go", "value": run})).unwrap();
        assert_eq!(host.result(&id), Ok(json!(run)));
    }
    assert_eq!(steps.load(Ordering::SeqCst), 8, "recorded steps do not run again");
    host.stop();
}

/// Returns settings for a directory and one kind, without the replays of checks.
fn one_kind(folder: &TempDir) -> String {
    let mut settings = directory(folder);
    (settings["kinds"], settings["check_replay"]) = (json!([{"kind": "k"}]), "off".into());
    settings.to_string()
}

/// Takes work until `wanted` returns something.
fn take_until<T>(bridge: &Bridge, mut wanted: impl FnMut(Work) -> Option<T>) -> T {
    loop {
        let work = bridge.take(1, Duration::from_secs(60));
        assert!(!work.is_empty(), "the bridge has work");
        if let Some(found) = work.into_iter().find_map(&mut wanted) {
            return found;
        }
    }
}

fn start_of(work: Work) -> Option<u64> {
    if let Work::Start { run, .. } = work { Some(run) } else { None }
}

#[test]
fn what_comes_after_a_close_is_ignored() {
    let folder = TempDir::new().unwrap();
    let bridge = Bridge::start(&one_kind(&folder)).unwrap();
    bridge.request("start", r#"{"kind":"k","id":"r"}"#);
    let run = take_until(&bridge, start_of);
    let Ok(Called::Step(job)) = bridge.call(run, "step", r#"{"name":"s"}"#) else { panic!("the step starts") };
    bridge.hand_back([HandBack { run, ..HandBack::default() }]);
    bridge.shut_down(Duration::from_millis(10));
    let mut canceled = false;
    take_until(&bridge, |work| {
        canceled |= work == Work::Cancel { job: job.job };
        (work == Work::Close { run }).then_some(())
    });
    assert!(canceled, "the function of the step is canceled before the code is closed");
    assert_eq!(bridge.call(run, "uuid", "").unwrap_err().kind, ErrorKind::Stopped);
    bridge.finish(job.job, Ok("1".to_owned()));
    bridge.hand_back([HandBack { run, finished: vec![(job.job, Ok("1".to_owned()))], end: Some(Ok("2".to_owned())) }]);
    take_until(&bridge, |work| (work == Work::Ended).then_some(()));
    let again = Bridge::start(&one_kind(&folder)).unwrap();
    let run = take_until(&again, start_of);
    let Ok(Called::Step(job)) = again.call(run, "step", r#"{"name":"s"}"#) else { panic!("the step has no result yet") };
    assert_eq!(job.attempt, 1);
    again.hand_back([HandBack { run, ..HandBack::default() }]);
}

#[test]
fn the_code_of_a_terminated_run_is_closed() {
    let bridge = Bridge::start(r#"{"store":"memory:","kinds":[{"kind":"k"}]}"#).unwrap();
    bridge.request("start", r#"{"kind":"k","id":"r"}"#);
    let run = take_until(&bridge, start_of);
    bridge.call(run, "recv", r#"{"signal":"go"}"#).unwrap();
    bridge.hand_back([HandBack { run, ..HandBack::default() }]);
    bridge.request("wait", r#"{"run":"r","status":["waiting"]}"#);
    bridge.request("terminate", r#"{"run":"r"}"#);
    take_until(&bridge, |work| (work == Work::Close { run }).then_some(()));
}

#[test]
fn a_shutdown_waits_for_activations_and_ends_requests() {
    let folder = TempDir::new().unwrap();
    let bridge = Bridge::start(&one_kind(&folder)).unwrap();
    bridge.request("start", r#"{"kind":"k","id":"r"}"#);
    let run = take_until(&bridge, start_of);
    let waiting = bridge.request("result", r#"{"run":"r"}"#);
    bridge.shut_down(Duration::from_secs(60));
    let refused = take_until(&bridge, |work| match work {
        Work::Reply { request, result } if request == waiting => Some(result.unwrap_err()),
        _ => None,
    });
    assert!(refused.contains("shut_down"), "{refused}");
    // The activation is still out, and its step is recorded.
    let Ok(Called::Step(job)) = bridge.call(run, "step", r#"{"name":"s"}"#) else { panic!("the step starts") };
    bridge.hand_back([HandBack { run, finished: vec![(job.job, Ok("1".to_owned()))], end: None }]);
    let mut was_closed = false;
    take_until(&bridge, |work| match work {
        Work::Answer { run, .. } => {
            bridge.call(run, "recv", r#"{"signal":"go"}"#).unwrap();
            bridge.hand_back([HandBack { run, ..HandBack::default() }]);
            None
        }
        Work::Close { .. } => {
            was_closed = true;
            None
        }
        Work::Ended => Some(()),
        _ => None,
    });
    assert!(was_closed, "all code is closed before the end");
    assert!(bridge.take(1, Duration::ZERO).is_empty());
    bridge.request("view", r#"{"run":"r"}"#);
    assert!(bridge.take(1, Duration::ZERO).is_empty(), "nothing follows the end");
    // The directory is free, although the first bridge still exists.
    let again = Bridge::start(&one_kind(&folder)).unwrap();
    again.request("signal", r#"{"run":"r","name":"go"}"#);
    let run = take_until(&again, start_of);
    let Ok(Called::Waits { call, .. }) = again.call(run, "step", r#"{"name":"s"}"#) else { panic!("the step is recorded") };
    again.hand_back([HandBack { run, ..HandBack::default() }]);
    let answer =
        take_until(&again, |work| if let Work::Answer { call, result, .. } = work { Some((call, result)) } else { None });
    assert_eq!(answer, (call, Ok("1".to_owned())));
}

#[test]
fn a_shutdown_does_not_wait_longer_than_its_timeout_for_a_shell() {
    let bridge = Bridge::start(r#"{"store":"memory:","kinds":[{"kind":"k"}]}"#).unwrap();
    bridge.request("start", r#"{"kind":"k","id":"r"}"#);
    let run = take_until(&bridge, start_of);
    bridge.shut_down(Duration::from_millis(10));
    take_until(&bridge, |work| (work == Work::Close { run }).then_some(()));
    take_until(&bridge, |work| (work == Work::Ended).then_some(()));
}

#[test]
fn a_dropped_bridge_frees_its_directory_while_activations_are_out() {
    let folder = TempDir::new().unwrap();
    for round in 0..3 {
        let bridge = Bridge::start(&one_kind(&folder)).unwrap();
        let twice = Bridge::start(&one_kind(&folder)).map(drop).unwrap_err();
        assert!(twice.text.contains("\"hint\""), "{twice}");
        if round == 0 {
            bridge.request("start", r#"{"kind":"k","id":"r"}"#);
        }
        take_until(&bridge, start_of);
        drop(bridge);
    }
}

#[test]
fn the_shell_is_woken_once_until_it_has_taken_everything() {
    let bridge = Bridge::start(&memory().to_string()).unwrap();
    let (woken, wakes) = mpsc::channel();
    bridge.set_wake(move || woken.send(()).unwrap());
    assert!(wakes.try_recv().is_err(), "there is no work");
    for _ in 0..3 {
        bridge.request("list_runs", "{}");
    }
    wakes.recv_timeout(Duration::from_secs(60)).unwrap();
    while bridge.stats().queued < 3 {
        std::thread::yield_now();
    }
    assert!(wakes.try_recv().is_err(), "one wake is enough");
    assert_eq!(bridge.take(2, Duration::ZERO).len(), 2);
    bridge.request("list_runs", "{}");
    while bridge.stats().queued < 2 {
        std::thread::yield_now();
    }
    assert!(wakes.try_recv().is_err(), "the shell takes until there is less than it wants");
    assert_eq!(bridge.take(16, Duration::ZERO).len(), 2);
    bridge.request("list_runs", "{}");
    wakes.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn an_abandoned_request_sends_nothing() {
    let host =
        Programs::default().with("wait", async |ctx: Ctx, _| ctx.wait("recv", json!({"signal": "go"})).await).start(memory());
    host.start("wait", "w", Value::Null);
    let request = host.bridge.request("result", r#"{"run":"w"}"#);
    host.bridge.abandon(request);
    assert_eq!(host.bridge.stats().requests, 0);
    host.request("signal", json!({"run": "w", "name": "go"})).unwrap();
    assert_eq!(host.result("w"), Ok(Value::Null));
    host.stop();
}

#[test]
fn a_slow_function_does_not_hold_up_the_run() {
    let (started, jobs) = mpsc::channel();
    let programs = Programs::default().with("both", move |ctx: Ctx, _| {
        let started = started.clone();
        async move {
            let slow = ctx.step_with(json!({"name": "slow"}), move |job| {
                started.send(job.job).unwrap();
                Ran::Later
            });
            let signal = ctx.wait("recv", json!({"signal": "go"})).await?;
            Ok(json!([signal, slow.await?]))
        }
    });
    let host = programs.start(memory());
    host.start("both", "b", Value::Null);
    let job = jobs.recv_timeout(Duration::from_secs(60)).unwrap();
    host.request("signal", json!({"run": "b", "name": "go", "value": 1})).unwrap();
    host.bridge.finish(job, Ok("2".to_owned()));
    assert_eq!(host.result("b"), Ok(json!([1, 2])));
    host.stop();
}
