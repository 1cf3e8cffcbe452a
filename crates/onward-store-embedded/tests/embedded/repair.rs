//! Repair: everything that verifies is in the new database, the rest is reported, and the damaged files are kept (C, I8).

use std::collections::BTreeSet;
use std::path::Path;

use onward_core::event::SignalReceived;
use onward_core::run::Input;
use onward_core::{Attribute, AttributeValue, Index, Record, RunHead, RunKey};
use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store};
use onward_store_embedded::{EmbeddedStore, Lost, Options, Repaired};

use crate::damage::copy;
use crate::flips::{flip, killed};
use crate::random::{Random, is_torture, rounds};
use crate::workload::{Memory, STEPS_PER_RUN, Workload, expected, json, key, name, new_run, open, remember};

const PAGE: usize = 8_192;
const RUNS: usize = 300;

/// Returns a closed directory with a few hundred runs, some of them with everything the workload has.
fn many_runs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = Workload::default();
    let store = EmbeddedStore::open(directory.path(), Options { clock: workload.clock(), ..Options::default() }).unwrap();
    (0..3 * STEPS_PER_RUN - 1).for_each(|step| workload.perform(&store, step).unwrap());
    for run in 0..RUNS {
        let id = format!("many-{run}");
        block_on(store.start_run(new_run(&id), None)).unwrap();
        for signal in 0..4 {
            let payload = json(format!("\"{}\"", "x".repeat(100)));
            let signal_id = Some(format!("s-{signal}"));
            let signal = SignalReceived { name: name("paid"), payload, signal_id, sender: None };
            block_on(store.append_input(key(&id), Input::signal(signal))).unwrap();
        }
    }
    drop(store);
    directory
}

fn log_of(store: &EmbeddedStore, key: &RunKey) -> Option<Vec<Record>> {
    let mut records = block_on(store.read_log(key.clone(), None, Index(0), usize::MAX)).ok()?;
    records.iter_mut().filter_map(|record| record.commit.as_mut()).for_each(|commit| commit.epoch = Default::default());
    Some(records)
}

fn lost_runs(repaired: &Repaired) -> BTreeSet<RunKey> {
    repaired.lost.iter().filter_map(|lost| lost.run.clone()).collect()
}

/// Repairs a copy with one changed byte and returns the runs that changed, all of which are reported. Of runs that share a lost
/// payload, which is one row, the first is returned.
#[track_caller]
fn repair_changed(original: &Path, whole: &Memory, at: usize) -> BTreeSet<RunKey> {
    let directory = copy(original);
    flip(&directory.path().join("onward.db"), at, 0x15);
    let damaged = std::fs::read(directory.path().join("onward.db")).unwrap();
    let repaired = EmbeddedStore::repair(directory.path()).unwrap();
    let Some(aside) = &repaired.aside else {
        // SQLite's own tools change these bytes of the first page, so no checksum covers them.
        assert!(at < 100, "byte {at} was not found to be damaged");
        return BTreeSet::new();
    };
    assert_eq!(std::fs::read(aside.join("onward.db")).unwrap(), damaged, "the damaged file is kept");
    let store = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
    let named = lost_runs(&repaired);
    let mut changed = BTreeSet::new();
    for (head, records) in &whole.runs {
        if log_of(&store, &head.key).as_ref() != Some(records) {
            changed.insert(head.key.clone());
        }
    }
    let listed = block_on(store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() })).unwrap().runs;
    let is_known = |head: &RunHead| whole.runs.iter().any(|(known, _)| known.key == head.key);
    let returned: Vec<&RunKey> = listed.iter().filter(|head| !is_known(head)).map(|head| &head.key).collect();
    assert!(returned.is_empty(), "byte {at} brought back {returned:?}");
    let unnamed = repaired.lost.iter().filter(|lost| lost.run.is_none()).count();
    assert!(changed.difference(&named).count() <= unnamed, "byte {at}: {changed:?} of {:?}", repaired.lost);
    if changed.is_empty() && repaired.lost.is_empty() {
        assert_eq!(&remember(&store), whole, "byte {at}");
    }
    // The store works.
    block_on(store.start_run(new_run("after"), None)).unwrap();
    assert!(EmbeddedStore::damaged_pages(directory.path()).unwrap().is_empty());
    let mut payloads = BTreeSet::new();
    changed.retain(|run| {
        let lost = repaired.lost.iter().find(|lost| lost.run.as_ref() == Some(run));
        lost.is_none_or(|lost| !lost.why.contains("a large payload") || payloads.insert(lost.why.clone()))
    });
    changed
}

/// Returns whether a page is a leaf of a table, by its first byte.
fn is_leaf(bytes: &[u8], page: usize) -> bool {
    bytes[page * PAGE] == 0x0d
}

#[test]
fn a_flipped_byte_in_any_page_costs_at_most_the_runs_in_it_after_a_repair() {
    let original = many_runs();
    let whole = remember(&open(original.path()));
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let pages = bytes.len() / PAGE;
    let mut random = Random::seeded("flips in pages");
    // Pages other than leaves of tables: all their content can be restored.
    let inner: Vec<usize> = (0..pages).filter(|page| *page == 0 || [0x02, 0x05, 0x0a].contains(&bytes[page * PAGE])).collect();
    let leaves: Vec<usize> = (1..pages).filter(|page| is_leaf(&bytes, *page)).collect();
    assert!(inner.len() > 20 && leaves.len() > 20, "{} and {} of {pages}", inner.len(), leaves.len());
    assert!((1..pages).any(|page| bytes[page * PAGE] == 0x05), "no inner page of a table");
    let chosen: Vec<usize> = if is_torture() {
        (0..pages).collect()
    } else {
        let tables = (1..pages).filter(|page| bytes[page * PAGE] == 0x05);
        let some = (0..rounds(8, 0)).map(|_| random.below(pages as u64) as usize);
        tables.chain([0, 1]).chain(some).collect()
    };
    for page in chosen {
        let offsets = [random.below(8), 8 + random.below(500), 508 + random.below(7_684)];
        for offset in
            offsets.iter().skip(if is_torture() { 0 } else { random.below(3) as usize }).take(if is_torture() { 3 } else { 1 })
        {
            let changed = repair_changed(original.path(), &whole, page * PAGE + *offset as usize);
            if inner.contains(&page) {
                assert!(changed.is_empty(), "page {page} at {offset}: {changed:?}");
            } else if leaves.contains(&page) {
                // A byte of a row costs that row; one of the page's header may cost the rows of the page.
                let most = if *offset >= 508 { 1 } else { 60 };
                assert!(changed.len() <= most, "page {page} at {offset}: {changed:?}");
            }
        }
    }
}

/// The page type, the number of its cells, and their offsets.
#[test]
fn a_flipped_byte_in_the_header_of_a_leaf_costs_no_more_than_a_row() {
    let original = many_runs();
    let whole = remember(&open(original.path()));
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let leaves: Vec<usize> = (1..bytes.len() / PAGE).filter(|page| is_leaf(&bytes, *page)).collect();
    let mut random = Random::seeded("headers of leaves");
    for offset in [0, 3, 4, 5, 6, 9] {
        let page = leaves[random.below(leaves.len() as u64) as usize];
        let changed = repair_changed(original.path(), &whole, page * PAGE + offset);
        assert!(changed.len() <= 1, "page {page} at {offset}: {changed:?}");
    }
}

/// A row of the outbox has no other copy, and its bytes are still in the page.
#[test]
fn a_flipped_byte_in_the_offset_of_a_row_costs_nothing() {
    let original = many_runs();
    let whole = remember(&open(original.path()));
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let outbox = |page: &usize| is_leaf(&bytes, *page) && bytes[page * PAGE..][..PAGE].windows(7).any(|text| text == b"r2~0~9~");
    let page = (1..bytes.len() / PAGE).find(outbox).unwrap();
    let rows = usize::from(u16::from_be_bytes([bytes[page * PAGE + 3], bytes[page * PAGE + 4]]));
    assert!(rows > 4, "{rows}");
    for offset in 8..8 + 2 * rows {
        assert!(repair_changed(original.path(), &whole, page * PAGE + offset).is_empty(), "page {page} at {offset}");
    }
}

#[test]
fn a_lost_message_of_the_outbox_is_reported_with_its_run() {
    let original = many_runs();
    let directory = copy(original.path());
    let path = directory.path().join("onward.db");
    let bytes = std::fs::read(&path).unwrap();
    let messages = block_on(open(original.path()).outbox_messages(1_000)).unwrap().len();
    let in_leaf = |at: &usize| is_leaf(&bytes, at / PAGE) && bytes[*at..].starts_with(b"r2~0~9~");
    flip(&path, (0..bytes.len()).find(in_leaf).unwrap(), 0x15);
    let repaired = EmbeddedStore::repair(directory.path()).unwrap();
    let lost: Vec<String> = repaired.lost.iter().map(Lost::to_string).collect();
    assert_eq!(lost, ["run r2: a message from it to another run was in a damaged row of the outbox"]);
    assert_eq!(block_on(open(directory.path()).outbox_messages(1_000)).unwrap().len(), messages - 1);
}

/// Repairs a directory with a damaged write-ahead log: each log is one that existed at some time, or its loss is reported.
#[track_caller]
pub fn assert_repaired(directory: &Path, known: &[Memory]) {
    let repaired = EmbeddedStore::repair(directory).unwrap();
    assert!(repaired.log_damage.is_some() && repaired.aside.is_some());
    let store = open(directory);
    assert!(store.damage().is_none());
    let named = lost_runs(&repaired);
    for head in block_on(store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() })).unwrap().runs {
        let Some(found) = log_of(&store, &head.key) else {
            assert!(named.contains(&head.key), "{} cannot be read: {:?}", head.key, repaired.lost);
            continue;
        };
        let is_prefix = |memory: &Memory| {
            let run = memory.runs.iter().find(|(known, _)| known.key == head.key);
            run.is_some_and(|(_, records)| records.starts_with(&found))
        };
        assert!(named.contains(&head.key) || known.iter().any(is_prefix), "{} never had this log", head.key);
    }
    block_on(store.start_run(new_run("after"), None)).unwrap();
}

#[test]
fn frames_behind_a_bad_one_are_kept() {
    let (original, answered) = killed("after_reply:58");
    let directory = copy(original.path());
    // The first frame of the log: SQLite would drop the whole log.
    flip(&directory.path().join("onward.db-wal"), 32 + 24 + 4_000, 1);
    let repaired = EmbeddedStore::repair(directory.path()).unwrap();
    let found = remember(&open(directory.path()));
    let whole = expected(answered);
    assert!(found.runs.len() + repaired.lost.len() + 1 >= whole.runs.len(), "{:?}", repaired.lost);
    let newest = |memory: &Memory| memory.runs.iter().map(|(head, _)| head.updated_at).max();
    assert_eq!(newest(&found), newest(&whole), "the last commit is there");
}

#[test]
fn what_is_whole_is_not_touched() {
    let original = many_runs();
    let before = std::fs::read(original.path().join("onward.db")).unwrap();
    let repaired = EmbeddedStore::repair(original.path()).unwrap();
    assert_eq!((repaired.aside, repaired.lost.len(), repaired.damaged_rows), (None, 0, 0));
    assert!(repaired.runs > RUNS as u64 && repaired.events > 5 * RUNS as u64);
    assert_eq!(std::fs::read(original.path().join("onward.db")).unwrap(), before);
    let store = open(original.path());
    assert_eq!(EmbeddedStore::repair(original.path()).unwrap_err().code(), "directory_locked");
    drop(store);
    let strange = tempfile::tempdir().unwrap();
    std::fs::write(strange.path().join("onward.db"), vec![7; 3 * PAGE]).unwrap();
    assert_eq!(EmbeddedStore::repair(strange.path()).unwrap_err().code(), "directory_foreign");
}

/// Rows of a deleted run are still on free pages, in former leaves, and in unused parts of leaves: they stay deleted.
#[test]
fn a_repair_brings_no_deleted_run_back() {
    let original = many_runs();
    let store = open(original.path());
    // The last run is the last on its leaf: neither its row nor its offset is overwritten.
    for run in (0..RUNS).step_by(2).chain([RUNS - 1]) {
        let id = format!("many-{run}");
        let terminate = onward_core::event::TerminateRequested { reason: String::new(), reset_to: None };
        block_on(store.append_input(key(&id), Input::new(terminate))).unwrap();
        block_on(store.delete_runs(onward_store::Delete::Run { key: key(&id), reason: String::new() })).unwrap();
    }
    drop(store);
    let whole = remember(&open(original.path()));
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let inner = (1..bytes.len() / PAGE).filter(|page| bytes[page * PAGE] == 0x05);
    for page in inner.chain([1]) {
        assert!(repair_changed(original.path(), &whole, page * PAGE + 3_000).is_empty());
    }
    let mut random = Random::seeded("leaves with deleted rows");
    let leaves: Vec<usize> = (1..bytes.len() / PAGE).filter(|page| is_leaf(&bytes, *page)).collect();
    let last = format!("many-{}", RUNS - 1);
    let has_last = |page: &&usize| bytes[**page * PAGE..][..PAGE].windows(last.len()).any(|found| found == last.as_bytes());
    let stale: Vec<usize> = leaves.iter().filter(has_last).copied().collect();
    assert!(!stale.is_empty());
    for (page, offset) in stale.iter().flat_map(|page| [4, 7, PAGE - 1].map(|offset| (page, offset))) {
        repair_changed(original.path(), &whole, page * PAGE + offset);
    }
    for _ in 0..rounds(2, 100) {
        let page = leaves[random.below(leaves.len() as u64) as usize];
        let offset = [3, 4, random.below(8), 8 + random.below(500), 508 + random.below(7_684)][random.below(5) as usize];
        repair_changed(original.path(), &whole, page * PAGE + offset as usize);
    }
}

/// Returns a closed directory of a few runs with an attribute each, so that the numbers of runs and of attributes are the same.
fn runs_with_attributes() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for run in 0..12 {
        let mut new = new_run(&format!("order-{run}"));
        new.started.attributes = vec![Attribute { name: name("customer"), value: AttributeValue::Text(format!("c{run}")) }];
        block_on(store.start_run(new, None)).unwrap();
    }
    drop(store);
    directory
}

/// Returns the only page of a small table or index.
fn page_of(directory: &Path, tree: &str) -> usize {
    let copied = copy(directory);
    let db = rusqlite::Connection::open(copied.path().join("onward.db")).unwrap();
    let sql = "SELECT rootpage - 1 FROM sqlite_schema WHERE name = ?1";
    db.query_row(sql, [tree], |row| row.get::<_, u32>(0)).unwrap() as usize
}

/// The row of a run has two copies of its key, and each index of runs another.
#[test]
fn a_run_whose_row_is_unreadable_keeps_its_id_if_an_index_has_it() {
    let original = runs_with_attributes();
    let whole = remember(&open(original.path()));
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let row_page = page_of(original.path(), "runs");
    assert!(is_leaf(&bytes, row_page), "the rows fit one page");
    let offset = |row: usize| usize::from(u16::from_be_bytes([0, 1].map(|byte| bytes[row_page * PAGE + 8 + 2 * row + byte])));
    let indexes = ["runs_key", "runs_created", "runs_kind", "runs_status"].map(|index| page_of(original.path(), index));
    // Length, number and column types of a row: without them neither copy is found.
    for (row, byte) in [(0, 0), (5, 2), (5, 4), (7, 3), (11, 1)] {
        let spared = indexes.iter().map(Some).chain([None]);
        for spared in spared {
            let directory = copy(original.path());
            let file = directory.path().join("onward.db");
            flip(&file, row_page * PAGE + offset(row) + byte, 0x05);
            // With one index left, or with all.
            let damaged = indexes.iter().filter(|index| spared.is_some_and(|spared| spared != *index));
            damaged.for_each(|index| flip(&file, index * PAGE + PAGE / 2, 0x10));
            let repaired = EmbeddedStore::repair(directory.path()).unwrap();
            assert_eq!(repaired.lost, [], "byte {byte} of row {row}, index {spared:?} of {indexes:?}");
            assert_eq!(remember(&open(directory.path())), whole, "byte {byte} of row {row}, index {spared:?} of {indexes:?}");
            assert_eq!(EmbeddedStore::damaged_rows(directory.path()).unwrap(), [""; 0]);
        }
    }
}

/// A crash during the exchange of files: the next opening finishes it from any step.
#[test]
fn an_exchange_that_was_begun_is_finished_by_the_next_opening() {
    let (original, _) = killed("after_reply:58");
    let repaired = copy(original.path());
    flip(&repaired.path().join("onward.db-wal"), 32 + 24 + 4_000, 1);
    let damaged = copy(repaired.path());
    let report = EmbeddedStore::repair(repaired.path()).unwrap();
    let opened = copy(repaired.path());
    let whole = remember(&open(opened.path()));
    let aside = report.aside.unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    for moved in 0..=4 {
        let directory = copy(damaged.path());
        std::fs::create_dir(directory.path().join(&aside)).unwrap();
        std::fs::copy(repaired.path().join("onward.db"), directory.path().join("onward.db.new")).unwrap();
        std::fs::write(directory.path().join("onward.repair"), &aside).unwrap();
        for name in ["onward.db-wal", "onward.db-shm", "onward.synced", "onward.db"].iter().take(moved) {
            let _ = std::fs::rename(directory.path().join(name), directory.path().join(&aside).join(name));
        }
        assert_eq!(remember(&open(directory.path())), whole, "{moved} files were moved");
        assert!(!directory.path().join("onward.repair").exists());
        assert!(directory.path().join(&aside).join("onward.db").exists());
    }
}
