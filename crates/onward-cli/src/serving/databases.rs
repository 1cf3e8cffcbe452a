//! Readiness and metrics of a server's databases.
//!
//! Must never show a password, and never query the databases more often because of more readiness requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_server::{DatabaseState, Figure, Probe, Sample};
use onward_store_postgres::sharded::ShardedStore;
use onward_store_postgres::{COMMIT_BOUNDS, PostgresStore, Stats};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Response time after which a database counts as down.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Lifetime of cached states.
const PAUSE: Duration = Duration::from_millis(500);

/// The databases of one store, by their names without passwords.
pub struct Databases {
    all: Vec<(String, Arc<PostgresStore>)>,
    /// Set for several databases; knows whether each is the expected shard.
    spread: Option<Arc<ShardedStore>>,
    seen: Mutex<Option<(Instant, Vec<DatabaseState>)>>,
}

impl Databases {
    pub fn new(all: Vec<(String, Arc<PostgresStore>)>, spread: Option<Arc<ShardedStore>>) -> Databases {
        Databases { all, spread, seen: Mutex::default() }
    }

    /// Returns the cached states, or checks all databases. Concurrent callers share one check.
    async fn states(&self) -> Vec<DatabaseState> {
        let mut seen = self.seen.lock().await;
        if let Some((at, states)) = &*seen
            && at.elapsed() < PAUSE
        {
            return states.clone();
        }
        let asked = self.all.iter().map(|(_, store)| tokio::spawn(ask(store.clone()))).collect::<Vec<_>>();
        let mut answers = Vec::new();
        for asked in asked {
            answers.push(asked.await.unwrap_or_else(|error| Some(error.to_string())));
        }
        // A database that answers but is not used, because it is not the expected shard, counts as down.
        let unused = self.spread.as_ref().map(|spread| spread.health()).unwrap_or_default();
        let unused = unused.into_iter().map(|health| health.down.map(|(_, why)| why)).chain(std::iter::repeat(None));
        let states = self.all.iter().zip(answers).zip(unused);
        let states = states.map(|(((name, _), answer), unused)| DatabaseState { name: name.clone(), down: answer.or(unused) });
        let states: Vec<DatabaseState> = states.collect();
        *seen = Some((Instant::now(), states.clone()));
        states
    }

    /// Builds a metric with samples of each database.
    fn each(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        of: impl Fn(&Stats) -> Vec<(&'static str, Option<String>, f64)>,
    ) -> Figure {
        let samples = self.all.iter().flat_map(|(database, store)| {
            of(&store.stats()).into_iter().map(|(suffix, le, value)| {
                let labels = std::iter::once(("database", database.clone())).chain(le.map(|le| ("le", le))).collect();
                Sample { suffix, labels, value }
            })
        });
        Figure { name, help, kind, samples: samples.collect() }
    }
}

/// Checks a database and returns why it is down, if it is.
async fn ask(store: Arc<PostgresStore>) -> Option<String> {
    match timeout(ANSWER_MAX, store.check()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(store.trouble().unwrap_or_else(|| "no response".to_owned())),
    }
}

impl Probe for Databases {
    fn databases(&self) -> Pin<Box<dyn Future<Output = Vec<DatabaseState>> + Send + '_>> {
        Box::pin(self.states())
    }

    fn figures(&self) -> Vec<Figure> {
        let one = |value: u64| vec![("", None, value as f64)];
        vec![
            self.each("onward_store_connections", "Open connections to the database", "gauge", |stats| one(stats.connections)),
            self.each("onward_store_batches_total", "Transactions with appends", "counter", |stats| one(stats.batches)),
            self.each("onward_store_operations_total", "Operations in these transactions", "counter", |stats| {
                one(stats.operations)
            }),
            self.each("onward_store_retries_total", "Retried transactions", "counter", |stats| one(stats.retries)),
            self.each(
                "onward_store_unknown_total",
                "Operations with unknown outcome after a lost connection",
                "counter",
                |stats| one(stats.unknown),
            ),
            self.each("onward_store_moves_total", "Times that all leases were revoked", "counter", |stats| one(stats.moves)),
            self.each("onward_store_commit_seconds", "Duration of transactions with appends", "histogram", histogram),
        ]
    }
}

/// Builds the cumulative buckets of a Prometheus histogram.
fn histogram(stats: &Stats) -> Vec<(&'static str, Option<String>, f64)> {
    let mut sum = 0;
    let bounds = COMMIT_BOUNDS.iter().map(|bound| (*bound as f64 / 1_000.0).to_string()).chain(["+Inf".to_owned()]);
    let mut samples: Vec<_> = bounds
        .zip(stats.commits)
        .map(|(bound, count)| {
            sum += count;
            ("_bucket", Some(bound), sum as f64)
        })
        .collect();
    samples.extend([("_sum", None, stats.commit_time.as_secs_f64()), ("_count", None, sum as f64)]);
    samples
}
