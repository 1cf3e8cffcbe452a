//! Tests of the parent module.

use super::*;

const SEEN: TransactionStart =
    TransactionStart { micros: 9, floor: 5, is_denied: false, table: 1, written: 100, running_since: 1 };

fn knowing(known: TransactionStart) -> RestoreGuard {
    RestoreGuard { state: Mutex::new(GuardState { known: Some(known), is_limited: false }) }
}

#[test]
fn a_database_that_was_restarted_made_anew_or_denied_is_looked_at_closely() {
    assert_eq!(RestoreGuard::default().clock(SEEN), IdentityCheck::Doubtful, "nothing was read yet");
    for other in [
        TransactionStart { running_since: 2, ..SEEN },
        TransactionStart { table: 2, ..SEEN },
        TransactionStart { is_denied: true, ..SEEN },
    ] {
        assert_eq!(knowing(SEEN).clock(other), IdentityCheck::Doubtful);
    }
    assert_eq!(knowing(SEEN).clock(TransactionStart { micros: 10, written: 101, ..SEEN }), IdentityCheck::Same);
}

#[test]
fn a_floor_that_another_server_has_moved_is_noticed_once() {
    let restore_guard = knowing(SEEN);
    let moved = TransactionStart { floor: 8, written: 50, ..SEEN };
    assert_eq!(restore_guard.clock(moved), IdentityCheck::Moved);
    assert_eq!(restore_guard.clock(moved), IdentityCheck::Same);
    // A result from before the move is no reason to verify, and its log position is not comparable.
    assert_eq!(restore_guard.clock(SEEN), IdentityCheck::Same);
    assert_eq!(restore_guard.lock().known.map(|known| known.written), Some(50));
}
