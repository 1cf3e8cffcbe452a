//! Random schedules: every order that can happen happens in some of them.

use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::testing::{Script, ScriptOutcome};
use onward_core::Event;

/// Adds up numbers until it is closed.
async fn total(ctx: Ctx, _: ()) -> Result<u64> {
    let total = Arc::new(Mutex::new(0));
    let shared = total.clone();
    ctx.update("add", move |n: u64| {
        let mut total = shared.lock().unwrap();
        *total += n;
        Ok(*total)
    });
    ctx.signal("close").recv::<()>().await?;
    let total = *total.lock().unwrap();
    Ok(total)
}

fn both_orders() -> [Script; 2] {
    let script = || Script::new(total, &());
    [
        script().signal(secs(1), "close", &()).update(secs(1), "add", &5u64),
        script().update(secs(1), "add", &5u64).signal(secs(1), "close", &()),
    ]
}

/// Returns the largest number of inputs that the code got at once.
fn most_at_once(outcome: &ScriptOutcome) -> usize {
    let mut shown = vec![0];
    for record in outcome.log().records() {
        match record.commit {
            // Inputs that came while the commit was on its way are seen by the next one.
            Some(commit) => {
                let overtaken = (record.index.0 - commit.horizon.0 - 1) as usize;
                *shown.last_mut().unwrap() -= overtaken;
                shown.push(overtaken);
            }
            None => *shown.last_mut().unwrap() += 1,
        }
    }
    shown.into_iter().max().unwrap()
}

/// Returns whether an input came between an activation and its commit.
fn has_overtaken(outcome: &ScriptOutcome) -> bool {
    let commits = outcome.log().records().iter().filter_map(|record| Some((record.index.0, record.commit?.horizon.0)));
    commits.into_iter().any(|(index, horizon)| index > horizon + 1)
}

#[test]
fn several_inputs_come_at_once_and_some_between_an_activation_and_its_commit() {
    let (mut at_once, mut overtaken) = (0, 0);
    for script in both_orders() {
        for seed in 0..200 {
            let outcome = script.schedule(seed);
            at_once += u32::from(most_at_once(&outcome) > 1);
            overtaken += u32::from(has_overtaken(&outcome));
        }
    }
    assert!(at_once > 50 && overtaken > 20, "{at_once} of 400 at once, {overtaken} between");
}

/// An acknowledged update counts, and the schedules cover both cases: one that is answered, and one that comes too late.
#[test]
fn schedules_find_the_update_that_comes_with_the_end_of_the_code() {
    let mut answered = [0, 0];
    for script in both_orders() {
        for seed in 0..200 {
            let outcome = script.schedule(seed);
            let is_answered = outcome.log().events().any(|(_, event)| matches!(event, Event::UpdateAnswered(_)));
            assert_eq!(outcome.output::<u64>(), if is_answered { 5 } else { 0 }, "schedule {seed}");
            let has_come = outcome.log().events().any(|(_, event)| matches!(event, Event::UpdateReceived(_)));
            if has_come {
                answered[usize::from(is_answered)] += 1;
            }
        }
    }
    assert!(answered.iter().all(|times| *times > 20), "{answered:?} not answered and answered");
}
