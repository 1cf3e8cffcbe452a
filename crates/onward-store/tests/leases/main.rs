//! A model of the protocol by which servers share one database: which worker holds which run, and which may write.
//!
//! Visits every state that two servers, their workers, a client, the clock and a few faults can reach; the core makes the
//! decisions. docs/design/model.md describes the model. `ONWARD_MODEL_FAULTS=2` explores more states and takes minutes.

mod actions;
mod decide;
mod due;
mod explore;
mod fingerprint;
mod guards;
mod rows;
mod steps;
mod world;

use explore::explore;
use guards::{Guard, Rules};
use world::Scenario;

const SIGNAL: Scenario = Scenario { signal: true, ..Scenario::PLAIN };
const TIMER: Scenario = Scenario { timer: true, ..Scenario::PLAIN };
const TASK: Scenario = Scenario { task: true, ..Scenario::PLAIN };
const AT_LEAST_ONCE: Scenario = Scenario { remote: true, ..TASK };
const AT_MOST_ONCE: Scenario = Scenario { once: true, ..AT_LEAST_ONCE };
const CANCEL: Scenario = Scenario { cancel: true, ..SIGNAL };

/// Returns the number of faults: from the environment, or the given default.
fn faults_or(usual: u8) -> u8 {
    std::env::var("ONWARD_MODEL_FAULTS").map_or(usual, |text| text.parse().expect("ONWARD_MODEL_FAULTS is a number"))
}

#[track_caller]
fn holds(scenario: Scenario, faults: u8) {
    match explore(Rules::default(), Scenario { faults, ..scenario }) {
        Ok(found) => {
            println!("{scenario:?}, {faults} faults: {} states, {} steps, {} ends", found.states, found.steps, found.ends)
        }
        Err(found) => panic!("{scenario:?}, {faults} faults: {found}"),
    }
}

#[track_caller]
fn notices(guard: Guard, scenario: Scenario, faults: u8, broken: &str) {
    match explore(Rules { without: Some(guard) }, Scenario { faults, ..scenario }) {
        Ok(found) => panic!("no violation without {guard:?} in {} states", found.states),
        Err(found) => {
            println!("without {guard:?}: {found}");
            assert!(found.broken.contains(broken), "without {guard:?}, `{broken}` was expected: {found}");
        }
    }
}

#[test]
fn a_run_that_waits_for_a_signal_keeps_every_promise() {
    holds(SIGNAL, faults_or(1));
}

#[test]
fn a_run_that_waits_for_a_timer_keeps_every_promise() {
    holds(TIMER, faults_or(1));
}

#[test]
fn a_run_that_waits_for_a_task_keeps_every_promise() {
    holds(AT_LEAST_ONCE, faults_or(1));
}

#[test]
fn an_at_most_once_task_is_executed_once() {
    holds(AT_MOST_ONCE, faults_or(1));
}

#[test]
fn a_run_that_is_canceled_while_it_waits_keeps_every_promise() {
    holds(CANCEL, faults_or(1) - 1);
}

/// Each guard is necessary, and the model detects its absence.
#[test]
fn without_any_one_guard_a_promise_is_broken() {
    notices(Guard::Fence, SIGNAL, 1, "wrote a commit after");
    notices(Guard::EpochGrowth, SIGNAL, 0, "an epoch was given twice");
    notices(Guard::CommitId, SIGNAL, 1, "was refused as `lease_lost`");
    notices(Guard::CommitNumber, SIGNAL, 1, "twice");
    notices(Guard::DatabaseClock, SIGNAL, 0, "before its time by the database's clock");
    notices(Guard::TimerClock, TIMER, 0, "a timer fired before its time");
    notices(Guard::LeaseCheck, SIGNAL, 0, "two live leases");
    notices(Guard::ReleaseEpoch, SIGNAL, 1, "released the lease of claim");
    notices(Guard::SessionWithLease, SIGNAL, 0, "a lease without a session");
    notices(Guard::BusySession, SIGNAL, 1, "a lease without a session");
    notices(Guard::SessionLock, SIGNAL, 1, "before its time by the database's clock");
    notices(Guard::TimerUnderLock, TIMER, 0, "TimerFired was recorded twice");
    notices(Guard::TaskClaim, TASK, 1, "of a task reported when");
    notices(Guard::TaskRow, TASK, 1, "TaskDone was recorded twice");
    notices(Guard::TaskLease, TASK, 0, "was given to another one");
    notices(Guard::SignalSlot, SIGNAL, 1, "Signaled was recorded twice");
    notices(Guard::WakeOverUnread, SIGNAL, 0, "an unread input");
    notices(Guard::AnswerBehindCommit, SIGNAL, 1, "acknowledged and lost");
    notices(Guard::LeasesCompared, SIGNAL, 1, "cannot end");
    notices(Guard::EndsOnce, AT_MOST_ONCE, 1, "was executed twice");
    notices(Guard::StartAssumed, AT_MOST_ONCE, 1, "was executed twice");
    notices(Guard::StartAssumed, AT_LEAST_ONCE, 1, "two executions have the attempt number");
    notices(Guard::AttemptNumbers, AT_LEAST_ONCE, 1, "two executions have the attempt number");
    notices(Guard::SessionFence, AT_MOST_ONCE, 1, "took a task from a worker that it did not have");
    notices(Guard::SessionFence, AT_LEAST_ONCE, 1, "took a task from a worker that it did not have");
}
