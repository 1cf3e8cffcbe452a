//! L18, rule 11: the same start is the same run, and a signal sent with it is never lost.

use onward_core::run::NewRun;
use onward_core::{Index, Namespace, RunId, RunKey, Status};

use super::block_on;
use super::harness::{Harness, by_log, decision, json, key, name, new_run, new_run_of, refused, seconds, signal, worker};

pub async fn the_same_start_twice_is_one_run(mut harness: Harness) {
    let with = |text: &str| {
        let mut run = new_run("r");
        run.started.input = json(text);
        run
    };
    let first = harness.store().start_run(with(r#"{"a":1,"b":2}"#), None).await.unwrap();
    assert!(first.created);
    harness.pass(seconds(1));
    harness.reopen();
    // Another spelling of the same input and another seed: still the same run.
    let mut again = with(r#"{ "b": 2, "a": 1 }"#);
    again.started.seed = 99;
    let again = harness.store().start_run(again, None).await.unwrap();
    assert_eq!((again.created, by_log(again.head)), (false, by_log(first.head)));
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn a_closed_run_is_found_again(mut harness: Harness) {
    harness.complete("r").await;
    harness.reopen();
    let again = harness.start("r").await;
    assert_eq!((again.created, again.head.status), (false, Status::Completed));
    // The same holds after it continued as new: its first input counts.
    let held = harness.start_held("s").await;
    let mut commit = held.commit(vec![onward_core::event::RunContinued { input: json("2"), checkpoint: None }.into()]);
    commit.end_over_unread = true;
    harness.store().commit(commit).await.unwrap();
    harness.reopen();
    let again = harness.start("s").await;
    assert_eq!((again.created, again.head.generation), (false, 1));
    let mut other = new_run("s");
    other.started.input = json("2");
    refused(harness.store().start_run(other, None).await, "run_exists");
}

pub async fn the_same_id_with_another_start_is_refused(harness: Harness) {
    harness.start("r").await;
    let mut other_input = new_run("r");
    other_input.started.input = json("2");
    refused(harness.store().start_run(other_input, None).await, "run_exists");
    refused(harness.store().start_run(new_run_of("parcel", "r"), None).await, "run_exists");
    let with_signal = NewRun { signal: Some(signal(None).into()), ..new_run_of("parcel", "r") };
    refused(harness.store().start_run(with_signal, None).await, "run_exists");
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn concurrent_starts_make_one_run(harness: Harness) {
    let starters: Vec<_> = (0..4)
        .map(|_| {
            let store = harness.store();
            std::thread::spawn(move || {
                let run = NewRun { signal: Some(signal(Some("s")).into()), ..new_run("r") };
                block_on(store.start_run(run, None)).unwrap()
            })
        })
        .collect();
    let started: Vec<_> = starters.into_iter().map(|starter| starter.join().unwrap()).collect();
    assert_eq!(started.iter().filter(|started| started.created).count(), 1);
    assert!(started.iter().all(|started| started.signal.unwrap().index == Index(1)));
    assert_eq!(harness.log("r").await, ["run_started", "signal_received"]);
}

pub async fn a_signal_with_start_comes_right_behind_it(mut harness: Harness) {
    let with_signal = |id: &str| NewRun { signal: Some(signal(Some(id)).into()), ..new_run("r") };
    let first = harness.store().start_run(with_signal("a"), None).await.unwrap();
    assert_eq!((first.signal.unwrap().index, first.head.next_index), (Index(1), Index(2)));
    harness.reopen();
    let again = harness.store().start_run(with_signal("a"), None).await.unwrap();
    assert_eq!((again.created, again.signal.unwrap().repeated), (false, true));
    let other = harness.store().start_run(with_signal("b"), None).await.unwrap();
    assert_eq!((other.created, other.signal.unwrap().index), (false, Index(2)));
    assert_eq!(harness.log("r").await, ["run_started", "signal_received", "signal_received"]);

    harness.complete("s").await;
    let late = NewRun { signal: Some(signal(None).into()), ..new_run("s") };
    refused(harness.store().start_run(late, None).await, "run_closed");
}

pub async fn a_refused_signal_refuses_the_start(mut harness: Harness) {
    let run = NewRun { signal: Some(decision(0, 0, "anna").into()), ..new_run("r") };
    refused(harness.store().start_run(run, Some(worker("w"))).await, "wait_not_found");
    harness.reopen();
    assert_eq!(harness.store().read_run(key("r"), None).await.unwrap(), None);
    assert_eq!(harness.claim("w").await, []);
}

pub async fn a_claim_with_start_leases_a_new_run_only(harness: Harness) {
    let first = harness.store().start_run(new_run("r"), Some(worker("w"))).await.unwrap();
    let claimed = first.claimed.unwrap();
    assert_eq!(claimed.head, first.head);
    assert_eq!(harness.claim("v").await, []);
    harness.store().release_run(key("r"), claimed.head.epoch).await.unwrap();
    let again = harness.store().start_run(new_run("r"), Some(worker("w"))).await.unwrap();
    assert_eq!((again.created, again.claimed), (false, None));
    harness.claim_one("v").await;
}

pub async fn namespaces_do_not_see_each_other(harness: Harness) {
    harness.start("r").await;
    let elsewhere = RunKey::new(Namespace::new("other").unwrap(), RunId::new("r").unwrap());
    let mut run = NewRun { key: elsewhere.clone(), ..new_run("r") };
    run.started.kind = name("parcel");
    assert!(harness.store().start_run(run, None).await.unwrap().created);
    let listed = harness.store().list_runs(Default::default()).await.unwrap();
    assert_eq!(listed.runs.len(), 1);
    harness.append("r", signal(Some("a"))).await.unwrap();
    assert!(!harness.store().append_input(elsewhere, signal(Some("a"))).await.unwrap().repeated);
}
