//! Random flows on the engine, compared with the reference interpreter of the machine, while processes die before and after every
//! write to the store.
//!
//! A case is the story of one or two runs of a flow, with one plan of deaths. The world outside answers in random order and virtual
//! time; a new process continues from the store. What the code of a run got is checked against its log, and given to the reference:
//! the calls that the run recorded, its result and its state are those of the reference (FP1). An effect whose outcome is recorded
//! is not executed again, and one that is not was executed at most once more for each death.
//!
//! `ONWARD_FLOW_SEED` plays the cases of one seed and prints them, `ONWARD_FLOW_CASES` another number of cases.

mod calls;
mod effects;
mod judge;
mod mutants;
mod process;
#[path = "../../../../onward-flow/tests/random_flows/mod.rs"]
mod random_flows;
mod run_log;
mod store;
mod story;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use onward::Payload;
use onward_flow::document::Flow;

use judge::Summary;
use mutants::Mutant;
use random_flows::generate;
use random_flows::random::Random;
use store::Death;
use story::Story;

const CASES: u64 = 5_000;

/// The cases of one flow: one without a death, and these with one or two.
const CASES_OF_FLOW: u64 = 5;

/// Time limits of a case on a busy machine. With some mistakes a case waits without an end.
const ENDS_IN: Duration = Duration::from_secs(300);
const MUTANT_ENDS_IN: Duration = Duration::from_secs(10);

/// A value that no answer of the world has.
fn wrong() -> Payload {
    Payload::json("not what was recorded").unwrap()
}

fn flow(seed: u64) -> Flow {
    generate::of_size(seed, 1, 5)
}

/// Plays one case. Panics where the engine and the reference differ. Returns what happened, with the number of writes.
fn play(seed: u64, deaths: &[Death], mutant: Option<Mutant>, is_shown: bool) -> Summary {
    let mut story = Story::new(seed, flow(seed), mutant, is_shown);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let limit = if mutant.is_some() { MUTANT_ENDS_IN } else { ENDS_IN };
    let ended = runtime.block_on(async { tokio::time::timeout(limit, story.play(deaths)).await });
    assert!(ended.is_ok(), "the case does not end");
    drop(runtime);
    judge::judge(&story)
}

/// Plays all cases of a flow.
fn cases(seed: u64, is_shown: bool) -> Summary {
    let mut summary = play(seed, &[], None, is_shown);
    let mut random = Random::of(seed, "deaths");
    for _ in 1..CASES_OF_FLOW {
        let mut death = || Death { at: random.below(summary.writes as usize) as u64, is_done: random.chance(50) };
        let mut deaths = vec![death()];
        if random.chance(25) {
            deaths.push(Death { at: random.below(8) as u64, is_done: random.chance(50) });
        }
        if is_shown {
            println!("-- {deaths:?}");
        }
        summary.add(&play(seed, &deaths, None, is_shown));
    }
    summary
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

#[test]
fn random_flows_equal_the_reference_wherever_processes_die() {
    if let Some(seed) = number("ONWARD_FLOW_SEED") {
        println!("{}", serde_json::to_string_pretty(&flow(seed)).unwrap());
        println!("{:?}", cases(seed, true));
        return;
    }
    let (count, threads) = (number("ONWARD_FLOW_CASES").unwrap_or(CASES).div_ceil(CASES_OF_FLOW), 2);
    let player = |first: u64| {
        let mut summary = Summary::default();
        for seed in (first..count).step_by(threads) {
            match catch_unwind(AssertUnwindSafe(|| cases(seed, false))) {
                Ok(played) => summary.add(&played),
                Err(_) => panic!("the cases of the seed {seed} fail; play them alone with ONWARD_FLOW_SEED={seed}"),
            }
        }
        summary
    };
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..threads as u64).map(|first| scope.spawn(move || player(first))).collect();
        players.into_iter().for_each(|player| summary.add(&player.join().unwrap()));
    });
    println!("{} cases, seeds 0 to {}: {summary:?}", summary.cases, count - 1);
    summary.assert_all_seen();
}
