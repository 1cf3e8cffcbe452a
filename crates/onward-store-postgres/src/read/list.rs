//! Lists of runs, open questions, tasks, deleted runs and kinds.
//!
//! Must never skip rows by offset: a page begins after the last key of the previous one.

use std::collections::BTreeMap;

use onward_core::internal::InternalRuns;
use onward_core::queue::settings::settings_range;
use onward_core::run::Wait;
use onward_core::task::{Task, TaskCount};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, RunHead, RunKey, Status, Timestamp, WorkerId, root_run};
use onward_store::durable::large::HasPayloads;
use onward_store::durable::seal::{damaged, number, unseal};
use onward_store::{
    DeletedQuery, DeletedRun, OpenCounts, RunPage, RunQuery, StoreError, TaskQuery, VersionCount, WaitQuery, page_limit,
    parse_cursor, shown,
};
use tokio_postgres::Row;

use crate::connection::sql::{Db, Sql};
use crate::error::{OpError, Outcome};
use crate::read::reader::{read_records, restore_payloads};
use crate::row::{crc, unseal_head};
use crate::write::claim::text_of;
use crate::write::load::row_key;

pub(crate) async fn list_runs(db: &Db, query: &RunQuery) -> Outcome<RunPage> {
    let limit = page_limit(query.limit);
    let before = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let wanted = limit.saturating_add(1);
    let mut statuses: Vec<Option<Status>> = query.statuses.iter().copied().map(Some).collect();
    statuses.sort_unstable();
    statuses.dedup();
    if statuses.is_empty() {
        statuses.push(None);
    }
    // One index range per status, merged: several statuses in one statement would sort all matches.
    let mut found = Vec::new();
    for status in statuses {
        for row in db.query(&select(query, status, before, wanted)).await? {
            found.extend(read_head(db, &row).await?);
        }
    }
    Ok(RunPage::of(found, limit))
}

/// Returns the condition on internal runs of a type, or on all others. Not a range, because the order of texts depends on the
/// database.
fn internal(of: Option<InternalRuns>) -> String {
    let condition = |is: &str, prefix: &str| format!(" AND left(r.id, {}) {is} '{prefix}'", prefix.len());
    match of {
        Some(of) => condition("=", of.prefix()),
        None => InternalRuns::ALL.iter().map(|of| condition("<>", of.prefix())).collect(),
    }
}

/// Builds the statement for one index range.
pub(crate) fn select(query: &RunQuery, status: Option<Status>, before: Option<(Timestamp, &str)>, wanted: usize) -> Sql {
    let text = "SELECT r.rk, r.ns, r.id, r.head, r.worker IS NOT NULL FROM onward.runs r WHERE r.ns = ?";
    let mut sql = Sql::new("").also(text).text(query.namespace.as_str());
    sql = match status {
        None => sql,
        Some(Status::Pending) => sql.also(" AND r.status = 0 AND r.worker IS NULL"),
        // A held run is stored as pending; external runs are stored as running.
        Some(Status::Running) => sql.also(" AND (r.status = 0 AND r.worker IS NOT NULL OR r.status = 1)"),
        Some(status) => sql.also(" AND r.status = ?").small(i16::from(status.number())),
    };
    sql = sql.also(&internal(query.internal));
    if let Some(kind) = &query.kind {
        sql = sql.also(" AND r.kind = ?").text(kind.as_str());
    }
    if !query.versions.is_empty() {
        let versions = query.versions.iter().map(|version| text_of(version.as_ref())).collect();
        sql = sql.also(" AND r.version = ANY(?)").texts(versions);
    }
    for wanted in &query.attributes {
        let values = wanted.values.iter().map(|value| value.to_key().into_bytes()).collect();
        sql = sql.also(" AND r.rk IN (SELECT rk FROM onward.attributes WHERE name = ?").text(wanted.name.as_str());
        sql = sql.also(" AND value = ANY(?))").byteses(values);
    }
    if let Some(parent) = &query.parent {
        sql = sql.also(" AND r.parent_ns = ?").text(parent.namespace.as_str());
        sql = sql.also(" AND r.parent_id = ?").text(parent.id.as_str());
    }
    if let Some(from) = query.created_from {
        sql = sql.also(" AND r.created >= ?").number(number(from.0));
    }
    if let Some(until) = query.created_until {
        sql = sql.also(" AND r.created < ?").number(number(until.0));
    }
    if let Some((at, id)) = before {
        sql = sql.also(" AND (r.created, r.id) < (?,").number(number(at.0)).also(" ?)").text(id);
    }
    sql.also(" ORDER BY r.created DESC, r.id DESC LIMIT ?").number(number(wanted))
}

/// Returns the head of a listed run. If its row is damaged, the head is rebuilt from the log, so that an operator can find the
/// run.
async fn read_head(db: &Db, row: &Row) -> Outcome<Option<RunHead>> {
    let Ok(key) = row_key(row, 1) else { return Ok(None) };
    let head = match unseal_head(&key, row.get(3)) {
        Ok((head, _)) => Some(head),
        Err(_) => rebuild(db, row.get(0), key).await?,
    };
    Ok(head.map(|head| shown(head, row.get(4))))
}

async fn rebuild(db: &Db, rk: i64, key: RunKey) -> Outcome<Option<RunHead>> {
    let sql = Sql::new("SELECT max(generation) FROM onward.events WHERE rk = $1").number(rk);
    let generation = db.query(&sql).await?.first().and_then(|row| row.get::<_, Option<i32>>(0));
    match read_records(db, &key, rk, generation.unwrap_or(0) as u32, Index(0), usize::MAX).await {
        Ok(records) => Ok(RunHead::rebuild(key, &records)),
        Err(OpError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the runs that a worker holds; unreadable ones are skipped and reported by operations on them.
pub(crate) async fn list_leases(db: &Db, worker: &WorkerId) -> Outcome<Vec<(RunKey, Epoch)>> {
    let text = "SELECT r.ns, r.id, r.head, g.floor FROM onward.runs r, onward.restore_guard g WHERE g.only_one AND r.worker = $1";
    let rows = db.query(&Sql::new(text).text(worker.as_str())).await?;
    let lease = |row: &Row| {
        let key = row_key(row, 0).ok()?;
        let (head, _) = unseal_head(&key, row.get(2)).ok()?;
        Some((key, head.epoch.max(Epoch(row.get::<_, i64>(3) as u64)))) // DB9
    };
    Ok(rows.iter().filter_map(lease).collect())
}

pub(crate) async fn count_versions(db: &Db, namespace: &Namespace) -> Outcome<Vec<VersionCount>> {
    let text = "SELECT kind, version, count(*) FROM onward.runs WHERE ns = $1 AND status < 4 GROUP BY kind, version ORDER BY kind, version";
    let rows = db.query(&Sql::new(text).text(namespace.as_str())).await?;
    let count = |row: &Row| {
        let kind = read_name(row.get(0))?.ok_or_else(|| damaged("a run's row", "it has no kind"))?;
        Ok(VersionCount { kind, version: read_name(row.get(1))?, open: row.get::<_, i64>(2) as u64 })
    };
    rows.iter().map(count).collect()
}

/// Counts open runs and tasks of all namespaces. Each namespace is an index range for each open status.
pub(crate) async fn count_open(db: &Db) -> Outcome<OpenCounts> {
    let text = "WITH RECURSIVE spaces AS (
        (SELECT ns FROM onward.runs ORDER BY ns LIMIT 1)
        UNION ALL
        SELECT (SELECT r.ns FROM onward.runs r WHERE r.ns > spaces.ns ORDER BY r.ns LIMIT 1) FROM spaces WHERE spaces.ns IS NOT NULL)
      SELECT o.kind, o.shown, count(*) FROM spaces, LATERAL (
        SELECT r.kind, CASE WHEN r.status = 0 AND r.worker IS NOT NULL THEN 1::smallint ELSE r.status END AS shown
        FROM onward.runs r WHERE r.ns = spaces.ns AND r.status IN (0, 1, 2, 3)) o
      WHERE spaces.ns IS NOT NULL GROUP BY o.kind, o.shown";
    let mut runs = BTreeMap::new();
    for row in db.query(&Sql::new(text)).await? {
        let kind = read_name(row.get(0))?.ok_or_else(|| damaged("a run's row", "it has no kind"))?;
        let status = u64::try_from(row.get::<_, i16>(1)).ok().and_then(Status::from_number);
        let status = status.ok_or_else(|| damaged("a run's row", "its status is not readable"))?;
        runs.insert((kind, status), row.get::<_, i64>(2) as u64);
    }
    let (from, until) = settings_range();
    let text = "SELECT data FROM onward.kinds WHERE NOT task AND kind >= $1 AND kind < $2 ORDER BY ns, kind";
    let settings = db.query(&Sql::new(text).text(from).text(until)).await?;
    let settings = settings.iter().map(|row| unseal("the settings of a queue", row.get(0))).collect::<Result<_, StoreError>>()?;
    Ok(OpenCounts { runs, tasks: task_counts(db, &Sql::new(tasks_by_queue(""))).await?, settings })
}

pub(crate) async fn count_tasks(db: &Db, namespace: &Namespace) -> Outcome<Vec<TaskCount>> {
    task_counts(db, &Sql::new(tasks_by_queue("WHERE ns = $1")).text(namespace.as_str())).await
}

fn tasks_by_queue(only: &str) -> String {
    // Tasks of paused runs count as queued.
    format!(
        "SELECT queue, kind, count(*) FILTER (WHERE state IN (0, 3, 4)), count(*) FILTER (WHERE state = 1),
        count(*) FILTER (WHERE state = 2), min(visible) FILTER (WHERE state IN (0, 3, 4))
      FROM onward.tasks {only} GROUP BY queue, kind ORDER BY queue, kind"
    )
}

async fn task_counts(db: &Db, sql: &Sql) -> Outcome<Vec<TaskCount>> {
    let rows = db.query(sql).await?;
    let count = |row: &Row| {
        let count = |at: usize| row.get::<_, i64>(at) as u64;
        Ok(TaskCount {
            queue: read_name(row.get(0))?,
            kind: read_name(row.get(1))?.ok_or_else(|| damaged("a task's row", "it has no kind"))?,
            queued: count(2),
            running: count(3),
            quarantined: count(4),
            oldest_at: row.get::<_, Option<i64>>(5).map(|at| Timestamp(at as u64)),
        })
    };
    rows.iter().map(count).collect()
}

fn read_name(text: String) -> Result<Option<Name>, StoreError> {
    let name = (!text.is_empty()).then(|| Name::new(text)).transpose();
    name.map_err(|_| damaged("a row", "a name in it is not readable"))
}

pub(crate) async fn list_waits(db: &Db, query: &WaitQuery) -> Outcome<Vec<Wait>> {
    let mut sql = Sql::new("SELECT w.rk, w.data FROM onward.waits w").also(" WHERE w.ns = ?").text(query.namespace.as_str());
    if let Some(kind) = query.kind {
        sql = sql.also(" AND w.kind = ?").small(i16::from(kind.number()));
    }
    if let Some(run) = &query.run {
        sql = sql.also(" AND w.ns = ?").text(run.namespace.as_str());
        sql = match query.below {
            true => {
                let stem = root_run::stem(&run.id);
                sql.also(" AND (w.id = ?").text(root_run::root_run(&run.id)).also(" OR starts_with(w.id, ?))").text(&stem)
            }
            false => sql.also(" AND w.id = ?").text(run.id.as_str()),
        };
    }
    sql = sql.also(" ORDER BY w.requested, w.id, w.call_id LIMIT ?").number(number(page_limit(query.limit)));
    // A damaged question is reported, never left out.
    let read = |data: &[u8]| Ok(Some(unseal("a wait", data)?).filter(|wait| query.matches(wait)));
    read_whole(db, &sql, read, query.run.is_some()).await
}

pub(crate) async fn list_tasks(db: &Db, query: &TaskQuery) -> Outcome<Vec<Task>> {
    let mut sql = Sql::new("SELECT t.rk, t.data FROM onward.tasks t").also(" WHERE t.ns = ?").text(query.namespace.as_str());
    if let Some(run) = &query.run {
        let of = " AND t.rk = (SELECT rk FROM onward.runs WHERE ns = ?";
        sql = sql.also(of).text(run.namespace.as_str()).also(" AND id = ?)").text(run.id.as_str());
    }
    if let Some(state) = query.state {
        let columns: &[i16] = if state.number() == 0 { &[0, 3, 4] } else { &[state.number() as i16] };
        sql = sql.also(" AND t.state = ANY(?)").smalls(columns.to_vec());
    }
    if let Some(queue) = &query.queue {
        sql = sql.also(" AND t.queue = ?").text(queue.as_ref().map_or("", Name::as_str));
    }
    if let Some(key) = &query.key {
        sql = sql.also(" AND t.qkey = ?").text(key.as_str());
    }
    sql = sql.also(" ORDER BY t.ord LIMIT ?").number(number(page_limit(query.limit)));
    let read = |data: &[u8]| Ok(Some(unseal("a task", data)?).filter(|task| query.matches(task)));
    read_whole(db, &sql, read, query.run.is_some()).await
}

/// Reads rows with their large payloads. If one is damaged, the log that has it is damaged, too: reported if its run was queried,
/// else left out.
async fn read_whole<C: HasPayloads>(
    db: &Db,
    sql: &Sql,
    read: impl Fn(&[u8]) -> Outcome<Option<C>>,
    is_requested: bool,
) -> Outcome<Vec<C>> {
    let mut found = Vec::new();
    for row in db.query(sql).await? {
        let Some(carrier) = read(row.get(1))? else { continue };
        match restore_payloads(db, row.get(0), carrier).await {
            Err(OpError::Refused(StoreError::Corrupt { .. })) if !is_requested => {}
            restored => found.push(restored?),
        }
    }
    Ok(found)
}

pub(crate) async fn list_deleted(db: &Db, query: &DeletedQuery) -> Outcome<Vec<DeletedRun>> {
    let text = "SELECT d.ns, d.id, d.kind, d.reason, d.at, d.crc FROM onward.deleted d WHERE d.ns = ?";
    let mut sql = Sql::new("").also(text).text(query.namespace.as_str());
    if let Some(run) = &query.run {
        sql = sql.also(" AND d.ns = ?").text(run.namespace.as_str()).also(" AND d.id = ?").text(run.id.as_str());
    }
    let sql = sql.also(" ORDER BY d.seq DESC LIMIT ?").number(number(page_limit(query.limit)));
    let read = |row: &Row| {
        let key = row_key(row, 0)?;
        let (kind, reason, at): (String, Vec<u8>, i64) = (row.get(2), row.get(3), row.get(4));
        let names = [key.namespace.as_str().as_bytes(), key.id.as_str().as_bytes(), kind.as_bytes(), &reason];
        if row.get::<_, i64>(5) != crc(&[at], &names) {
            return Err(damaged("a deleted run's row", "wrong checksum").into());
        }
        let kind = read_name(kind)?.ok_or_else(|| damaged("a deleted run's row", "it has no kind"))?;
        let reason = String::from_utf8_lossy(&reason).into_owned();
        Ok(DeletedRun { key, kind, reason, deleted_at: Timestamp(at as u64) })
    };
    db.query(&sql).await?.iter().map(read).collect()
}

pub(crate) async fn list_kinds(db: &Db, namespace: &Namespace) -> Outcome<Vec<KindSchemas>> {
    let text = "SELECT data FROM onward.kinds WHERE ns = $1 ORDER BY task, kind, version";
    let rows = db.query(&Sql::new(text).text(namespace.as_str())).await?;
    rows.iter().map(|row| Ok(unseal("a kind's schemas", row.get(0))?)).collect()
}
