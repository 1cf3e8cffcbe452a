//! Deletion of whole runs (L20).

use onward_core::internal::InternalRuns;
use onward_core::{RunHead, RunKey, Status};
use onward_store::{Delete, Retention, StoreError};
use rusqlite::{Row, params};

use crate::error::{Outcome, damaged_row, is_malformed, leave_damaged, read_error};
use crate::read::heads;
use crate::read::past;
use crate::row::{Statements, number, unseal_bytes};
use crate::write::rows::read_open_children;
use crate::write::writer::Writer;

/// Number of runs that cannot be deleted yet and are skipped per call, per run that can.
const PASSED_OVER: usize = 16;

/// A run as its row describes it.
struct DeletionTarget {
    root: i64,
    may_go: bool,
    kind: String,
}

impl Writer<'_> {
    pub(crate) fn delete_runs(&mut self, delete: &Delete) -> Outcome<u64> {
        match delete {
            Delete::Run { key, reason } => {
                let Some(DeletionTarget { root, may_go, kind }) = self.find_root(key)? else {
                    return Err(StoreError::RunNotFound { key: key.clone() }.into());
                };
                if let Some(why) = self.busy(key, root, may_go)? {
                    return Err(StoreError::RunBusy { key: key.clone(), why: why.to_owned() }.into());
                }
                self.delete_run(key, root)?;
                if InternalRuns::of(&key.id).is_some() {
                    return Ok(1);
                }
                let sql =
                    "INSERT INTO deleted(ns, id, kind, reason, at, crc) VALUES (?1, ?2, ?3, ?4, ?5, row_crc(?1, ?2, ?3, ?4, ?5))";
                let at = self.set.now.0 as i64;
                self.db.run(sql, params![key.namespace.as_str(), key.id.as_str(), kind, reason, at])?;
                Ok(1)
            }
            Delete::Expired { retention, limit } => self.delete_expired(retention, *limit),
        }
    }

    /// Reads the row without its log: a damaged run can be deleted.
    fn find_root(&self, key: &RunKey) -> Outcome<Option<DeletionTarget>> {
        let sql = format!(
            "SELECT status, kind, {} FROM runs WHERE id = ?1 AND ns = ?2 ORDER BY generation DESC LIMIT 1",
            heads::COLUMNS
        );
        let read = |row: &Row<'_>| Ok((row.get::<_, u8>(0)?, row.get::<_, String>(1)?, heads::read_row(row)?));
        let found = self.db.one(&sql, params![key.id.as_str(), key.namespace.as_str()], read).map_err(read_error)?;
        let Some((status, kind, row)) = found else { return Ok(None) };
        let is_same = |identity: &heads::Identity| identity.key == *key;
        let Some(identity) = row.identity.filter(is_same) else { return Err(damaged_row(key, "its own row").into()) };
        // Without a readable head, the log is used; a run without either can still be deleted by the status in its row.
        let head = row.head.or_else(|| heads::load(self.db, key, None).ok().flatten().map(|loaded| loaded.head));
        let is_closed = Status::from_number(u64::from(status)).is_some_and(Status::is_closed);
        let may_go = head.as_ref().map_or(is_closed, RunHead::may_be_deleted);
        Ok(Some(DeletionTarget { root: identity.root, may_go, kind: head.map_or(kind, |head| head.kind.as_str().to_owned()) }))
    }

    /// Returns why a run cannot be deleted yet.
    fn busy(&mut self, key: &RunKey, root: i64, may_go: bool) -> Outcome<Option<&'static str>> {
        if !may_go {
            return Ok(Some("it is not closed"));
        }
        if InternalRuns::holds_children(&key.id) && !read_open_children(self.db, key, None)?.is_empty() {
            return Ok(Some("it has an open child"));
        }
        let mut statement = self.db.prepare_cached("SELECT data FROM outbox WHERE root = ?1")?;
        let mut messages = statement.query(params![root])?;
        while let Some(row) = messages.next()? {
            // Damaged messages are never delivered and are deleted with their run.
            if row.get_ref(0)?.as_blob().is_ok_and(|data| unseal_bytes("a message", data).is_ok()) {
                return Ok(Some("it has undelivered outbox messages"));
            }
        }
        Ok(None)
    }

    fn delete_run(&mut self, key: &RunKey, root: i64) -> Outcome<()> {
        let params = params![key.id.as_str(), key.namespace.as_str()];
        let mut generations: Vec<i64> = self.db.all("SELECT rk FROM runs WHERE id = ?1 AND ns = ?2", params, |row| row.get(0))?;
        generations.extend(past::logs_of(self.db, "", root)?.into_iter().map(|(rk, _)| rk));
        // Logs without a row are deleted, too.
        if let Ok(Some(heads::Loaded { head, .. })) = heads::load(self.db, key, None)
            && let Some(incarnation) = head.origin_incarnation().filter(|_| generations.len() != head.generation as usize + 1)
        {
            let found = past::logs_without_row(self.db, Some((root, incarnation)))?;
            generations.extend(found.into_iter().filter(|((of, _), _)| *of == root).map(|(_, rk)| rk));
        }
        past::remove(self.db, root)?;
        for rk in generations {
            self.delete_log(rk)?;
            self.db.run("DELETE FROM attributes WHERE rk = ?1", [rk])?;
            self.db.run("DELETE FROM runs WHERE rk = ?1", [rk])?;
        }
        self.db.run("DELETE FROM idempotency WHERE root = ?1", [root])?;
        self.remove_rows("DELETE FROM outbox WHERE root = ?1 RETURNING blobs", params![root])?;
        drop(self.set.runs.remove(key));
        self.maintenance.vacuum.request();
        self.maintenance.wal_truncation.request();
        Ok(())
    }

    /// Deletes a log, event by event if it cannot be deleted as a whole.
    fn delete_log(&mut self, rk: i64) -> Outcome<()> {
        self.remove_rows("SELECT blobs FROM events WHERE rk = ?1 AND blobs IS NOT NULL", params![rk])?;
        match self.db.run("DELETE FROM events WHERE rk = ?1", [rk]) {
            Err(error) if is_malformed(&error) => {}
            other => return Ok(other.map(drop)?),
        }
        let sql = "SELECT seq FROM events INDEXED BY events_run WHERE rk = ?1";
        for seq in self.db.all(sql, [rk], |row| row.get::<_, i64>(0))? {
            leave_damaged(self.db.run("DELETE FROM events WHERE seq = ?1", [seq]))?;
        }
        Ok(())
    }

    fn delete_expired(&mut self, retention: &Retention, limit: usize) -> Outcome<u64> {
        self.forget_deleted(retention)?;
        let mut deleted = 0;
        for kind in self.kinds()? {
            let Some(before) = retention.kept_since(&kind, self.set.now) else { continue };
            // Runs with open children are excluded here: any number of them may stay for as long as their children are open.
            let sql = "SELECT r.rk FROM runs r WHERE r.kind = ?1 AND r.ended <= ?2 AND r.current = 1 AND r.ended IS NOT NULL AND NOT EXISTS
                   (SELECT 1 FROM runs c WHERE c.parent_id = r.id AND c.parent_ns = r.ns AND c.current = 1 AND c.ended IS NULL)
                   ORDER BY r.ended LIMIT ?3";
            let page = number(limit.saturating_mul(PASSED_OVER));
            for rk in self.db.all(sql, params![kind, before, page], |row| row.get(0))? {
                if deleted == limit as u64 {
                    return Ok(deleted);
                }
                // A damaged run does not block the others: it is repaired, or deleted explicitly.
                let Ok(Some(key)) = heads::key_of(self.db, rk) else { continue };
                let Ok(Some(DeletionTarget { root, may_go, .. })) = self.find_root(&key) else { continue };
                if self.busy(&key, root, may_go)?.is_none() {
                    self.delete_run(&key, root)?;
                    deleted += 1;
                }
            }
        }
        Ok(deleted)
    }

    /// Removes entries of explicitly deleted runs after the retention of their kind.
    fn forget_deleted(&mut self, retention: &Retention) -> Outcome<()> {
        for kind in self.db.all("SELECT DISTINCT kind FROM deleted", [], |row| row.get::<_, String>(0))? {
            if let Some(before) = retention.kept_since(&kind, self.set.now) {
                let sql = "DELETE FROM deleted WHERE kind = ?1 AND at <= ?2 AND crc = row_crc(ns, id, kind, reason, at)";
                self.db.run(sql, params![kind, before])?;
            }
        }
        Ok(())
    }

    /// Returns the kinds of closed runs, with one index step each.
    fn kinds(&self) -> Outcome<Vec<String>> {
        let sql = "SELECT kind FROM runs WHERE current = 1 AND ended IS NOT NULL AND kind > ?1 ORDER BY kind LIMIT 1";
        let mut kinds: Vec<String> = Vec::new();
        loop {
            let after = kinds.last().map_or("", String::as_str);
            match self.db.one(sql, [after], |row| row.get(0))? {
                Some(kind) => kinds.push(kind),
                None => return Ok(kinds),
            }
        }
    }
}
