//! Updates: a change from outside with a recorded result.

use onward_core::event::{UpdateAnswered, UpdateReceived};
use onward_core::{Event, Failure, Index};

use crate::kit::*;

fn answer(id: &str) -> Event {
    UpdateAnswered { update_id: id.to_owned(), result: Ok(text("done")) }.into()
}

async fn update(kit: &Harness, id: &str) -> Result<Result<onward_core::Payload, Failure>, onward_runtime::RuntimeError> {
    kit.runtime.update_run(&key("r"), id, name("address"), text("new")).await
}

#[tokio::test(start_paused = true)]
async fn an_update_returns_what_the_run_answered() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let answered = async {
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![awaited(0, "x")]).await;
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![answer("other"), answer("u1")]).await;
    };
    let (got, ()) = tokio::join!(update(&kit, "u1"), answered);
    assert_eq!(got.unwrap(), Ok(text("done")));
    assert_eq!(update(&kit, "u1").await.unwrap(), Ok(text("done")), "the same id gets the same answer");
    assert_eq!(kit.log("r").await.iter().filter(|name| **name == "update_received").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_the_run_did_not_live_to_answer_is_unanswered() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let ended = async {
        tokio::task::yield_now().await;
        kit.complete(&mut held).await;
    };
    let (got, ()) = tokio::join!(update(&kit, "u1"), ended);
    refused(got, "update_unanswered");
    refused(update(&kit, "u1").await, "update_unanswered");
    refused(update(&kit, "u2").await, "run_closed");
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_continued_without_the_update_will_not_answer() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let went_on = async {
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![continued()]).await;
    };
    let (got, ()) = tokio::join!(update(&kit, "u1"), went_on);
    refused(got, "update_unanswered");
}

#[tokio::test(start_paused = true)]
async fn an_update_that_went_along_is_answered_by_the_generation_that_has_it_then() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let u1 = UpdateReceived { update_id: "u1".to_owned(), name: name("address"), payload: text("new") };
    let went_on = async {
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let mut commit = held.draft(Index(kit.head("r").await.next_index.0 - 1), vec![continued()]);
            commit.carries.updates = vec![u1.clone()];
            kit.runtime.store().commit(commit).await.unwrap();
            held = HeldRun::of(&worker.next_runs(1).await.remove(0));
        }
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![answer("u1")]).await;
    };
    let (got, ()) = tokio::join!(update(&kit, "u1"), went_on);
    assert_eq!(got.unwrap(), Ok(text("done")));
    assert_eq!(update(&kit, "u1").await.unwrap(), Ok(text("done")), "the same id gets the same answer");
    assert_eq!(kit.log("r").await, ["run_started", "update_answered"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_an_earlier_generation_is_found_again() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let answered = async {
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![answer("u1"), continued()]).await;
    };
    let (got, ()) = tokio::join!(update(&kit, "u1"), answered);
    assert_eq!(got.unwrap(), Ok(text("done")));
    assert_eq!(update(&kit, "u1").await.unwrap(), Ok(text("done")));
    assert_eq!(kit.log("r").await, ["run_started"]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_update_waits_and_an_unknown_run_is_not_found() {
    let kit = Harness::new();
    kit.start("r").await;
    assert!(waits(update(&kit, "u1")).await);
    refused(kit.runtime.update_run(&key("nobody"), "u1", name("x"), text("")).await, "run_not_found");
}
