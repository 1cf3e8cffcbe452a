//! The keys of a queue.

use onward_core::queue::load::KeyLoad;
use onward_core::queue::{KeyUse, QueueStarts, QueueUse};
use onward_core::{Name, Namespace, Timestamp};
use onward_store::durable::seal::{number, unseal};

use crate::connection::sql::{Db, Sql};
use crate::error::Outcome;
use crate::write::claim::text_of;

/// Sums the open tasks of a queue by key, and adds what began lately. Scans the tasks of the namespace, as other lists of
/// operators do.
const KEYS: &str = "SELECT f.qkey, f.waiting, f.running, f.oldest,
    (SELECT s.data FROM onward.queue_keys s WHERE s.ns = $1 AND s.queue = $2 AND s.qkey = f.qkey AND f.qkey <> ''), f.held
  FROM (SELECT t.qkey, coalesce(sum(t.slots) FILTER (WHERE t.state = 1), 0)::bigint AS held,
      count(*) FILTER (WHERE t.state = 0) AS waiting, count(*) FILTER (WHERE t.state = 1) AS running,
      min(t.visible) FILTER (WHERE t.state = 0) AS oldest
    FROM onward.tasks t WHERE t.ns = $1 AND t.queue = $2 AND t.state IN (0, 1) GROUP BY t.qkey
    ORDER BY oldest NULLS LAST, t.qkey LIMIT $3) AS f
  ORDER BY f.oldest NULLS LAST, f.qkey";

pub(crate) async fn list_keys(db: &Db, namespace: &Namespace, queue: Option<&Name>, limit: usize) -> Outcome<Vec<KeyLoad>> {
    let sql = Sql::new(KEYS).text(namespace.as_str()).text(text_of(queue)).number(number(limit));
    let rows = db.query(&sql).await?;
    let load = |row: &tokio_postgres::Row| KeyLoad {
        key: Name::new(row.get::<_, &str>(0)).ok(),
        waiting: row.get::<_, i64>(1) as u64,
        running: row.get::<_, i64>(2) as u64,
        oldest_at: row.get::<_, Option<i64>>(3).map(|at| Timestamp(at as u64)),
        starts: row.get::<_, Option<&[u8]>>(4).and_then(|data| unseal("starts of a queue", data).ok()),
        held: row.get::<_, i64>(5) as u64,
    };
    Ok(rows.iter().map(load).collect())
}

/// The slots that the leases of a queue hold, and what began lately in it.
const USE: &str =
    "SELECT (SELECT coalesce(sum(t.slots), 0)::bigint FROM onward.tasks t WHERE t.ns = $1 AND t.queue = $2 AND t.state = 1),
    (SELECT s.data FROM onward.queue_keys s WHERE s.ns = $1 AND s.queue = $2 AND s.qkey = '')";

/// The same for keys, in their order.
const USE_OF_KEYS: &str = "SELECT
    (SELECT coalesce(sum(t.slots), 0)::bigint FROM onward.tasks t WHERE t.ns = $1 AND t.queue = $2 AND t.state = 1 AND t.qkey = k.qkey),
    (SELECT s.data FROM onward.queue_keys s WHERE s.ns = $1 AND s.queue = $2 AND s.qkey = k.qkey)
  FROM unnest($3::text[]) WITH ORDINALITY AS k(qkey, n) ORDER BY k.n";

pub(crate) async fn read_use(db: &Db, namespace: &Namespace, queue: Option<&Name>, keys: Vec<Name>) -> Outcome<QueueUse> {
    let of_queue = |text| Sql::new(text).text(namespace.as_str()).text(text_of(queue));
    let held = |row: &tokio_postgres::Row| row.get::<_, i64>(0) as u64;
    let starts = |row: &tokio_postgres::Row| {
        row.get::<_, Option<&[u8]>>(1).and_then(|data| unseal::<QueueStarts>("starts of a queue", data).ok())
    };
    let all = db.query(&of_queue(USE)).await?;
    let (all_held, all_starts) = all.first().map(|row| (held(row), starts(row))).unwrap_or_default();
    let mut used = QueueUse { held: all_held, starts: all_starts, keys: Vec::new() };
    if !keys.is_empty() {
        let names = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let rows = db.query(&of_queue(USE_OF_KEYS).texts(names)).await?;
        used.keys = keys.into_iter().zip(&rows).map(|(key, row)| KeyUse { key, held: held(row), starts: starts(row) }).collect();
    }
    Ok(used)
}
