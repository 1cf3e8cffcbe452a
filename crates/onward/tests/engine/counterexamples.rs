//! The counterexamples that need more than one writer: repeated answers, answers among other inputs, clocks that disagree.

use std::sync::Arc;
use std::time::Duration;

use onward::prelude::*;
use onward::{Decide, RunHandle};
use onward_core::view::AwaitedKind;
use onward_store::Clock;

use crate::site::{Site, awaited, events, until_logged};

/// Asks the same question twice, one after the other.
async fn ask_twice(ctx: Ctx, _: ()) -> Result<(Option<String>, Option<String>)> {
    let first = ctx.approval("ship", "Ship?").await?;
    let second = ctx.approval("ship", "Ship?").await?;
    Ok((first.decided_by, second.decided_by))
}

fn decide(who: &str, decision_id: &str) -> Decide {
    Decide { approved: true, feedback: None, decided_by: Some(who.to_owned()), answer: None, decision_id: decision_id.to_owned() }
}

async fn ce10(site: Site) {
    let onward = site.builder().await.workflow("ask", ask_twice).start().await.unwrap();
    let run: RunHandle<(Option<String>, Option<String>)> = onward.start("ask", &()).id("asked").await.unwrap();
    let first = awaited(&run, AwaitedKind::Approval).await;
    let answer = onward.decide_approval(&first, decide("ada", "evt1")).await.unwrap();
    until_logged(&run, "approval_requested", 2).await;
    let again = onward.decide_approval(&first, decide("ada", "evt1")).await.unwrap();
    assert_eq!((again.index, again.repeated), (answer.index, true));
    let lost = onward.decide_approval(&first, decide("bob", "evt2")).await.unwrap_err();
    assert_eq!(lost.code(), "signal_lost");
    let second = awaited(&run, AwaitedKind::Approval).await;
    assert_ne!(first, second, "the second question is still open");
    onward.decide_approval(&second, decide("bob", "evt2")).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (Some("ada".to_owned()), Some("bob".to_owned())));
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ce10_an_answer_delivered_again_is_no_answer_to_the_next_question() {
    ce10(Site::memory()).await;
    ce10(Site::directory()).await;
}

async fn ce11(site: Site) {
    let onward = site.builder().await.workflow("ask", ask_twice).start().await.unwrap();
    let run: RunHandle<(Option<String>, Option<String>)> = onward.start("ask", &()).id("busy").await.unwrap();
    let first = awaited(&run, AwaitedKind::Approval).await;
    let others = (0..200u32).map(|number| {
        let run = run.clone();
        tokio::spawn(async move { run.signal("unrelated", &number).await.map(drop) })
    });
    let others: Vec<_> = others.collect();
    onward.decide_approval(&first, decide("ada", "evt1")).await.expect("an unrelated append is no reason to refuse an answer");
    for other in others {
        other.await.unwrap().unwrap();
    }
    until_logged(&run, "approval_requested", 2).await;
    let second = awaited(&run, AwaitedKind::Approval).await;
    onward.decide_approval(&second, decide("ada", "evt2")).await.unwrap();
    run.result().await.unwrap();
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ce11_an_answer_is_taken_whatever_else_is_appended_at_the_same_time() {
    ce11(Site::memory()).await;
    ce11(Site::directory()).await;
}

async fn two_in_order(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
    Ok(vec![ctx.signal("s").recv().await?, ctx.signal("s").recv().await?])
}

async fn ce13(site: Site) {
    let onward = site.builder().await.workflow("two", two_in_order).start().await.unwrap();
    let run: RunHandle<Vec<u32>> = onward.start("two", &()).id("ordered").await.unwrap();
    site.clock.advance(Duration::from_secs(5));
    run.signal("s", &1u32).await.unwrap();
    // The clock of the next writer is five seconds behind.
    let now = Arc::clone(&site.clock).now();
    site.clock.set(onward::Timestamp(now.0 - 5_000));
    run.signal("s", &2u32).await.unwrap();
    assert_eq!(run.result().await.unwrap(), [1, 2]);
    assert!(events(&run).await.iter().any(|event| event.name() == "run_completed"));
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ce13_signals_are_received_in_the_order_of_their_acknowledgements_whatever_the_clocks_say() {
    ce13(Site::memory()).await;
    ce13(Site::directory()).await;
}
