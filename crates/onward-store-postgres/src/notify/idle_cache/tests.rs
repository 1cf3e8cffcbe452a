//! Tests of the parent module.

use super::*;

#[test]
fn a_look_that_something_came_into_is_worth_nothing() {
    let idle_cache = IdleCache::default();
    assert!(!idle_cache.is_quiet(WorkKind::Runs), "no query yet");
    let begun = idle_cache.begin();
    idle_cache.end(begun, PendingWork { outbox_messages: true, ..PendingWork::default() });
    assert!(
        idle_cache.is_quiet(WorkKind::Runs) && idle_cache.is_quiet(WorkKind::Tasks) && !idle_cache.is_quiet(WorkKind::Deliveries)
    );
    let begun = idle_cache.begin();
    idle_cache.invalidate();
    idle_cache.end(begun, PendingWork::default());
    assert!(!idle_cache.is_quiet(WorkKind::Runs));
}
