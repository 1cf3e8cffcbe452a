//! The power fails: what was not synced is gone, from any byte on (F3).

use onward_store_embedded::{EmbeddedStore, Options};

use crate::story::{Memory, STEPS_PER_RUN, Teller, expected, open, remember};

const FRAME: u64 = 24 + 8192;
const STEPS: u64 = 2 * STEPS_PER_RUN;

#[test]
fn a_write_ahead_log_cut_anywhere_opens_with_a_prefix_of_the_story() {
    let directory = tempfile::tempdir().unwrap();
    let mut teller = Teller::default();
    let store = EmbeddedStore::open(directory.path(), Options { clock: teller.clock(), ..Options::default() }).unwrap();
    (0..STEPS).for_each(|step| teller.tell(&store, step).unwrap());
    // The files as they are while the store lives: closing would copy the log into the database.
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
            // Steps that write nothing a reader can see make several prefixes equal; the last of them is meant.
            let known = prefixes.iter().rposition(|memory| *memory == found);
            let known = known.unwrap_or_else(|| panic!("cut at {cut}: no prefix of the story"));
            assert!(known >= longest, "cut at {cut}: a longer log gave a shorter story");
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
