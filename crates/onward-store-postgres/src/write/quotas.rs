//! Quotas of namespaces: their rows, which are locked, and what counts for them.
//!
//! Invariant DB14 (NQ1 to NQ4): a transaction that may start a run for a caller, or that claims tasks, locks the quota of each of its
//! namespaces before any other row. So these transactions of a namespace with a quota come one after the other, over all servers,
//! and each counts what the one before has written. The locks are taken in the order of the names; their holder may wait for
//! any other lock, whose holders wait for no quota.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use onward_core::quota::{QuotaSettings, QuotaUse, counts};
use onward_core::spend::{PicoDollars, day_of};
use onward_core::{KindSchemas, Namespace, Timestamp};
use onward_store::StoreError;
use onward_store::durable::limits::PayloadLimits;
use onward_store::durable::seal::{damaged, number, unseal};
use onward_store::sync::{lock, random_u64};
use onward_store::unit_of_work::quotas::starts_of;
use tokio_postgres::Row;

use crate::connection::sql::{Db, Sql};
use crate::error::{OpError, Outcome};
use crate::write::unit::UnitOfWork;

/// Locks the quotas of namespaces, in the order of their names (DB14).
const LOCK_QUOTAS: &str = "SELECT f.ns, f.data FROM unnest($1::text[]) AS k(ns) CROSS JOIN LATERAL (
    SELECT s.ns, s.data FROM onward.kinds s
      WHERE s.ns = k.ns AND NOT s.task AND s.kind = 'quota:' AND s.version = '' LIMIT 1 FOR UPDATE OF s) AS f";

/// Reads all quotas.
const QUOTAS: &str = "SELECT s.ns, s.data FROM onward.kinds s WHERE s.kind = 'quota:' AND NOT s.task AND s.version = ''";

/// Counts open runs, without internal ones.
const OPEN_RUNS: &str = "SELECT count(*) FROM (SELECT 1 FROM onward.runs r WHERE r.ns = $1 AND r.status < 4
    AND NOT starts_with(r.kind, 'memo:') AND NOT starts_with(r.kind, 'schedule:') LIMIT $2) AS c";

const LEASES: &str = "SELECT count(*) FROM (SELECT 1 FROM onward.tasks t WHERE t.state = 1 AND t.ns = $1 LIMIT $2) AS c";

const SPENT: &str =
    "SELECT least(coalesce(sum(s.cost), 0), 9223372036854775807)::bigint FROM onward.spent_days s WHERE s.ns = $1 AND s.day = $2";

/// The number of rows among which the cost of a day is divided.
const PARTS: u64 = 16;

/// The number of days after which the sum of a day is removed.
const DAYS_KEPT: u32 = 7;

/// The age at which the limits of payloads are read again, with the next write.
const LIMITS_AGE_MAX: Duration = Duration::from_secs(1);

/// The quotas that a transaction has locked; an error for a damaged row, which concerns only its namespace.
pub(crate) type LockedQuotas = BTreeMap<Namespace, Result<Option<QuotaSettings>, StoreError>>;

/// The costs that a transaction records, by namespace and day.
pub(crate) type Spent = BTreeMap<(Namespace, u32), PicoDollars>;

/// Limits of payloads, as they were read last.
#[derive(Default)]
pub(crate) struct KnownLimits {
    pub limits: PayloadLimits,
    read_at: Mutex<Option<Instant>>,
}

impl KnownLimits {
    /// Returns the statement that reads the limits again, if they are old.
    pub fn due(&self) -> Option<Sql> {
        let mut read_at = lock(&self.read_at);
        if read_at.is_some_and(|at| at.elapsed() < LIMITS_AGE_MAX) {
            return None;
        }
        *read_at = Some(Instant::now());
        Some(Sql::new(QUOTAS))
    }

    /// Replaces the limits by those that were read. A damaged row is reported by the writes that need it.
    pub fn learn(&self, rows: &[Row]) {
        let quotas: Vec<KindSchemas> = rows.iter().filter_map(|row| unseal("a quota", row.get(1)).ok()).collect();
        self.limits.replace(&quotas);
    }

    /// Reads the limits, when the store is opened.
    pub async fn read(&self, db: &Db) -> Outcome<()> {
        if let Some(sql) = self.due() {
            self.learn(&db.query(&sql).await?);
        }
        Ok(())
    }
}

/// Returns the statement that locks quotas.
pub(crate) fn lock_quotas(namespaces: &[Namespace]) -> Sql {
    Sql::new(LOCK_QUOTAS).texts(namespaces.iter().map(|namespace| namespace.as_str().to_owned()).collect())
}

/// Reads the quotas that were locked.
pub(crate) fn read_locked(namespaces: &[Namespace], rows: &[Row]) -> LockedQuotas {
    let mut quotas: LockedQuotas = namespaces.iter().map(|namespace| (namespace.clone(), Ok(None))).collect();
    for row in rows {
        let Ok(namespace) = Namespace::new(row.get::<_, &str>(0)) else { continue };
        // A damaged row is an error: a limit must not vanish.
        let quota = unseal::<KindSchemas>("a quota", row.get(1)).map(|row| row.quota.map(|quota| *quota));
        quotas.insert(namespace, quota);
    }
    quotas
}

impl UnitOfWork<'_> {
    /// Returns the quota of a namespace, which is locked (DB14).
    pub fn locked_quota(&self, namespace: &Namespace) -> Outcome<Option<QuotaSettings>> {
        debug_assert!(self.quotas.contains_key(namespace), "DB14: the quota of {namespace} was not locked");
        match self.quotas.get(namespace) {
            Some(Ok(quota)) => Ok(quota.clone()),
            Some(Err(_)) => Err(OpError::Refused(damaged("a quota", "its row is not readable"))),
            None => Ok(None),
        }
    }

    /// Counts open runs, with those that this transaction starts and without those that it ends.
    pub async fn open_runs_of(&mut self, namespace: &Namespace, limit: u64) -> Outcome<u64> {
        let (mut begun, mut ended) = (0, 0);
        for run in self.set.runs.iter().filter(|run| run.head.key.namespace == *namespace && counts(&run.head.kind)) {
            let was_open = run.own.stored.as_ref().is_some_and(|stored| !stored.columns.0.is_closed());
            let is_open = !run.head.status.is_closed();
            begun += u64::from(is_open && !was_open);
            ended += u64::from(was_open && !is_open);
        }
        let wanted = limit.saturating_add(ended);
        let stored = match self.open_runs.get(namespace) {
            // Everything was counted, or enough.
            Some((count, until)) if count < until || *until >= wanted => *count,
            _ => {
                let rows = self.db.query(&Sql::new(OPEN_RUNS).text(namespace.as_str()).number(number(wanted))).await?;
                let count = rows.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
                self.open_runs.insert(namespace.clone(), (count, wanted));
                count
            }
        };
        Ok((stored + begun).saturating_sub(ended).min(limit))
    }

    pub async fn leases_of(&self, namespace: &Namespace, limit: u32) -> Outcome<u32> {
        let rows = self.db.query(&Sql::new(LEASES).text(namespace.as_str()).number(i64::from(limit))).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)) as u32)
    }

    /// Sums what was spent, with what this transaction records.
    pub async fn spent_by(&self, namespace: &Namespace, day: u32) -> Outcome<PicoDollars> {
        let own = self.spent.get(&(namespace.clone(), day)).copied().unwrap_or_default();
        Ok(read_spent(self.db, namespace, day).await?.plus(own))
    }

    pub fn save_spent(&mut self, calls: &mut Vec<Sql>) {
        let spent = std::mem::take(&mut self.spent);
        if spent.is_empty() {
            return;
        }
        let oldest = day_of(self.set.now).saturating_sub(DAYS_KEPT);
        calls.push(
            Sql::call("add_spent")
                .texts(spent.keys().map(|(namespace, _)| namespace.as_str().to_owned()).collect())
                .numbers(spent.keys().map(|(_, day)| i64::from(*day)).collect())
                .numbers(spent.values().map(|cost| number(cost.0)).collect())
                .int((random_u64() % PARTS) as i32)
                .number(i64::from(oldest)),
        );
    }
}

async fn read_spent(db: &Db, namespace: &Namespace, day: u32) -> Outcome<PicoDollars> {
    let rows = db.query(&Sql::new(SPENT).text(namespace.as_str()).number(i64::from(day))).await?;
    Ok(PicoDollars(rows.first().map_or(0, |row| row.get::<_, i64>(0)) as u64))
}

/// Counts what a namespace uses.
pub(crate) async fn quota_use(db: &Db, namespace: &Namespace, now: Timestamp) -> Outcome<QuotaUse> {
    let count = async |text: &str| {
        let rows = db.query(&Sql::new(text).text(namespace.as_str()).number(i64::MAX)).await?;
        Outcome::Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)) as u64)
    };
    let (runs_open, tasks_running) = (count(OPEN_RUNS).await?, count(LEASES).await?);
    let spent_today = read_spent(db, namespace, day_of(now)).await?;
    let starts = match starts_of(namespace) {
        Some(of) => {
            let text = "SELECT data FROM onward.queue_keys WHERE ns = $1 AND queue = $2 AND qkey = ''";
            let rows = db.query(&Sql::new(text).text(namespace.as_str()).text(of.queue_text())).await?;
            rows.first().and_then(|row| unseal("starts of a namespace", row.get(0)).ok())
        }
        None => None,
    };
    Ok(QuotaUse { runs_open, tasks_running, spent_today, starts })
}
