//! `read_since` returns what is new in followed runs, and nothing else.

use onward_core::Index;

use super::harness::{Harness, key, signal};
use crate::{KnownRun, RunUpdate};

fn known(id: &str, next: u64) -> KnownRun {
    KnownRun { run: key(id), generation: 0, next: Index(next) }
}

pub async fn only_what_is_new_of_a_run_is_read(mut harness: Harness) {
    for id in ["a", "b", "c"] {
        harness.start(id).await;
    }
    for id in ["a", "a", "c"] {
        harness.store().append_input(key(id), signal(None)).await.unwrap();
    }
    harness.reopen();
    let outbox = harness.store().read_since(vec![known("a", 2), known("b", 1), known("c", 1), known("nobody", 0)]).await.unwrap();
    let summarize = |outbox: &[RunUpdate]| -> Vec<(String, u64, Vec<u64>)> {
        let indexes = |since: &RunUpdate| since.records.iter().map(|record| record.index.0).collect();
        let mut rows: Vec<_> =
            outbox.iter().map(|since| (since.head.key.id.to_string(), since.head.next_index.0, indexes(since))).collect();
        rows.sort();
        rows
    };
    assert_eq!(summarize(&outbox), [("a".to_owned(), 3, vec![2]), ("c".to_owned(), 2, vec![1])]);
    assert_eq!(harness.store().read_since(vec![known("a", 3), known("b", 1)]).await.unwrap(), []);
}

pub async fn who_holds_a_run_now_is_told_with_what_is_new(harness: Harness) {
    let held = harness.start_held("r").await;
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    harness.store().append_input(key("r"), signal(None)).await.unwrap();
    let again = harness.claim("other").await.pop().unwrap();
    let outbox = harness.store().read_since(vec![known("r", 1)]).await.unwrap();
    assert_eq!((outbox.len(), outbox[0].head.epoch), (1, again.head.epoch));
    assert!(again.head.epoch > held.head.epoch);
}
