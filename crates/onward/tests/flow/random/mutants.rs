//! Mistakes of a store and of a player, which the cases must find.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::play;

/// A mistake that is made once in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The store acknowledges a commit and drops it.
    CommitIsLost,
    /// The store acknowledges a signal and drops it.
    SignalIsLost,
    /// The store acknowledges the result of a task and drops it.
    ResultIsLost,
    /// The store records another result of a task.
    ResultIsChanged,
    /// The store returns two answers of a log in the wrong order.
    AnswersAreSwapped,
    /// The store forgets messages of the outbox.
    MessagesAreLost,
    /// The player does not give the machine an answer.
    AnswerIsForgotten,
    /// The player gives the machine another answer.
    AnswerIsChanged,
    /// The player gives the machine a failure for a result.
    AnswerIsFailure,
}

/// The number of seeds among which each mistake must be found.
const SEEDS: u64 = 300;

/// Asserts that a case without deaths in which the mistake is made fails.
#[track_caller]
fn assert_found(mutant: Mutant) {
    let finds = |seed: &u64| catch_unwind(AssertUnwindSafe(|| play(*seed, &[], Some(mutant), false))).is_err();
    let found = (0..SEEDS).find(finds);
    println!("{mutant:?} is found by the case of the seed {found:?}");
    assert!(found.is_some(), "{mutant:?} is not found");
}

#[test]
fn an_acknowledged_commit_that_is_lost_is_found() {
    assert_found(Mutant::CommitIsLost);
}

#[test]
fn an_acknowledged_signal_that_is_lost_is_found() {
    assert_found(Mutant::SignalIsLost);
}

#[test]
fn an_acknowledged_result_that_is_lost_is_found() {
    assert_found(Mutant::ResultIsLost);
}

#[test]
fn a_result_that_is_changed_is_found() {
    assert_found(Mutant::ResultIsChanged);
}

#[test]
fn answers_in_the_wrong_order_are_found() {
    assert_found(Mutant::AnswersAreSwapped);
}

#[test]
fn messages_that_are_lost_are_found() {
    assert_found(Mutant::MessagesAreLost);
}

#[test]
fn a_player_that_forgets_an_answer_is_found() {
    assert_found(Mutant::AnswerIsForgotten);
}

#[test]
fn a_player_that_gives_another_answer_is_found() {
    assert_found(Mutant::AnswerIsChanged);
}

#[test]
fn a_player_that_gives_a_failure_for_a_result_is_found() {
    assert_found(Mutant::AnswerIsFailure);
}
