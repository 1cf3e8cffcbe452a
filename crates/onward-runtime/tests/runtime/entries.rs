//! Pages of a conversation, and the records that are read for them.

use onward_core::conversation::{EntryCursor, entry_id};
use onward_core::event::{Checkpoint, EntryAppended, RunContinued};
use onward_core::{Hash, Payload};
use onward_runtime::EntryQuery;

use crate::kit::*;

/// Creates an agent's run with one entry in each of its generations; returns the entries' ids.
async fn conversation(kit: &Harness, generations: u32) -> Vec<Hash> {
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let mut ids: Vec<Hash> = Vec::new();
    for number in 0..generations {
        let (parent, content, role) = (ids.last().copied(), text(&number.to_string()), name("user"));
        let id = entry_id(parent, &role, &content);
        ids.push(id);
        let entry =
            EntryAppended { call_id: at(0), id, parent, role, content, quote: None, is_aside: false, idempotency_key: None };
        let checkpoint = Checkpoint {
            state: Payload::null(),
            prelude: None,
            awaits: None,
            leaf: Some(id),
            depth: u64::from(number) + 1,
            kept: Vec::new(),
            keys: Vec::new(),
            abandoned_children: Vec::new(),
            handoff: None,
            tally: None,
        };
        let end = RunContinued { input: text("next"), checkpoint: Some(Box::new(checkpoint)) };
        kit.commit(&mut held, vec![entry.into(), end.into()]).await;
        held = kit.next_held(&worker).await;
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn a_page_reads_no_more_logs_than_it_needs() {
    let kit = Harness::new();
    let ids = conversation(&kit, 20).await;
    let reads = |since: usize| kit.store.calls("read_log") - since;
    let before = kit.store.calls("read_log");
    let page = kit.runtime.read_entries(&key("r"), EntryQuery { limit: 3, ..Default::default() }).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids[17..]);
    assert_eq!((page.leaf, page.depth), (ids.last().copied(), Some(20)));
    assert_eq!(reads(before), 4, "the open log, which has no entry yet, and those of three generations");
    let before = kit.store.calls("read_log");
    let query = EntryQuery { before: page.before, limit: 2, ..Default::default() };
    let page = kit.runtime.read_entries(&key("r"), query).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids[15..17]);
    assert_eq!(reads(before), 3, "the page before ended in the first of them");
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_no_log_has_is_reported_after_all_were_read() {
    let kit = Harness::new();
    let ids = conversation(&kit, 3).await;
    let leaf = Some(EntryCursor::from(Hash::of_parts(&[b"nobody"])));
    refused(kit.runtime.read_entries(&key("r"), EntryQuery { leaf, ..Default::default() }).await, "entry_not_found");
    // A cursor with too early a generation does not find the entry.
    let leaf = Some(EntryCursor { id: ids[2], generation: Some(1) });
    refused(kit.runtime.read_entries(&key("r"), EntryQuery { leaf, ..Default::default() }).await, "entry_not_found");
}
