//! The random programs detect errors: for every rule, some case finds a model, or a harness, that breaks it.
//!
//! Code and model are compared, so a case that distinguishes the engine from a model with a broken rule would also distinguish an
//! engine with that broken rule from the model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onward_core::{Index, Record};

use super::*;

/// Number of cases that have to find a mutant. The ordinary run has at least as many.
pub const CASES: u64 = 1_000;

/// A rule that a model breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mutant {
    /// A commit has seen everything before it in the log, not only up to its horizon (CE4).
    HorizonAtCommit,
    /// Polls see all signals of the log, later ones included (CE1).
    PollsSeeTheFuture,
    /// Polls see what was delivered, not everything up to the horizon (rule 2).
    PollsSeeTheDelivered,
    /// A signal goes to the call that began to wait last (rule 2).
    LastWaiterIsFirst,
    /// Of several answers the first in the code's list wins (rule 3).
    FirstInListWins,
    /// A signal that is put back goes to the end of the mailbox (rule 4).
    PutBackAtTheEnd,
    /// A signal that was promised to an interrupted call is lost (rule 4).
    PromisedIsLost,
    /// A signal that was promised to the loser of a select is lost (CE9).
    LosersSignalIsLost,
    /// The newest signal is received first.
    LastSignalIsFirst,
    /// The mailbox is empty after a run continued as new (L13).
    MailboxIsNotCarried,
    DrainTakesOne,
    /// A select does not look into the mailbox before it drops a wait.
    SelectTakesNothing,
    /// `now()` is the time of the start (rule 12).
    NowIsTheStart,
    /// `random()` is the same in all branches (rule 12).
    RandomIgnoresTheBranch,
    VersionIsTheNewest,
    /// The arms of a join are polled from the right.
    RightArmIsFirst,
    /// Waiting for all ends with the first failure (ADR 0004), a race with the first answer.
    FirstFailureEnds,
    CancelIsIgnored,
    CancelMeetsEveryCall,
    /// Updates that came before their handler are not answered.
    EarlyUpdatesAreKept,
    /// Updates are answered by code that has ended.
    UpdatesAfterTheEnd,
}

const MUTANTS: &[Mutant] = &[
    Mutant::HorizonAtCommit,
    Mutant::PollsSeeTheFuture,
    Mutant::PollsSeeTheDelivered,
    Mutant::LastWaiterIsFirst,
    Mutant::FirstInListWins,
    Mutant::PutBackAtTheEnd,
    Mutant::PromisedIsLost,
    Mutant::LosersSignalIsLost,
    Mutant::LastSignalIsFirst,
    Mutant::MailboxIsNotCarried,
    Mutant::DrainTakesOne,
    Mutant::SelectTakesNothing,
    Mutant::NowIsTheStart,
    Mutant::RandomIgnoresTheBranch,
    Mutant::VersionIsTheNewest,
    Mutant::RightArmIsFirst,
    Mutant::FirstFailureEnds,
    Mutant::CancelIsIgnored,
    Mutant::CancelMeetsEveryCall,
    Mutant::EarlyUpdatesAreKept,
    Mutant::UpdatesAfterTheEnd,
];

pub fn fails(case: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(case)).is_err()
}

#[test]
fn every_rule_that_a_model_breaks_is_found() {
    let mut left: Vec<Mutant> = MUTANTS.to_vec();
    for seed in 0..CASES {
        let (world, build) = play(seed, Harness::default());
        check(&world, &build, None);
        // All mutants are compared with the same run, so a failed check must leave no state behind.
        left.retain(|mutant| {
            let found = fails(|| check(&world, &build, Some(*mutant)));
            if found {
                println!("{mutant:?} is found by case {seed}");
            }
            !found
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("no case of {CASES} finds {left:?}");
}

#[test]
fn steps_that_start_before_what_the_code_saw_is_durable_are_found() {
    assert_found(Harness { steps_are_eager: true, ..Harness::default() });
}

#[track_caller]
fn assert_found(harness: Harness) {
    let finds = |seed: &u64| {
        fails(|| {
            let (world, build) = play(*seed, harness);
            check(&world, &build, None);
        })
    };
    let found = (0..CASES).find(finds).unwrap_or_else(|| panic!("no case of {CASES} finds it"));
    println!("found by case {found}");
}

#[test]
fn recorded_steps_that_run_again_are_found() {
    assert_found(Harness { commits_are_lost: true, ..Harness::default() });
}

#[test]
fn records_that_are_there_twice_are_found() {
    let (mut steps, mut signals) = (0, 0);
    for seed in 0..100 {
        let (world, _) = play(seed, Harness::default());
        let mut records: Vec<Record> = world.log().records().to_vec();
        let twice = |event: &&Event| match event {
            Event::StepCompleted(_) => true,
            Event::SignalConsumed(signal) => signal.index.0 > 0,
            _ => false,
        };
        let Some(event) = world.log().events().map(|(_, event)| event).find(twice).cloned() else { continue };
        match event {
            Event::StepCompleted(_) => steps += 1,
            _ => signals += 1,
        }
        let last = records.last_mut().unwrap();
        let end = last.events.pop().unwrap();
        last.events.extend([event, end]);
        let log = Log::load(records).unwrap();
        assert!(log.next_index() > Index(0) && fails(|| check_records(&log)), "case {seed}");
    }
    assert!(steps > 5 && signals > 5, "{steps} steps, {signals} signals");
}
