//! What a namespace uses of what quotas limit.

use onward_core::quota::QuotaUse;
use onward_core::spend::day_of;
use onward_core::{Namespace, Timestamp};
use onward_store::StoreError;
use onward_store::unit_of_work::quotas::starts_of;
use rusqlite::{Connection, params};

use crate::error::read_error;
use crate::read::ledger;
use crate::row::{Statements, unseal};
use crate::write::quotas::{LEASES, OPEN_RUNS};

pub(crate) fn quota_use(db: &Connection, namespace: &Namespace, now: Timestamp) -> Result<QuotaUse, StoreError> {
    let count = |sql: &str| {
        let count: Option<i64> = db.one(sql, params![namespace.as_str(), i64::MAX], |row| row.get(0)).map_err(read_error)?;
        Ok::<u64, StoreError>(count.unwrap_or_default() as u64)
    };
    let sql = "SELECT data FROM queue_keys WHERE ns = ?1 AND queue = ?2 AND qkey = ''";
    let starts = match starts_of(namespace) {
        Some(of) => {
            db.one(sql, params![namespace.as_str(), of.queue_text()], |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?
        }
        None => None,
    };
    Ok(QuotaUse {
        runs_open: count(OPEN_RUNS)?,
        tasks_running: count(LEASES)?,
        spent_today: ledger::spent_on(db, namespace, day_of(now))?,
        starts: starts.and_then(|data| unseal("starts of a namespace", &data).ok()),
    })
}
