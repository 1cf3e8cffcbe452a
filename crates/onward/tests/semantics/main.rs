//! What code observes, live and on every replay. No store, no runtime: the engine, real workflow code and a log.
//!
//! Every world replays its whole log strictly after each commit, so a test that passes has passed on every prefix.
//! `golden` has logs of earlier programs, `kit` the tests of the test kit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod budgets;
mod cancellation;
mod counterexamples;
mod delayed;
mod divergence;
mod failing;
mod foreign;
mod generated;
mod generations;
mod golden;
mod kept;
mod kit;
mod mailbox;
mod memos;
mod middleware;
mod misuse;
mod recorded;
mod reopened;
mod shells;
mod together;
mod updates;

use onward::testing::World;
use onward_core::event::{TaskCompleted, TimerFired};
use onward_core::{CallId, Event, Payload};

/// Completes the task at `call_id` with `value`.
fn complete(world: &mut World, call_id: &str, value: &str) {
    let call_id = CallId::parse(call_id).unwrap();
    let output = Payload::from_json_text(value.to_owned());
    world.input(TaskCompleted { call_id, output, attempts: 1, ran: None }).unwrap();
}

/// Completes the task that was scheduled as the `nth`.
fn complete_nth(world: &mut World, nth: usize, value: &str) {
    let call_id = task_call_ids(world).swap_remove(nth);
    complete(world, &call_id, value);
}

/// Completes the task that was scheduled last.
fn complete_last(world: &mut World, value: &str) {
    let call_id = last_task(world);
    complete(world, &call_id, value);
}

fn fire(world: &mut World, call_id: &str) {
    world.input(TimerFired { call_id: CallId::parse(call_id).unwrap() }).unwrap();
}

/// Returns the inputs of all tasks in the order of scheduling.
fn task_inputs(world: &World) -> Vec<String> {
    let input = |event: &Event| match event {
        Event::TaskScheduled(task) => Some(format!("{:?}", task.input)),
        _ => None,
    };
    world.log().events().filter_map(|(_, event)| input(event)).collect()
}

/// Returns the call id of the task that was scheduled last.
fn last_task(world: &World) -> String {
    task_call_ids(world).pop().unwrap()
}

/// Returns the call ids of all tasks in the order of scheduling.
fn task_call_ids(world: &World) -> Vec<String> {
    let call_id = |event: &Event| match event {
        Event::TaskScheduled(task) => Some(task.call_id.to_string()),
        _ => None,
    };
    world.log().events().filter_map(|(_, event)| call_id(event)).collect()
}

/// Returns how often an event of this name occurs.
fn count(world: &World, name: &str) -> usize {
    world.event_names().iter().filter(|other| **other == name).count()
}

/// Fires the timer that is due first.
fn fire_next(world: &mut World) {
    let (call_id, _) = world.next_timer().expect("a timer runs");
    world.fire_timer(&call_id);
}

/// Kills the process and continues the run in another one.
fn crash_and_pump(world: &mut World) {
    world.crash();
    world.run_until_idle().unwrap();
}
