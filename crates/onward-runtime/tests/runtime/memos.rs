//! Memos: requests, answers and returns are delivered once each, wherever the dispatcher is interrupted.

use onward_core::api::InvalidateMemosRequest;
use onward_core::event::{MemoAnswered, MemoRequested, MemoStored};
use onward_core::memo::{MemoCallType, MemoCell, MemoScope};
use onward_core::{Event, RunKey, Status};
use onward_store::{Delete, RunQuery, Store};

use crate::faulty::{Happening, When};
use crate::kit::*;

/// Crash points of the dispatcher: before or after each of its calls to the store.
const STRIKES: [&str; 7] =
    ["deliveries", "start_run", "append_input", "finish_deliveries", "read_run", "read_log", "delete_runs"];

fn requested() -> Event {
    let (of_type, name, scope, key) = (MemoCallType::Task, name("mail"), MemoScope::Namespace, "k".to_owned());
    MemoRequested { call_id: at(0), of_type, name, scope, key, ttl_ms: 60_000, is_derived: false, sealed_key: None }.into()
}

fn stored(value: &str) -> Event {
    MemoStored { call_id: at(0), cell: cell().id, output: text(value) }.into()
}

fn cell() -> RunKey {
    let id = MemoCell { scope: MemoScope::Namespace, key: "k".to_owned(), tree: None }.id();
    RunKey::new(key("a").namespace, id)
}

/// Starts a run that requests the memo.
async fn ask(kit: &Harness, id: &str) -> HeldRun {
    let worker = kit.worker(id);
    let mut held = kit.start_held(&worker, id).await;
    kit.commit(&mut held, vec![requested()]).await;
    held
}

/// Returns the answer that the run has: the text of a hit with its origin, or an ownership.
async fn answer(kit: &Harness, id: &str) -> Option<Result<(String, String), ()>> {
    let records = kit.runtime.read_log(&key(id), None, onward_core::Index(0), usize::MAX).await.unwrap();
    let mut answers = records.iter().flat_map(|record| &record.events).filter_map(|event| match event {
        Event::MemoAnswered(MemoAnswered { hit: Some(hit), .. }) => Some(Ok((hit.output.read().unwrap(), hit.from.to_string()))),
        Event::MemoAnswered(_) => Some(Err(())),
        _ => None,
    });
    let first = answers.next();
    assert!(answers.next().is_none(), "MM3: one answer");
    first
}

fn hit(value: &str, from: &str) -> Option<Result<(String, String), ()>> {
    Some(Ok((value.to_owned(), from.to_owned())))
}

/// `a` computes while `b` waits; `a` ends with a value, or without one, and then `b` computes; `c` and `d` come later. Calls
/// `strike` before each time that messages are delivered.
async fn play(kit: &Harness, owner_ends: bool, strike: impl Fn(usize)) {
    let settle = async |number| {
        strike(number);
        kit.settle().await;
        kit.store.clear();
    };
    let mut a = ask(kit, "a").await;
    settle(0).await;
    assert_eq!(answer(kit, "a").await, Some(Err(())));
    let mut b = ask(kit, "b").await;
    settle(1).await;
    assert_eq!(answer(kit, "b").await, None);
    if owner_ends {
        kit.runtime.terminate_run(&key("a"), "").await.unwrap();
        settle(2).await;
        assert_eq!(answer(kit, "b").await, Some(Err(())), "MM2");
        kit.commit(&mut b, vec![stored("of b")]).await;
    } else {
        kit.commit(&mut a, vec![stored("of a")]).await;
        settle(2).await;
        assert_eq!(answer(kit, "b").await, hit("of a", "a"));
    }
    settle(3).await;
    ask(kit, "c").await;
    settle(4).await;
    assert_eq!(answer(kit, "c").await, if owner_ends { hit("of b", "b") } else { hit("of a", "a") });
    kit.advance(seconds(60));
    ask(kit, "d").await;
    settle(5).await;
    assert_eq!(answer(kit, "d").await, Some(Err(())), "the value has expired");
}

#[tokio::test(start_paused = true)]
async fn a_memo_is_computed_once_wherever_the_dispatcher_is_interrupted() {
    for owner_ends in [false, true] {
        for operation in STRIKES {
            for (when, at) in (0..6).flat_map(|at| [(When::Before, at), (When::After, at)]) {
                let kit = Harness::new();
                let strike = |now| {
                    if now == at {
                        kit.store.fail_once(operation, when);
                    }
                };
                play(&kit, owner_ends, strike).await;
                for id in ["a", "b", "c"] {
                    assert_eq!(kit.head(id).await.memos, [], "{operation} {when:?} {at}: MM2");
                }
            }
        }
    }
}

/// The cell is another one when the dispatcher has read its head.
#[tokio::test(start_paused = true)]
async fn a_cell_that_is_deleted_while_it_is_read_is_started_again() {
    let kit = Harness::new();
    let mut a = ask(&kit, "a").await;
    kit.settle().await;
    kit.commit(&mut a, vec![stored("of a")]).await;
    kit.settle().await;
    ask(&kit, "b").await;
    let delete = |memory: &onward_store::MemoryStore| {
        let delete = Delete::Run { key: cell(), reason: String::new() };
        onward_store::unit_of_work::block_on_ready(memory.delete_runs(delete)).unwrap();
    };
    kit.store.once("read_log", When::Before, Happening::Do(Box::new(delete)));
    kit.settle().await;
    assert_eq!(answer(&kit, "b").await, Some(Err(())));
}

/// A waiting call has the value, however late its request is delivered; nothing waits for the cell that it would renew.
#[tokio::test(start_paused = true)]
async fn a_value_that_expires_before_its_delivery_answers_those_who_waited() {
    let kit = Harness::new();
    let mut a = ask(&kit, "a").await;
    ask(&kit, "b").await;
    kit.settle().await;
    kit.commit(&mut a, vec![stored("of a")]).await;
    let carried = async || {
        let messages = kit.store.memory.outbox_messages(10).await.unwrap();
        assert_eq!(messages.len(), 1, "{messages:?}");
    };
    carried().await;
    kit.store.fail_once("read_run", When::Before);
    kit.runtime.tick().await;
    kit.advance(seconds(3_600));
    kit.settle().await;
    assert_eq!(answer(&kit, "b").await, hit("of a", "a"));
}

/// MM4, and the request is executed also while answers are on their way.
#[tokio::test(start_paused = true)]
async fn an_invalidation_does_not_wait_for_a_tick() {
    let kit = Harness::new();
    let mut a = ask(&kit, "a").await;
    ask(&kit, "b").await;
    kit.settle().await;
    kit.commit(&mut a, vec![stored("of a")]).await;
    let (namespace, key_) = (key("a").namespace, "k".to_owned());
    let request = InvalidateMemosRequest { namespace, key: key_, is_prefix: false, run: None };
    assert_eq!(kit.runtime.invalidate_memos(request.clone()).await.unwrap().invalidated, 1);
    kit.settle().await;
    ask(&kit, "c").await;
    kit.settle().await;
    assert_eq!(
        (answer(&kit, "b").await, answer(&kit, "c").await),
        (Some(Err(())), None),
        "the value of `a` is not used any more"
    );
    let cells = RunQuery { internal: Some(onward_core::internal::InternalRuns::Memos), ..RunQuery::default() };
    assert_eq!(kit.store.list_runs(cells).await.unwrap().runs.len(), 1);
    assert_eq!(kit.store.read_run(cell(), None).await.unwrap().unwrap().status, Status::Waiting);
}
