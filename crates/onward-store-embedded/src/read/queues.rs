//! The keys of a queue.

use onward_core::queue::load::KeyLoad;
use onward_core::queue::{KeyUse, QueueStarts, QueueUse};
use onward_core::{Name, Namespace, Timestamp};
use onward_store::StoreError;
use onward_store::durable::seal::damaged;
use rusqlite::{Connection, Row, params};

use crate::error::read_error;
use crate::row::{Statements, number, unseal};

/// Sums the open tasks of a queue by key, and adds what began lately. Scans the tasks of the namespace, as other lists of
/// operators do.
const KEYS: &str = "SELECT t.qkey, sum(t.state = 0), sum(t.state = 1), min(CASE WHEN t.state = 0 THEN t.visible END) AS oldest,
    (SELECT s.data FROM queue_keys s WHERE s.ns = ?1 AND s.queue = ?2 AND s.qkey = t.qkey AND t.qkey <> ''),
    sum(CASE WHEN t.state = 1 THEN t.slots ELSE 0 END)
  FROM tasks t WHERE t.ns = ?1 AND t.queue = ?2 AND t.state IN (0, 1) GROUP BY t.qkey
  ORDER BY oldest IS NULL, oldest, t.qkey LIMIT ?3";

pub(crate) fn list_keys(
    db: &Connection,
    namespace: &Namespace,
    queue: Option<&Name>,
    limit: usize,
) -> Result<Vec<KeyLoad>, StoreError> {
    type Columns = (String, i64, i64, Option<i64>, Option<Vec<u8>>, i64);
    let read = |row: &Row<'_>| Ok::<Columns, _>((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?));
    let params = params![namespace.as_str(), queue.map_or("", Name::as_str), number(limit)];
    let rows = db.all(KEYS, params, read).map_err(read_error)?;
    let load = |(key, waiting, running, oldest, starts, held): Columns| {
        let unreadable = |_| damaged("a task's row", "its key is not readable");
        let key = (!key.is_empty()).then(|| Name::new(key)).transpose().map_err(unreadable)?;
        let oldest_at = oldest.map(|at| Timestamp(at as u64));
        let starts = starts.and_then(|data| unseal("starts of a queue", &data).ok());
        Ok(KeyLoad { key, waiting: waiting as u64, running: running as u64, oldest_at, starts, held: held as u64 })
    };
    rows.into_iter().map(load).collect()
}

/// The slots that the leases of a queue and of one of its keys hold, and what began lately; the empty key is that of the queue as a whole.
const HELD: &str = "SELECT coalesce(sum(slots), 0) FROM tasks WHERE state = 1 AND ns = ?1 AND queue = ?2";
const HELD_BY_KEY: &str = "SELECT coalesce(sum(slots), 0) FROM tasks WHERE state = 1 AND ns = ?1 AND queue = ?2 AND qkey = ?3";
const STARTS: &str = "SELECT data FROM queue_keys WHERE ns = ?1 AND queue = ?2 AND qkey = ?3";

pub(crate) fn read_use(
    db: &Connection,
    namespace: &Namespace,
    queue: Option<&Name>,
    keys: Vec<Name>,
) -> Result<QueueUse, StoreError> {
    let (ns, queue) = (namespace.as_str(), queue.map_or("", Name::as_str));
    let starts = |key: &str| {
        let data = db.one(STARTS, params![ns, queue, key], |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?;
        Ok::<_, StoreError>(data.and_then(|data| unseal::<QueueStarts>("starts of a queue", &data).ok()))
    };
    let held = db.one(HELD, params![ns, queue], |row| row.get::<_, i64>(0)).map_err(read_error)?;
    let of_key = |key: Name| {
        let held = db.one(HELD_BY_KEY, params![ns, queue, key.as_str()], |row| row.get::<_, i64>(0)).map_err(read_error)?;
        Ok::<_, StoreError>(KeyUse { held: held.unwrap_or_default() as u64, starts: starts(key.as_str())?, key })
    };
    let keys = keys.into_iter().map(of_key).collect::<Result<_, _>>()?;
    Ok(QueueUse { held: held.unwrap_or_default() as u64, starts: starts("")?, keys })
}
