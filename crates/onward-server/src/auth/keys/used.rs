//! Times at which keys were last used, to the minute, in a file that the server writes (G5).
//!
//! Helps to find keys that are no longer used. Nothing depends on the file, so it is written in the background and write errors
//! are ignored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use onward_core::Timestamp;

use super::file::KeyFile;
use crate::auth::secret_file::write_whole;

/// Resolution of the times, and so the shortest time between two writes for one key.
const COARSE_MS: u64 = 60_000;

const SUFFIX: &str = ".used";

type Times = BTreeMap<String, Timestamp>;

#[derive(Default)]
pub(super) struct Used {
    times: Arc<Mutex<Times>>,
}

pub(super) fn read(keys: &KeyFile) -> Times {
    let text = std::fs::read(keys.beside(SUFFIX)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

impl Used {
    pub fn read(keys: &KeyFile) -> Used {
        Used { times: Arc::new(Mutex::new(read(keys))) }
    }

    pub fn note(&self, keys: &KeyFile, id: &str, now: Timestamp) {
        let minute = Timestamp(now.0 - now.0 % COARSE_MS);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.get(id).is_some_and(|before| *before >= minute) {
            return;
        }
        times.insert(id.to_owned(), minute);
        drop(times);
        let (times, keys) = (self.times.clone(), keys.clone());
        tokio::task::spawn_blocking(move || write(&keys, &times));
    }
}

/// Serializes writers, which share the temporary file.
static WRITING: Mutex<()> = Mutex::new(());

fn write(keys: &KeyFile, times: &Mutex<Times>) {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = serde_json::to_string_pretty(&*times.lock().unwrap_or_else(PoisonError::into_inner));
    let text = text.expect("times serialize") + "\n";
    let unfinished = keys.beside(&format!("{SUFFIX}.{}", std::process::id()));
    drop(write_whole(&keys.beside(SUFFIX), &unfinished, text.as_bytes()));
}
