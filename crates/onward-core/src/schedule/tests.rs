//! Tests of the parent module.

mod bounds;
mod fuzz;
mod mutants;
mod options;
mod patterns;
mod plain;
mod world;
mod zones;

use super::*;
use crate::{Name, Payload, Timestamp};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn cron(expression: &str, zone: &str) -> ScheduleSpec {
    ScheduleSpec { cron: vec![expression.to_owned()], time_zone: Some(zone.to_owned()), ..ScheduleSpec::default() }
}

fn every(minutes: u64) -> ScheduleSpec {
    ScheduleSpec { every: vec![Interval { every_ms: minutes * 60_000, offset_ms: 0 }], ..ScheduleSpec::default() }
}

fn definition(spec: ScheduleSpec, options: ScheduleOptions) -> ScheduleDefinition {
    let target = ScheduleTarget {
        kind: name("report"),
        input: Payload::null(),
        is_template: false,
        version: None,
        attributes: Vec::new(),
        deadline_ms: None,
    };
    ScheduleDefinition { target, spec, options, requester: None, granted: None }
}

/// Returns the first slots after a time, as text without milliseconds.
fn first(spec: &ScheduleSpec, after: &str, count: usize) -> Vec<String> {
    let slots = Slots::new(spec).unwrap();
    let mut after = at(after);
    let mut found = Vec::new();
    while found.len() < count {
        match slots.next_slot(after) {
            NextSlot::At(slot) => {
                found.push(slot.to_string().replace(".000Z", "Z"));
                after = slot;
            }
            NextSlot::After(time) => after = time,
            NextSlot::Never => break,
        }
    }
    found
}
