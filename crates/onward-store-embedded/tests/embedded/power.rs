//! Power loss: what was not synced is lost, from any byte on or in any part (F3).
//!
//! Another process performs the workload under the shim, which records every write, truncation and sync of the directory's files,
//! and every acknowledgment. Then the power fails after each of them: what was synced is there, and each sector of 512 bytes
//! written since is there or not: all, none, or a random choice. The directory must open without a repair, with everything that
//! had been acknowledged. File names are taken to be as durable as the last rename or removal: file systems journal them in
//! order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use onward_store_embedded::{EmbeddedStore, Options};

use crate::crash::run_child;
use crate::random::{Random, is_torture};
use crate::shim;
use crate::workload::{Memory, STEPS_PER_RUN, Workload, expected, open, remember};

const FRAME: u64 = 24 + 8192;
const STEPS: u64 = 2 * STEPS_PER_RUN;

#[test]
fn a_write_ahead_log_cut_anywhere_opens_with_a_prefix_of_the_story() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = Workload::default();
    let store = EmbeddedStore::open(directory.path(), Options { clock: workload.clock(), ..Options::default() }).unwrap();
    (0..STEPS).for_each(|step| workload.perform(&store, step).unwrap());
    // The files while the store is open: closing would copy the log into the database.
    let files: Vec<(&str, Vec<u8>)> =
        ["onward.db", "onward.db-wal"].map(|name| (name, std::fs::read(directory.path().join(name)).unwrap())).into();
    drop(store);
    let prefixes: Vec<Memory> = (0..=STEPS).map(expected).collect();
    let length = files[1].1.len() as u64;
    assert!(length > 40 * FRAME, "{length}");
    let mut longest = 0;
    for frame in 0..=(length - 32) / FRAME {
        for inside in [0, 1, 24, 4_000, 8_200] {
            let cut = (32 + frame * FRAME + inside).min(length);
            let found = open_cut(&files, cut);
            // Steps without a visible effect make several prefixes equal; the last of them is meant.
            let known = prefixes.iter().rposition(|memory| *memory == found);
            let known = known.unwrap_or_else(|| panic!("cut at {cut}: no prefix of the workload"));
            assert!(known >= longest, "cut at {cut}: a longer log has a shorter prefix");
            longest = known;
        }
    }
    assert_eq!(longest as u64, STEPS);
}

fn open_cut(files: &[(&str, Vec<u8>)], cut: u64) -> Memory {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let kept = if name.ends_with("-wal") { &bytes[..cut as usize] } else { &bytes[..] };
        std::fs::write(directory.path().join(name), kept).unwrap();
    }
    remember(&open(directory.path()))
}

const SECTOR: u64 = 512;

/// One operation on a file, or an acknowledgment.
pub struct Entry {
    pub what: u8,
    name: String,
    offset: u64,
    bytes: Vec<u8>,
}

/// Performs the workload in another process and returns its file operations.
pub fn record(environment: &[(&str, &str)]) -> Vec<Entry> {
    let directory = tempfile::tempdir().unwrap();
    let (library, file) = (shim::library(), directory.path().join("record"));
    let own = [("LD_PRELOAD", library.to_str().unwrap()), ("SHIM_RECORD", file.to_str().unwrap())];
    let ended = run_child("write", &directory.path().join("data"), &[&own, environment].concat());
    assert_eq!(ended.last_line, "child finished");
    let bytes = std::fs::read(file).unwrap();
    let mut rest = &bytes[..];
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count);
        rest = left;
        (taken, left.is_empty())
    };
    let mut entries = Vec::new();
    loop {
        let what = take(1).0[0];
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let length = number(take(8).0) as usize;
        let name = String::from_utf8(take(length).0.to_vec()).unwrap();
        let offset = number(take(8).0);
        let length = number(take(8).0) as usize;
        let (bytes, is_last) = take(length);
        entries.push(Entry { what, name, offset, bytes: bytes.to_vec() });
        if is_last {
            return entries;
        }
    }
}

/// A file on the disk: the synced content, and the changes since.
#[derive(Default)]
struct Disk {
    synced: Vec<u8>,
    since: Vec<Change>,
}

enum Change {
    Write(u64, Vec<u8>),
    Cut(u64),
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Change::Write(at, bytes) => {
                let (at, end) = (*at as usize, *at as usize + bytes.len());
                file.resize(file.len().max(end), 0);
                file[at..end].copy_from_slice(bytes);
            }
            Change::Cut(length) => file.resize(*length as usize, 0),
        }
    }

    /// Returns the parts that a disk writes one by one.
    fn sectors(&self) -> Vec<Change> {
        let Change::Write(at, bytes) = self else { return vec![Change::Cut(if let Change::Cut(at) = self { *at } else { 0 })] };
        let mut sectors = Vec::new();
        let (mut at, mut rest) = (*at, &bytes[..]);
        while !rest.is_empty() {
            let (sector, left) = rest.split_at(rest.len().min((SECTOR - at % SECTOR) as usize));
            sectors.push(Change::Write(at, sector.to_vec()));
            (at, rest) = (at + sector.len() as u64, left);
        }
        sectors
    }
}

/// The files of a directory, up to some entry.
#[derive(Default)]
struct Files {
    disks: BTreeMap<String, Disk>,
    answered: u64,
}

impl Files {
    fn follow(&mut self, entry: &Entry) {
        let name = entry.name.clone();
        match entry.what {
            b'W' => self.disks.entry(name).or_default().since.push(Change::Write(entry.offset, entry.bytes.clone())),
            b'T' => self.disks.entry(name).or_default().since.push(Change::Cut(entry.offset)),
            b'S' => {
                let disk = self.disks.entry(name).or_default();
                let since = std::mem::take(&mut disk.since);
                since.iter().for_each(|change| change.apply(&mut disk.synced));
            }
            b'U' => drop(self.disks.remove(&name)),
            b'R' => {
                let disk = self.disks.remove(&name).unwrap();
                self.disks.insert(String::from_utf8(entry.bytes.clone()).unwrap(), disk);
            }
            _ => self.answered += 1,
        }
    }

    /// Writes the files as a power loss now would leave them; `stays` decides about each sector.
    fn put_down(&self, directory: &Path, stays: &mut dyn FnMut() -> bool) {
        for (name, disk) in &self.disks {
            let mut file = disk.synced.clone();
            for change in disk.since.iter().flat_map(Change::sectors) {
                if stays() {
                    change.apply(&mut file);
                }
            }
            std::fs::write(directory.join(name), file).unwrap();
        }
    }
}

/// Checks that a directory opens without a repair, with everything acknowledged and at most one step more.
fn judge(directory: &Path, answered: u64, states: &[Memory]) -> Result<(), String> {
    let found = catch_unwind(AssertUnwindSafe(|| {
        let store = EmbeddedStore::open(directory, Options::default()).map_err(|error| error.to_string())?;
        match store.damage() {
            Some(damage) => Err(damage.to_string()),
            None => Ok(remember(&store)),
        }
    }));
    let found = found.map_err(|_| "it is unreadable".to_owned())??;
    let after = (answered as usize + 1).min(states.len() - 1);
    if found == states[answered as usize] || found == states[after] { Ok(()) } else { Err("it has other content".to_owned()) }
}

/// Simulates a power loss after the chosen entries; fails with the position of a loss.
fn fail_behind(entries: &[Entry], chosen: &dyn Fn(usize) -> bool, random: &mut Random) -> Result<(), String> {
    let states: Vec<Memory> = (0..=RECORDED).map(expected).collect();
    let mut files = Files::default();
    for (at, entry) in entries.iter().enumerate() {
        files.follow(entry);
        if !chosen(at) {
            continue;
        }
        for way in 0..4 {
            let directory =
                tempfile::tempdir_in(["/dev/shm", "/tmp"].into_iter().find(|path| Path::new(path).is_dir()).unwrap()).unwrap();
            let mut stays = || match way {
                0 => false,
                1 => true,
                2 => random.below(2) == 0,
                _ => random.below(8) > 0,
            };
            files.put_down(directory.path(), &mut stays);
            judge(directory.path(), files.answered, &states)
                .map_err(|why| format!("behind entry {at}, way {way}, {} steps answered: {why}", files.answered))?;
        }
    }
    assert_eq!(files.answered, RECORDED);
    Ok(())
}

/// Number of steps of the other process.
const RECORDED: u64 = 6 * STEPS_PER_RUN;

#[test]
fn when_the_power_fails_anywhere_everything_that_was_answered_is_there() {
    let mut random = Random::seeded("loss of power");
    let entries = record(&[]);
    let answers = entries.iter().filter(|entry| entry.what == b'A').count() as u64;
    let syncs = entries.iter().filter(|entry| entry.what == b'S').count() as u64;
    assert!(answers == RECORDED && syncs > RECORDED, "{answers} answers and {syncs} syncs");
    let every = if is_torture() { 1 } else { 1 + entries.len() as u64 / 16 };
    let first = random.below(every);
    fail_behind(&entries, &|at| at as u64 % every == first, &mut random).unwrap();
}

/// The test above can fail: with a store that does not sync before it acknowledges.
#[test]
fn a_store_that_does_not_sync_is_found_out() {
    for unsynced in ["all", "-wal"] {
        let mut random = Random::seeded("loss of power without syncs");
        let entries = record(&[("SHIM_UNSYNCED", unsynced)]);
        let answers: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].what == b'A').collect();
        let late = answers[answers.len() - 3];
        let why = fail_behind(&entries, &|at| at == late, &mut random).unwrap_err();
        assert!(why.contains("steps answered"), "{unsynced}: {why}");
    }
}
