//! A store that other processes write to: their changes arrive with notifications and without them (B4).

use onward_core::event::SignalReceived;
use onward_core::run::Input;
use onward_core::{Index, Payload};
use onward_runtime::{Emitted, WorkerConnection};
use onward_store::{Change, Store};
use tokio::time::Instant;

use crate::faulty::When;
use crate::kit::*;

/// Appends a signal to a run from another process.
fn signal_elsewhere(kit: &Harness, id: &str) {
    let signal = SignalReceived { name: name("x"), payload: Payload::null(), signal_id: None, sender: None };
    now(kit.store.memory.append_input(key(id), Input::signal(signal))).unwrap();
}

fn hint(kit: &Harness, id: &str, ends: bool) {
    kit.store.hint(&Change::Elsewhere { run: key(id), ends });
}

fn shared() -> Harness {
    let kit = Harness::new();
    kit.store.share();
    kit
}

async fn until_received(diary: &Diary, indexes: &[u64]) {
    while diary.indexes() != indexes {
        assert!(diary.indexes().len() < indexes.len(), "{:?}", diary.indexes());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_from_elsewhere_reaches_the_worker_when_every_hint_is_lost() {
    let kit = shared();
    let background = kit.runtime.spawn();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    let begun = Instant::now();
    for indexes in [&[1][..], &[1, 2]] {
        signal_elsewhere(&kit, "r");
        until_received(&diary, indexes).await;
    }
    assert!(begun.elapsed() <= seconds(2) + std::time::Duration::from_millis(10), "{:?}", begun.elapsed());
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_fetches_what_is_new_of_that_run_at_once() {
    let kit = shared();
    let background = kit.runtime.spawn();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    let begun = Instant::now();
    signal_elsewhere(&kit, "r");
    hint(&kit, "r", false);
    hint(&kit, "somebody else's", false);
    until_received(&diary, &[1]).await;
    assert!(begun.elapsed() < std::time::Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(kit.store.calls("read_since"), 1, "the other run is not held here");
    background.stop().await;
}

/// Changes of this process are notified by the store, changes of others are read: the two may come in any order.
#[tokio::test(start_paused = true)]
async fn what_was_written_elsewhere_before_is_not_passed_over() {
    let kit = shared();
    let background = kit.runtime.spawn();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    signal_elsewhere(&kit, "r");
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    let head = kit.head("r").await;
    let own = kit.runtime.read_log(&key("r"), None, Index(2), 1).await.unwrap();
    kit.store.hint(&Change::Appended { head, record: own[0].clone() });
    assert_eq!(diary.indexes(), [2]);
    hint(&kit, "r", false);
    until_received(&diary, &[2, 1, 2]).await; // an input may come again
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_about_a_run_whose_claim_is_under_way_is_kept() {
    let kit = shared();
    let background = kit.runtime.spawn();
    kit.start("r").await;
    let gate = kit.store.stall_once("claim_runs", When::After);
    let worker = kit.worker("w");
    let (held, ()) = tokio::join!(kit.next_held(&worker), async {
        while kit.store.calls("claim_runs") == 0 {
            tokio::task::yield_now().await;
        }
        signal_elsewhere(&kit, "r");
        hint(&kit, "r", false);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        gate.notify_one();
    });
    let begun = Instant::now();
    let diary = open_diary(&worker, &held);
    until_received(&diary, &[1]).await;
    assert!(begun.elapsed() < std::time::Duration::from_millis(50), "{:?}", begun.elapsed());
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_claimed_elsewhere_is_lost() {
    let kit = shared();
    let background = kit.runtime.spawn();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    let other = profile("elsewhere", 1);
    kit.store.memory.release_run(key("r"), held.epoch).await.unwrap();
    assert!(kit.store.memory.claim_run(key("r"), other.id, None).await.unwrap().claimed.is_some());
    signal_elsewhere(&kit, "r");
    while diary.lost() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(diary.indexes(), [] as [u64; 0]);
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_is_woken_by_the_end_and_by_nothing_else() {
    let kit = shared();
    kit.start("r").await;
    let waits = tokio::spawn({
        let runtime = kit.runtime.clone();
        async move { runtime.wait_for_outcome(&key("r")).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let looks = kit.store.calls("read_run");
    let begun = Instant::now();
    signal_elsewhere(&kit, "r");
    hint(&kit, "r", false);
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert_eq!(kit.store.calls("read_run"), looks);
    kit.runtime.terminate_run(&key("r"), "").await.unwrap();
    hint(&kit, "r", true);
    assert_eq!(waits.await.unwrap().unwrap().unwrap_err().code, "terminated");
    assert!(begun.elapsed() < std::time::Duration::from_millis(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_elsewhere_wakes_the_workers_of_its_namespace() {
    let kit = shared();
    let worker = kit.worker("w");
    let begun = Instant::now();
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        kit.start("r").await;
        kit.store.hint(&Change::WorkElsewhere { namespace: key("r").namespace });
    };
    let (runs, ()) = tokio::join!(worker.next_runs(1), late);
    assert_eq!(runs.len(), 1);
    assert!(begun.elapsed() < std::time::Duration::from_millis(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_by_a_worker_of_another_process() {
    let kit = shared();
    let (caller, others) = (kit.other_runtime(), kit.other_runtime());
    let backgrounds = [kit.runtime.spawn(), caller.spawn(), others.spawn()];
    let worker = kit.worker("w");
    kit.start("r").await;
    let answers = async {
        let question = worker.next_questions().await.pop().unwrap();
        assert_eq!((question.run.clone(), question.name.as_str()), (key("r"), "stage"));
        question.answer.send(Some(Ok(Payload::from_json_text("\"paid\"".to_owned())))).unwrap();
        worker.next_questions().await.pop().unwrap().answer.send(None).unwrap();
    };
    let queries = async {
        let run = key("r");
        let query = || caller.query_run(&run, name("stage"), Payload::null());
        (query().await.unwrap(), query().await.unwrap())
    };
    let ((), (paid, unknown)) = tokio::join!(answers, queries);
    assert_eq!((paid, unknown), (Some(Ok(Payload::from_json_text("\"paid\"".to_owned()))), None));
    for background in backgrounds {
        background.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_no_server_can_answer_fails_soon() {
    let kit = shared();
    let other = kit.other_runtime();
    let backgrounds = [kit.runtime.spawn(), other.spawn()];
    kit.start("r").await;
    let begun = Instant::now();
    let answer = kit.runtime.query_run(&key("r"), name("stage"), Payload::null()).await;
    assert_eq!(answer.unwrap_err().code(), "no_compatible_worker");
    assert!(begun.elapsed() <= seconds(4), "{:?}", begun.elapsed());
    for background in backgrounds {
        background.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn emitted_values_are_received_in_another_process() {
    let kit = shared();
    let other = kit.other_runtime();
    let backgrounds = [kit.runtime.spawn(), other.spawn()];
    let worker = kit.worker("w");
    kit.start("r").await;
    let emit = |value: u64| {
        let value = Payload::from_json_text(value.to_string());
        WorkerConnection::emit(&worker, &key("r"), Emitted::new("progress", value));
    };
    emit(0); // no listener yet
    let mut emitted_values = other.listen(&key("r"));
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let letters = kit.store.calls("broadcast");
    for value in 1..=3 {
        emit(value);
    }
    for value in 1..=3u64 {
        let emitted = emitted_values.recv().await.unwrap();
        assert_eq!((emitted.name.as_str(), emitted.value), ("progress", Payload::from_json_text(value.to_string())));
    }
    assert_eq!(kit.store.calls("broadcast"), letters + 1, "what comes together goes together");
    drop(emitted_values);
    tokio::time::sleep(seconds(16)).await;
    let letters = kit.store.calls("broadcast");
    emit(4);
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(kit.store.calls("broadcast"), letters, "no listener is left");
    for background in backgrounds {
        background.stop().await;
    }
}
