//! Tests of the parent module.

use super::*;

#[test]
fn a_look_that_something_came_into_is_worth_nothing() {
    let pulse = Pulse::default();
    assert!(!pulse.is_quiet(WorkKind::Runs), "no look yet");
    let begun = pulse.begin();
    pulse.end(begun, PendingWork { outbox_messages: true, ..PendingWork::default() });
    assert!(pulse.is_quiet(WorkKind::Runs) && pulse.is_quiet(WorkKind::Tasks) && !pulse.is_quiet(WorkKind::Deliveries));
    let begun = pulse.begin();
    pulse.stir();
    pulse.end(begun, PendingWork::default());
    assert!(!pulse.is_quiet(WorkKind::Runs));
}
