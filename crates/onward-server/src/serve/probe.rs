//! What a store tells besides its port, for those who keep the server running: whether it works, and what it has done.

use std::future::{Future, ready};
use std::pin::Pin;

use onward_store_embedded::EmbeddedStore;

/// What is asked of a store that is not about runs.
pub trait Probe: Send + Sync {
    /// Why it takes no writes any more, if it does not.
    fn stopped(&self) -> Option<String> {
        None
    }

    /// Why it takes no writes for now, if it does not: it may again, by itself.
    fn unwritable(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        Box::pin(ready(None))
    }

    /// Asks its databases whether they answer and take writes, in a bounded time. Empty where the store is none of databases: then it is
    /// asked as a whole.
    fn databases(&self) -> Pin<Box<dyn Future<Output = Vec<DatabaseState>> + Send + '_>> {
        Box::pin(ready(Vec::new()))
    }

    /// What it counts.
    fn figures(&self) -> Vec<Figure>;
}

/// How one of a store's databases is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseState {
    /// The name that people know it by. Holds no password: everybody may read it.
    pub name: String,
    /// Why it cannot be used, if it cannot.
    pub down: Option<String>,
}

/// Something that is counted, as the page of metrics has it. Labels are from lists of our own or of whoever runs the server (S30).
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// What stands behind the name; a histogram has samples of three kinds.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Figure {
    /// One that has no labels.
    pub fn plain(name: &'static str, help: &'static str, kind: &'static str, value: f64) -> Figure {
        Figure { name, help, kind, samples: vec![Sample { value, ..Sample::default() }] }
    }
}

impl Probe for EmbeddedStore {
    fn stopped(&self) -> Option<String> {
        EmbeddedStore::stopped(self)
    }

    fn unwritable(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        Box::pin(async move { self.is_full().await.then(|| "the disk is full".to_owned()) })
    }

    fn figures(&self) -> Vec<Figure> {
        let stats = self.stats();
        let counters = [
            ("onward_store_batches_total", "Transactions, each with one sync", stats.batches as f64),
            ("onward_store_operations_total", "Operations in these transactions", stats.operations as f64),
            ("onward_store_records_total", "Records appended to logs", stats.events as f64),
            ("onward_store_record_bytes_total", "Their size", stats.event_bytes as f64),
            ("onward_store_checkpoints_total", "Copies of the write-ahead log into the database", stats.checkpoints as f64),
            ("onward_store_write_seconds_total", "Time spent deciding and writing rows", stats.sql.as_secs_f64()),
            ("onward_store_sync_seconds_total", "Time spent writing pages and syncing", stats.sync.as_secs_f64()),
        ];
        counters.map(|(name, help, value)| Figure::plain(name, help, "counter", value)).into()
    }
}
