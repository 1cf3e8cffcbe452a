//! One changed byte at a known offset of a leaf of `runs`: lists stay complete, and no run with an intact log is lost (I9).

use std::path::Path;

use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store};
use onward_store_embedded::{EmbeddedStore, Options};

use crate::damage::copy;
use crate::flips::flip;
use crate::workload::{key, new_run, open};

const PAGE: usize = 8_192;
const RUNS: usize = 120;
const DAMAGED: &str = "many-060";

/// Returns a closed directory with runs that have one record each.
fn runs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    (0..RUNS).for_each(|run| drop(block_on(store.start_run(new_run(&format!("many-{run:03}")), None)).unwrap()));
    drop(store);
    directory
}

/// Position of the row of a run in the database file.
#[derive(Debug, Clone, Copy)]
struct CellLocation {
    page: usize,
    /// Position among the rows of its page.
    number: usize,
    cell: usize,
    /// The header of the record: its length, then the column types.
    header: usize,
    body: usize,
}

fn varint(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let mut value = 0;
    loop {
        value = value << 7 | usize::from(bytes[at] & 0x7f);
        at += 1;
        if bytes[at - 1] & 0x80 == 0 {
            return (value, at);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Finds the row with 17 columns, as rows of `runs` have, that contains the id.
fn cell_of(bytes: &[u8], id: &str) -> CellLocation {
    for page in (1..bytes.len() / PAGE).map(|page| page * PAGE).filter(|page| bytes[*page] == 0x0d) {
        for number in 0..word(bytes, page + 3) {
            let cell = page + word(bytes, page + 8 + 2 * number);
            let (length, at) = varint(bytes, cell);
            let (_, header) = varint(bytes, at);
            let (header_length, mut at) = varint(bytes, header);
            let (body, mut columns) = (header + header_length, 0);
            while at < body {
                at = varint(bytes, at).1;
                columns += 1;
            }
            let content = &bytes[body..header + length];
            if columns == 17 && content.windows(id.len()).any(|found| found == id.as_bytes()) {
                return CellLocation { page, number, cell, header, body };
            }
        }
    }
    panic!("no row of {id}")
}

/// Returns offsets of the row and its page header, each with a description.
fn offsets(bytes: &[u8], id: &str) -> Vec<(&'static str, usize)> {
    let CellLocation { page, number, cell, header, body } = cell_of(bytes, id);
    let id_at = body + bytes[body..].windows(id.len()).position(|found| found == id.as_bytes()).unwrap();
    vec![
        ("length of the row", cell),
        ("number of the row", varint(bytes, cell).1),
        ("length of the record's header", header),
        ("type of the namespace", header + 3),
        ("type of the id", header + 4),
        ("type of the last columns", body - 1),
        ("namespace", id_at - 1),
        ("id", id_at + 3),
        ("offset of the row", page + 8 + 2 * number),
        ("offset of the row, low byte", page + 9 + 2 * number),
        ("type of the page", page),
        ("first free block", page + 1),
        ("count of rows, high byte", page + 3),
        ("count of rows", page + 4),
        ("beginning of the content", page + 5),
        ("count of fragments", page + 7),
    ]
}

fn listed(store: &EmbeddedStore, query: &RunQuery) -> Vec<String> {
    let (mut query, mut ids) = (query.clone(), Vec::new());
    loop {
        let page = block_on(store.list_runs(query.clone())).unwrap();
        ids.extend(page.runs.iter().map(|head| head.key.id.to_string()));
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return ids,
        }
    }
}

fn all() -> Vec<String> {
    (0..RUNS).rev().map(|run| format!("many-{run:03}")).collect()
}

fn damaged_copies() -> impl Iterator<Item = (String, tempfile::TempDir)> {
    let original = runs();
    let bytes = std::fs::read(original.path().join("onward.db")).unwrap();
    let offsets = offsets(&bytes, DAMAGED);
    offsets.into_iter().flat_map(|(what, at)| [0x80, 0x20, 0x01].map(|bits| (what, at, bits))).map(move |(what, at, bits)| {
        let directory = copy(original.path());
        flip(&directory.path().join("onward.db"), at, bits);
        (format!("{what} (byte {at}, bits {bits:#x})"), directory)
    })
}

/// Checks that lists are complete in pages of one, as `GET /v1/export` uses, of seven, and all at once.
fn assert_lists_whole(what: &str, directory: &Path, store: &EmbeddedStore) {
    let mut wanted = all();
    wanted.sort();
    for limit in [1, 7, 1_000] {
        let queries = [
            RunQuery { limit, ..RunQuery::default() },
            RunQuery { limit, kind: Some(crate::workload::name("order")), versions: vec![None], ..RunQuery::default() },
            RunQuery { limit, statuses: vec![onward_core::Status::Pending], versions: vec![None], ..RunQuery::default() },
        ];
        for query in queries {
            let mut found = listed(store, &query);
            found.sort();
            assert_eq!(found, wanted, "{what}: {limit} of {} at a time", directory.display());
        }
    }
}

#[test]
fn a_damaged_row_of_a_run_shortens_no_list_of_a_reader() {
    for (what, directory) in damaged_copies() {
        let store = EmbeddedStore::open_read_only(directory.path()).unwrap();
        assert_lists_whole(&what, directory.path(), &store);
        for id in all() {
            let head = block_on(store.read_run(key(&id), None)).unwrap_or_else(|error| panic!("{what}: {id}: {error}"));
            assert_eq!(head.unwrap().key, key(&id), "{what}");
            let log = block_on(store.read_log(key(&id), None, onward_core::Index(0), 10));
            assert_eq!(log.unwrap().len(), 1, "{what}: {id}");
        }
    }
}

#[test]
fn a_damaged_row_of_a_run_is_made_again_while_the_store_runs() {
    for (what, directory) in damaged_copies() {
        let store = EmbeddedStore::open(directory.path(), Options::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_lists_whole(&what, directory.path(), &store);
        let terminate = |id: &str| {
            let terminate = onward_core::event::TerminateRequested { reason: String::new(), reset_to: None };
            block_on(store.append_input(key(id), onward_core::run::Input::new(terminate)))
        };
        // Writes the neighboring rows, and so the page.
        for id in all() {
            let ended = terminate(&id).or_else(|_| terminate(&id));
            assert!(ended.is_ok(), "{what}: {id}: {ended:?}");
        }
        drop(store);
        assert_eq!(EmbeddedStore::damaged_rows(directory.path()).unwrap(), Vec::<String>::new(), "{what}");
        let ended = RunQuery { limit: 7, statuses: vec![onward_core::Status::Terminated], ..RunQuery::default() };
        assert_eq!(listed(&open(directory.path()), &ended).len(), RUNS, "{what}");
    }
}

/// Removes the checksums of all pages, like a program that writes without our VFS.
fn take_sums(directory: &Path) {
    let file = directory.join("onward.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.chunks_exact_mut(PAGE).for_each(|page| page[PAGE - 8..].fill(0));
    std::fs::write(file, bytes).unwrap();
}

/// Writing a neighbor gives the page a new checksum: the damaged row is still detected.
#[test]
fn a_damaged_row_in_a_page_that_was_written_again_is_named() {
    let directory = runs();
    let file = directory.path().join("onward.db");
    let offsets = offsets(&std::fs::read(&file).unwrap(), DAMAGED);
    flip(&file, offsets.iter().find(|(what, _)| *what == "id").unwrap().1, 0x02);
    take_sums(directory.path());
    assert_eq!(EmbeddedStore::damaged_pages(directory.path()).unwrap(), Vec::<u64>::new());
    let damaged = EmbeddedStore::damaged_rows(directory.path()).unwrap();
    assert!(damaged.len() == 1 && damaged[0].contains(DAMAGED), "{damaged:?}");
}

#[test]
fn a_run_whose_log_is_whole_survives_the_repair_of_its_row() {
    for (what, directory) in damaged_copies() {
        let repaired = EmbeddedStore::repair(directory.path()).unwrap();
        assert!(repaired.aside.is_some() && repaired.lost.is_empty(), "{what}: {:?}", repaired.lost);
        let mut found = listed(&open(directory.path()), &RunQuery { limit: 7, ..RunQuery::default() });
        found.sort();
        let mut wanted = all();
        wanted.sort();
        assert_eq!(found, wanted, "{what}");
    }
}

/// Each log needs a row, and each row a log.
#[test]
fn a_log_without_a_row_and_a_row_without_a_log_are_named() {
    for table in ["runs", "events"] {
        let directory = runs();
        assert_eq!(EmbeddedStore::damaged_rows(directory.path()).unwrap(), Vec::<String>::new());
        let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
        assert_eq!(db.execute(&format!("DELETE FROM {table} WHERE rk = 7"), []).unwrap(), 1);
        drop(db);
        take_sums(directory.path());
        let damaged = EmbeddedStore::damaged_rows(directory.path()).unwrap();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
    }
}
