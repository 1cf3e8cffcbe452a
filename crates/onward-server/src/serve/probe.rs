//! Health and counters of a store, for operators.

use std::future::{Future, ready};
use std::pin::Pin;

use onward_store_embedded::EmbeddedStore;

/// Health checks and counters that are not part of the store port.
pub trait Probe: Send + Sync {
    /// Returns why the store has stopped accepting writes for good; `None` if it has not.
    fn stopped(&self) -> Option<String> {
        None
    }

    /// Returns why the store does not accept writes at the moment; it may recover by itself.
    fn unwritable(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        Box::pin(ready(None))
    }

    /// Checks in a bounded time that each database answers and accepts writes. Returns an empty list for a store without
    /// databases, which is then checked as a whole.
    fn databases(&self) -> Pin<Box<dyn Future<Output = Vec<DatabaseState>> + Send + '_>> {
        Box::pin(ready(Vec::new()))
    }

    /// Returns the store's counters.
    fn figures(&self) -> Vec<Figure>;
}

/// Health of one database of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseState {
    /// Name of the database in messages. Contains no password: it is public.
    pub name: String,
    /// Reason why the database cannot be used; `None` if it can.
    pub down: Option<String>,
}

/// One metric of the metrics page. Labels come from fixed lists or from the operator's configuration (S30).
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
    /// Suffix of the metric's name; the samples of a histogram have three.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Figure {
    /// Returns a metric with one sample and no labels.
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
            ("onward_store_operations_total", "Operations in transactions", stats.operations as f64),
            ("onward_store_records_total", "Records appended to logs", stats.events as f64),
            ("onward_store_record_bytes_total", "Size of the records appended to logs", stats.event_bytes as f64),
            ("onward_store_checkpoints_total", "Copies of the write-ahead log into the database", stats.checkpoints as f64),
            ("onward_store_write_seconds_total", "Time spent deciding and writing rows", stats.sql.as_secs_f64()),
            ("onward_store_sync_seconds_total", "Time spent writing pages and syncing", stats.sync.as_secs_f64()),
        ];
        counters.map(|(name, help, value)| Figure::plain(name, help, "counter", value)).into()
    }
}
