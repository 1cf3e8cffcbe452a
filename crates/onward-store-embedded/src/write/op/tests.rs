//! Tests of the parent module.

use onward_store::conformance::block_on;
use onward_store::durable::reply::Waiting;

use super::*;

/// F20: a disk that does not keep up results in a queue of bounded length.
#[test]
fn a_queue_that_is_full_refuses_what_comes_next() {
    let queue = OpQueue::default();
    (0..WAITING_MAX).for_each(|_| queue.submit(Op::Announce(Timestamp(0), Slot::new())));
    let slot = Slot::new();
    queue.submit(Op::Announce(Timestamp(0), slot.clone()));
    assert_eq!(block_on(Waiting(slot)).unwrap_err().code(), "store_unavailable");
    let mut batch = Vec::new();
    assert!(queue.take(&mut batch, None) && batch.len() == BATCH_MAX);
    let slot = Slot::new();
    queue.submit(Op::Announce(Timestamp(0), slot));
    assert_eq!(queue.lock().ops.len(), WAITING_MAX - BATCH_MAX + 1);
}
