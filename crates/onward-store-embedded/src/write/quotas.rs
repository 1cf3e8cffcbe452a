//! Quotas of namespaces, and what counts for them.
//!
//! The one writer thread makes starts and claims one after the other, so no lock is needed, and it knows every change of a quota and
//! every cost: both are kept in memory once they were read, and forgotten with the cached runs when a batch is undone.

use onward_core::quota::QuotaSettings;
use onward_core::quota::settings::QUOTA_KIND;
use onward_core::spend::PicoDollars;
use onward_core::{KindSchemas, Namespace};
use rusqlite::{Connection, params};

use crate::error::{OpError, Outcome};
use crate::read::ledger;
use crate::row::{Statements, number, unseal};
use crate::write::writer::Writer;

/// Counts open runs, without internal ones.
pub(crate) const OPEN_RUNS: &str = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE current = 1 AND ns = ?1 AND status < 4
  AND substr(kind, 1, 5) <> 'memo:' AND substr(kind, 1, 9) <> 'schedule:' LIMIT ?2)";

/// Counts the leases of tasks.
pub(crate) const LEASES: &str = "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 1 AND ns = ?1 LIMIT ?2)";

/// Namespaces whose quotas, and days whose costs, are kept in memory.
const KEPT_MAX: usize = 10_000;

/// Reads all quotas, when the store is opened. A damaged row is reported by the writes that need it.
pub(crate) fn read_all(db: &Connection) -> rusqlite::Result<Vec<KindSchemas>> {
    let sql = "SELECT data FROM kinds WHERE task = 0 AND kind = ?1 AND version = ''";
    let rows = db.all(sql, [QUOTA_KIND], |row| row.get::<_, Vec<u8>>(0))?;
    Ok(rows.iter().filter_map(|data| unseal("a quota", data).ok()).collect())
}

impl Writer<'_> {
    /// Returns the quota of a namespace. A damaged row is an error: a limit must not vanish.
    pub(super) fn quota_of(&mut self, namespace: &Namespace) -> Outcome<Option<QuotaSettings>> {
        if let Some(known) = self.quotas.get(namespace) {
            return Ok(known.clone());
        }
        let sql = "SELECT data FROM kinds WHERE ns = ?1 AND task = 0 AND kind = ?2 AND version = ''";
        let data = self.db.one(sql, params![namespace.as_str(), QUOTA_KIND], |row| row.get::<_, Vec<u8>>(0))?;
        let row: Option<KindSchemas> = data.map(|data| unseal("a quota", &data)).transpose()?;
        let quota = row.and_then(|row| row.quota).map(|quota| *quota);
        if self.quotas.len() >= KEPT_MAX {
            self.quotas.clear();
        }
        self.quotas.insert(namespace.clone(), quota.clone());
        Ok(quota)
    }

    pub(super) fn open_runs_of(&self, namespace: &Namespace, limit: u64) -> Outcome<u64> {
        let count: Option<i64> = self.db.one(OPEN_RUNS, params![namespace.as_str(), number(limit)], |row| row.get(0))?;
        Ok(count.unwrap_or_default() as u64)
    }

    pub(super) fn leases_of(&self, namespace: &Namespace, limit: u32) -> Outcome<u32> {
        let count: Option<i64> = self.db.one(LEASES, params![namespace.as_str(), limit], |row| row.get(0))?;
        Ok(count.unwrap_or_default() as u32)
    }

    /// Returns the cost of a day, from the ledger or from memory.
    pub(super) fn spent_by(&mut self, namespace: &Namespace, day: u32) -> Outcome<PicoDollars> {
        let key = (namespace.clone(), day);
        if let Some(known) = self.spent.get(&key) {
            return Ok(*known);
        }
        let spent = ledger::spent_on(self.db, namespace, day).map_err(OpError::Damaged)?;
        if self.spent.len() >= KEPT_MAX {
            self.spent.clear();
        }
        self.spent.insert(key, spent);
        Ok(spent)
    }

    /// Adds a cost to a sum that is in memory; another one is read from the ledger when it is needed.
    pub(super) fn note_spent(&mut self, namespace: &Namespace, day: u32, cost: PicoDollars) {
        if !self.spent.is_empty()
            && let Some(spent) = self.spent.get_mut(&(namespace.clone(), day))
        {
            *spent = spent.plus(cost);
        }
    }

    /// Forgets what was read, after a batch was undone or a quota has changed.
    pub(super) fn forget_quotas(&mut self) {
        self.quotas.clear();
        self.spent.clear();
    }
}
