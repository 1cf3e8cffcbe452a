//! Tests of the parent module.

use onward_store::conformance::block_on;

use super::*;

#[test]
fn a_stopped_store_refuses_heartbeats_as_it_refuses_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(directory.path(), Options::default()).expect("a store");
    let beat = || block_on(store.heartbeat(WorkerId::new("w").expect("an id"), Duration::from_secs(30)));
    assert!(beat().is_ok());
    store.shared.queue.stop("a sync failed");
    assert_eq!(beat().expect_err("it has stopped").code(), "store_stopped");
}
