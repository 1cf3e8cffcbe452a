//! Tests of the parent module.

use super::*;

const SEEN: Sight = Sight { micros: 9, floor: 5, is_denied: false, table: 1, written: 100, running_since: 1 };

fn knowing(known: Sight) -> RestoreGuard {
    RestoreGuard { state: Mutex::new(GuardState { known: Some(known), is_dim: false }) }
}

#[test]
fn a_database_that_was_restarted_made_anew_or_denied_is_looked_at_closely() {
    assert_eq!(RestoreGuard::default().clock(SEEN), Verdict::Doubtful, "nothing was read yet");
    for other in [Sight { running_since: 2, ..SEEN }, Sight { table: 2, ..SEEN }, Sight { is_denied: true, ..SEEN }] {
        assert_eq!(knowing(SEEN).clock(other), Verdict::Doubtful);
    }
    assert_eq!(knowing(SEEN).clock(Sight { micros: 10, written: 101, ..SEEN }), Verdict::Same);
}

#[test]
fn a_floor_that_somebody_else_has_moved_is_noticed_once() {
    let restore_guard = knowing(SEEN);
    let moved = Sight { floor: 8, written: 50, ..SEEN };
    assert_eq!(restore_guard.clock(moved), Verdict::Moved);
    assert_eq!(restore_guard.clock(moved), Verdict::Same);
    // A result from before the move is no reason to verify, and its log position is not comparable.
    assert_eq!(restore_guard.clock(SEEN), Verdict::Same);
    assert_eq!(restore_guard.lock().known.map(|known| known.written), Some(50));
}
