//! Lists: runs newest first, open waits oldest first.
//!
//! Must never skip rows by counting: a page starts after the last key of the previous one.
//!
//! Invariants:
//! - I9: a list of runs is ordered and filtered by indexes alone, whose pages have checksums, and contains every run in them: if
//!   the row of a run is damaged or missing, its log replaces it.

use std::collections::BTreeMap;

use onward_core::internal::InternalRuns;
use onward_core::queue::settings::settings_range;
use onward_core::run::Wait;
use onward_core::task::{Task, TaskCount};
use onward_core::{Epoch, KindSchemas, Name, Namespace, RunHead, RunId, RunKey, Status, Timestamp, WorkerId, root_run};
use onward_store::{
    DeletedQuery, DeletedRun, OpenCounts, RunPage, RunQuery, StoreError, TaskQuery, VersionCount, WaitQuery, is_behind,
    page_limit, parse_cursor,
};
use rusqlite::{Connection, Row, ToSql};

use crate::error::{damaged, read_error};
use crate::leases::Leases;
use crate::read::blobs;
use crate::read::heads;
use crate::read::past;
use crate::row::{Statements, number, unseal};

pub(crate) fn list_runs(db: &Connection, leases: &Leases, query: &RunQuery) -> Result<RunPage, StoreError> {
    let limit = page_limit(query.limit);
    let mut before = query.cursor.as_deref().map(parse_cursor).transpose()?.map(|(at, id)| (at, id.to_owned()));
    let mut found = Vec::new();
    let mut statuses: Vec<Status> = query.statuses.clone();
    statuses.sort_unstable();
    statuses.dedup();
    if let Some(parent) = &query.parent {
        found = children(db, leases, query, parent, borrow(&before))?;
    } else if statuses == [Status::Running] {
        // Few runs are leased and many may be pending: read the leased ones.
        found = held(db, leases, query, borrow(&before))?;
        // The status of an external run is stored.
        for entry in scan_one(db, query, Some(Status::Running.number()), borrow(&before), limit + 1)? {
            found.push(read_entry(db, query, &entry)?);
        }
    } else {
        // One more than the page shows whether there is another; runs that turn out to have another status are skipped.
        while found.len() <= limit {
            let wanted = limit + 1 - found.len();
            let entries = scan(db, query, &statuses, borrow(&before), wanted)?;
            before = entries.last().map(|entry| (entry.created, entry.id.clone())).or(before);
            for entry in &entries {
                let mut head = read_entry(db, query, entry)?;
                leases.show(entry.rk, &mut head);
                if statuses.is_empty() || statuses.contains(&head.status) {
                    found.push(head);
                }
            }
            if entries.len() < wanted {
                break;
            }
        }
    }
    Ok(RunPage::of(found, limit))
}

/// Creation time and id of the last run of the previous page.
type Position<'a> = (Timestamp, &'a str);

fn borrow(position: &Option<(Timestamp, String)>) -> Option<Position<'_>> {
    position.as_ref().map(|(at, id)| (*at, id.as_str()))
}

/// Returns the matching children of a run. Finds them in an index and reads the rest from their verified heads (I9).
fn children(
    db: &Connection,
    leases: &Leases,
    query: &RunQuery,
    parent: &RunKey,
    before: Option<Position<'_>>,
) -> Result<Vec<RunHead>, StoreError> {
    let sql = "SELECT rk FROM runs INDEXED BY runs_parent WHERE parent_id = ? AND parent_ns = ?";
    let params = [parent.id.as_str(), parent.namespace.as_str()];
    let numbers: Vec<i64> = db.all(sql, params, |row| row.get(0)).map_err(read_error)?;
    // A run has a row for each generation.
    let mut latest: BTreeMap<RunKey, RunHead> = BTreeMap::new();
    for rk in numbers {
        let Some(mut head) = heads::load_by_rk(db, rk)? else { continue };
        leases.show(rk, &mut head);
        if latest.get(&head.key).is_none_or(|known| known.generation < head.generation) {
            latest.insert(head.key.clone(), head);
        }
    }
    Ok(latest.into_values().filter(|head| query.matches(head) && is_behind(head, before)).collect())
}

/// A run as an index has it, valid whatever the state of the run's row, since pages of an index have checksums (I9).
struct IndexEntry {
    rk: i64,
    created: Timestamp,
    id: String,
}

/// Returns the next `wanted` runs that may match, by what is stored.
fn scan(
    db: &Connection,
    query: &RunQuery,
    statuses: &[Status],
    before: Option<Position<'_>>,
    wanted: usize,
) -> Result<Vec<IndexEntry>, StoreError> {
    let mut stored: Vec<u8> = statuses.iter().map(|status| status.number()).collect();
    // A leased run is stored as pending.
    stored.extend(statuses.contains(&Status::Running).then_some(Status::Pending.number()));
    stored.sort_unstable();
    stored.dedup();
    if stored.is_empty() {
        return scan_one(db, query, None, before, wanted);
    }
    // One index range each, merged: `status IN (..)` would sort all matches.
    let mut merged = Vec::new();
    for status in stored {
        merged.extend(scan_one(db, query, Some(status), before, wanted)?);
    }
    merged.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
    merged.truncate(wanted);
    Ok(merged)
}

fn scan_one(
    db: &Connection,
    query: &RunQuery,
    status: Option<u8>,
    before: Option<Position<'_>>,
    wanted: usize,
) -> Result<Vec<IndexEntry>, StoreError> {
    let (sql, params) = select(query, status, before, wanted);
    let read =
        |row: &Row<'_>| Ok(IndexEntry { rk: row.get(0)?, created: Timestamp(row.get::<_, i64>(1)? as u64), id: row.get(2)? });
    db.all(&sql, rusqlite::params_from_iter(params.iter()), read).map_err(read_error)
}

/// Reads the run of an entry. A run with a damaged log is listed with the content of its row, and one with a damaged row with
/// that of its log: it must be visible to be dealt with. If neither can be read, the list fails, so that no list is incomplete.
fn read_entry(db: &Connection, query: &RunQuery, entry: &IndexEntry) -> Result<RunHead, StoreError> {
    let row = heads::row_by_number(db, entry.rk).ok().flatten().filter(|row| row.key().is_some());
    if let Some((_, head)) = row.and_then(|row| heads::finish_leniently(db, row)) {
        return Ok(head);
    }
    past::note_missed();
    let id = RunId::new(entry.id.clone()).map_err(|_| damaged("an index of runs", "an id in it is not readable"))?;
    heads::rebuild(db, entry.rk, RunKey::new(query.namespace.clone(), id))
}

type Params = Vec<Box<dyn ToSql>>;

/// Returns the condition on runs of an internal type, or on all others. The kind of an internal run begins with the same prefix as
/// its id.
fn internal(of: Option<InternalRuns>) -> String {
    // `;` follows `:`.
    let range = |column: &str, of: InternalRuns| {
        let prefix = of.prefix();
        format!("{column} >= '{prefix}' AND {column} < '{};'", prefix.trim_end_matches(':'))
    };
    match of {
        Some(of) => format!(" AND {} AND {}", range("kind", of), range("id", of)),
        None => InternalRuns::ALL.iter().map(|of| format!(" AND NOT ({})", range("id", *of))).collect(),
    }
}

/// Builds the statement and its parameters for one range of an index.
fn select(query: &RunQuery, status: Option<u8>, before: Option<Position<'_>>, wanted: usize) -> (String, Params) {
    let index = match (status, &query.kind) {
        _ if query.internal.is_some() => "runs_kind",
        (Some(_), _) => "runs_status",
        (None, Some(_)) => "runs_kind",
        (None, None) => "runs_created",
    };
    let mut sql = format!("SELECT rk, created, id FROM runs INDEXED BY {index} WHERE current = 1 AND ns = ?");
    let mut params: Params = vec![Box::new(query.namespace.as_str().to_owned())];
    let mut also = |text: &str, values: Params| {
        sql.push_str(text);
        params.extend(values);
    };
    also(&internal(query.internal), Vec::new());
    if let Some(status) = status {
        also(" AND status = ?", vec![Box::new(status)]);
    }
    if let Some(kind) = &query.kind {
        also(" AND kind = ?", vec![Box::new(kind.as_str().to_owned())]);
    }
    if !query.versions.is_empty() {
        let text = |version: &Option<Name>| version.as_ref().map_or(String::new(), |version| version.as_str().to_owned());
        let values = query.versions.iter().map(|version| Box::new(text(version)) as Box<dyn ToSql>).collect();
        also(&format!(" AND version IN ({})", marks(query.versions.len())), values);
    }
    for wanted in &query.attributes {
        let mut values: Params = vec![Box::new(wanted.name.as_str().to_owned())];
        values.extend(wanted.values.iter().map(|value| Box::new(value.to_key()) as Box<dyn ToSql>));
        let marks = marks(wanted.values.len());
        also(&format!(" AND rk IN (SELECT rk FROM attributes WHERE name = ? AND value IN ({marks}))"), values);
    }
    if let Some(from) = query.created_from {
        also(" AND created >= ?", vec![Box::new(number(from.0))]);
    }
    if let Some(until) = query.created_until {
        also(" AND created < ?", vec![Box::new(number(until.0))]);
    }
    if let Some((at, id)) = before {
        also(" AND (created, id) < (?, ?)", vec![Box::new(number(at.0)), Box::new(id.to_owned())]);
    }
    also(" ORDER BY created DESC, id DESC LIMIT ?", vec![Box::new(number(wanted))]);
    (sql, params)
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

fn held(db: &Connection, leases: &Leases, query: &RunQuery, before: Option<Position<'_>>) -> Result<Vec<RunHead>, StoreError> {
    let mut found = Vec::new();
    for rk in leases.held_runs() {
        let Some(mut head) = heads::load_by_rk(db, rk)? else { continue };
        leases.show(rk, &mut head);
        if query.matches(&head) && is_behind(&head, before) {
            found.push(head);
        }
    }
    Ok(found)
}

/// Returns the runs that a worker holds. A run that is not yet in the file is not yet leased to the worker.
pub(crate) fn list_leases(db: &Connection, leases: &Leases, worker: &WorkerId) -> Result<Vec<(RunKey, Epoch)>, StoreError> {
    let mut found = Vec::new();
    for (rk, epoch) in leases.of_worker(worker) {
        found.extend(heads::key_of(db, rk)?.map(|key| (key, epoch)));
    }
    Ok(found)
}

pub(crate) fn count_versions(db: &Connection, namespace: &Namespace) -> Result<Vec<VersionCount>, StoreError> {
    let sql = "SELECT kind, version, count(*) FROM runs WHERE current = 1 AND ns = ?1 AND status < 4
             GROUP BY kind, version ORDER BY kind, version";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
    let rows = db.all(sql, [namespace.as_str()], read).map_err(read_error)?;
    let unreadable = |_| damaged("a run's row", "its kind or version is not readable");
    rows.into_iter()
        .map(|(kind, version, open)| {
            let version = (!version.is_empty()).then(|| Name::new(version)).transpose().map_err(unreadable)?;
            Ok(VersionCount { kind: Name::new(kind).map_err(unreadable)?, version, open: open as u64 })
        })
        .collect()
}

/// Counts open runs and tasks of all namespaces. Each namespace is an index range of the open statuses.
pub(crate) fn count_open(db: &Connection, leases: &Leases) -> Result<OpenCounts, StoreError> {
    let sql = "WITH RECURSIVE spaces(ns) AS (
               SELECT min(ns) FROM runs INDEXED BY runs_status WHERE current = 1
               UNION ALL
               SELECT (SELECT min(r.ns) FROM runs r INDEXED BY runs_status WHERE r.current = 1 AND r.ns > spaces.ns)
               FROM spaces WHERE spaces.ns IS NOT NULL)
             SELECT r.kind, r.status, count(*) FROM spaces CROSS JOIN runs r INDEXED BY runs_status
             WHERE r.ns = spaces.ns AND r.status IN (0, 1, 2, 3) AND r.current = 1 GROUP BY r.kind, r.status";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, u64::from(row.get::<_, u8>(1)?), row.get::<_, i64>(2)?));
    let unreadable = |_| damaged("a run's row", "its kind is not readable");
    let mut runs: BTreeMap<(Name, Status), u64> = BTreeMap::new();
    for (kind, status, count) in db.all(sql, [], read).map_err(read_error)? {
        let status = Status::from_number(status).ok_or_else(|| damaged("a run's row", "its status is not readable"))?;
        runs.insert((Name::new(kind).map_err(unreadable)?, status), count as u64);
    }
    let sql = "SELECT kind FROM runs WHERE rk = ?1 AND status = 0 AND current = 1";
    for rk in leases.held_runs() {
        for kind in db.all(sql, [rk], |row| row.get::<_, String>(0)).map_err(read_error)? {
            let kind = Name::new(kind).map_err(unreadable)?;
            // A run that was claimed or started since then is not among the counted ones.
            if let Some(pending) = runs.get_mut(&(kind.clone(), Status::Pending)).filter(|pending| **pending > 0) {
                *pending -= 1;
                *runs.entry((kind, Status::Running)).or_default() += 1;
            }
        }
    }
    runs.retain(|_, count| *count > 0);
    let (from, until) = settings_range();
    let sql = "SELECT data FROM kinds WHERE task = 0 AND kind >= ?1 AND kind < ?2 ORDER BY ns, kind";
    let settings = db.all(sql, [from, until], |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?;
    let settings = settings.iter().map(|data| unseal("the settings of a queue", data)).collect::<Result<_, StoreError>>()?;
    Ok(OpenCounts { runs, tasks: task_counts(db, "", [])?, settings })
}

pub(crate) fn count_tasks(db: &Connection, namespace: &Namespace) -> Result<Vec<TaskCount>, StoreError> {
    task_counts(db, "WHERE ns = ?1", [namespace.as_str()])
}

fn task_counts(db: &Connection, only: &str, params: impl rusqlite::Params) -> Result<Vec<TaskCount>, StoreError> {
    // Tasks of a paused run count as queued.
    let sql = format!(
        "SELECT queue, kind, sum(state IN (0, 3, 4)), sum(state = 1), sum(state = 2),
           min(CASE WHEN state IN (0, 3, 4) THEN visible END)
         FROM tasks {only} GROUP BY queue, kind ORDER BY queue, kind"
    );
    let count = |row: &Row<'_>, at: usize| row.get::<_, i64>(at).map(|count| count as u64);
    let read = |row: &Row<'_>| {
        let names: (String, String) = (row.get(0)?, row.get(1)?);
        let oldest = row.get::<_, Option<i64>>(5)?.map(|at| Timestamp(at as u64));
        Ok((names, [count(row, 2)?, count(row, 3)?, count(row, 4)?], oldest))
    };
    let unreadable = |_| damaged("a task's row", "its queue or kind is not readable");
    let rows = db.all(&sql, params, read).map_err(read_error)?;
    rows.into_iter()
        .map(|((queue, kind), [queued, running, quarantined], oldest_at)| {
            let queue = (!queue.is_empty()).then(|| Name::new(queue)).transpose().map_err(unreadable)?;
            let kind = Name::new(kind).map_err(unreadable)?;
            Ok(TaskCount { queue, kind, queued, running, quarantined, oldest_at })
        })
        .collect()
}

pub(crate) fn list_waits(db: &Connection, query: &WaitQuery) -> Result<Vec<Wait>, StoreError> {
    let mut sql = "SELECT data FROM waits WHERE ns = ?".to_owned();
    let mut params: Vec<Box<dyn ToSql>> = vec![Box::new(query.namespace.as_str().to_owned())];
    if let Some(kind) = query.kind {
        sql.push_str(" AND kind = ?");
        params.push(Box::new(kind.number()));
    }
    if let Some(run) = &query.run {
        sql.push_str(" AND ns = ?");
        params.push(Box::new(run.namespace.as_str().to_owned()));
        if query.below {
            let stem = root_run::stem(&run.id);
            sql.push_str(" AND (id = ? OR substr(id, 1, ?) = ?)");
            params.push(Box::new(root_run::root_run(&run.id).to_owned()));
            params.push(Box::new(number(stem.chars().count())));
            params.push(Box::new(stem));
        } else {
            sql.push_str(" AND id = ?");
            params.push(Box::new(run.id.as_str().to_owned()));
        }
    }
    sql.push_str(" ORDER BY requested, id, call_id LIMIT ?");
    params.push(Box::new(number(page_limit(query.limit))));
    let params = rusqlite::params_from_iter(params.iter());
    let rows = db.all(&sql, params, |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?;
    let mut found = Vec::new();
    for data in rows {
        // A damaged wait is never left out silently; it is rebuilt from its log, and then the list is complete.
        let mut wait: Wait = unseal("a wait", &data)?;
        if query.matches(&wait) && shows(blobs::restore(db, &mut wait), query.run.is_some())? {
            found.push(wait);
        }
    }
    Ok(found)
}

/// Scans all open tasks; only operators list them, rarely.
pub(crate) fn list_tasks(db: &Connection, query: &TaskQuery) -> Result<Vec<Task>, StoreError> {
    let mut statement = db.prepare_cached("SELECT data FROM tasks INDEXED BY tasks_run ORDER BY tk").map_err(read_error)?;
    let mut rows = statement.query([]).map_err(read_error)?;
    let (mut found, limit) = (Vec::new(), page_limit(query.limit));
    while found.len() < limit
        && let Some(row) = rows.next().map_err(read_error)?
    {
        let data = row.get_ref(0).and_then(|data| Ok(data.as_blob()?)).map_err(read_error)?;
        let mut task = unseal::<Task>("a task", data)?;
        if query.matches(&task) && shows(blobs::restore(db, &mut task), query.run.is_some())? {
            found.push(task);
        }
    }
    Ok(found)
}

pub(crate) fn list_deleted(db: &Connection, query: &DeletedQuery) -> Result<Vec<DeletedRun>, StoreError> {
    let sql = "SELECT ns, id, kind, reason, at, crc IS row_crc(ns, id, kind, reason, at) FROM deleted
      WHERE ns = ?1 AND (?2 IS NULL OR (ns = ?3 AND id = ?2)) ORDER BY seq DESC LIMIT ?4";
    let run = query.run.as_ref();
    let params = rusqlite::params![
        query.namespace.as_str(),
        run.map(|run| run.id.as_str()),
        run.map(|run| run.namespace.as_str()),
        number(page_limit(query.limit)),
    ];
    let read = |row: &Row<'_>| {
        if !row.get::<_, bool>(5)? {
            return Ok(None);
        }
        let text = |column| row.get::<_, String>(column);
        Ok(Some((text(0)?, text(1)?, text(2)?, text(3)?, row.get::<_, i64>(4)?)))
    };
    let rows = db.all(sql, params, read).map_err(read_error)?;
    rows.into_iter()
        .map(|row| {
            let (namespace, id, kind, reason, at) = row.ok_or_else(|| damaged("a deleted run's row", "wrong checksum"))?;
            let unreadable = |_| damaged("a deleted run's row", "its names are not readable");
            let namespace = Namespace::new(namespace).map_err(unreadable)?;
            let key = RunKey::new(namespace, RunId::new(id).map_err(unreadable)?);
            let kind = Name::new(kind).map_err(unreadable)?;
            Ok(DeletedRun { key, kind, reason, deleted_at: Timestamp(at as u64) })
        })
        .collect()
}

pub(crate) fn list_kinds(db: &Connection, namespace: &Namespace) -> Result<Vec<KindSchemas>, StoreError> {
    let sql = "SELECT data FROM kinds WHERE ns = ?1 ORDER BY task, kind, version";
    let rows = db.all(sql, [namespace.as_str()], |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?;
    rows.iter().map(|data| unseal("a kind's schemas", data)).collect()
}

/// Decides whether a row with a damaged large payload is shown: its log is damaged too. A query for that run fails; other lists
/// omit the row.
fn shows(restored: Result<(), StoreError>, is_requested: bool) -> Result<bool, StoreError> {
    match restored {
        Err(StoreError::Corrupt { .. }) if !is_requested => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests;
