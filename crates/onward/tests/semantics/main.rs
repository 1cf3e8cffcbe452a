//! What code observes, live and on every replay. No store, no runtime: the engine, real workflow code and a log.
//!
//! Every world replays its whole log after each commit, strictly, so a test that passes has passed on every prefix.

mod counterexamples;
mod generated;

use onward::testing::World;
use onward_core::event::{TaskCompleted, TimerFired};
use onward_core::{Event, Payload, Place};

/// Completes the task at `place` with `value`.
fn complete(world: &mut World, place: &str, value: &str) {
    let place = Place::parse(place).unwrap();
    let output = Payload::from_json_text(value.to_owned());
    world.input(TaskCompleted { place, output, attempts: 1 }).unwrap();
}

/// Completes the task that was scheduled last.
fn complete_last(world: &mut World, value: &str) {
    let place = last_task(world);
    complete(world, &place, value);
}

fn fire(world: &mut World, place: &str) {
    world.input(TimerFired { place: Place::parse(place).unwrap() }).unwrap();
}

/// The inputs of all tasks in the order they were scheduled.
fn task_inputs(world: &World) -> Vec<String> {
    let input = |event: &Event| match event {
        Event::TaskScheduled(task) => Some(format!("{:?}", task.input)),
        _ => None,
    };
    world.log().events().filter_map(|(_, event)| input(event)).collect()
}

/// The place of the task that was scheduled last.
fn last_task(world: &World) -> String {
    let place = |event: &Event| match event {
        Event::TaskScheduled(task) => Some(task.place.to_string()),
        _ => None,
    };
    world.log().events().filter_map(|(_, event)| place(event)).last().unwrap()
}
