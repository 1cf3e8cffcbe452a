//! Deletion of runs (L20), and other single transactions: kinds, delivered outbox messages.

use std::collections::BTreeSet;

use onward_core::internal::InternalRuns;
use onward_core::{KindSchemas, RunHead, RunKey, Timestamp};
use onward_store::durable::seal::{number, seal, unseal_bytes};
use onward_store::unit_of_work::RunRef;
use onward_store::{Delete, OutboxId, Registration, Retention, StoreError};

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::read::list;
use crate::row::crc;
use crate::write::claim::text_of;
use crate::write::unit::UnitOfWork;

/// Number of runs that cannot be deleted yet and are skipped in one call, per run to delete.
const PASSED_OVER: usize = 16;

const OF_RUN: [&str; 9] = ["past", "events", "idempotency", "timers", "tasks", "waits", "outbox", "attributes", "blobs"];

/// Finds the ended runs of a kind in index order, except those with open children: any number of them may block the others, for
/// as long as their children live. One index lookup for each.
const ENDED: &str = "SELECT r.rk, r.ns, r.id, r.ready, r.worker, r.head FROM onward.runs r
  WHERE r.kind = $1 AND r.ended IS NOT NULL AND r.ended <= $2
    AND (SELECT 1 FROM onward.runs c WHERE c.parent_ns = r.ns AND c.parent_id = r.id AND c.status < 4 LIMIT 1) IS NULL
  ORDER BY r.ended LIMIT $3 OFFSET $4 FOR UPDATE OF r SKIP LOCKED";

const OPEN_CHILDREN: &str = "SELECT p.rk FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p(ns, id, rk)
  WHERE EXISTS (SELECT 1 FROM onward.runs c WHERE c.parent_ns = p.ns AND c.parent_id = p.id AND c.status < 4)";

impl UnitOfWork<'_> {
    /// Deletes one run and records that; the run is locked if it exists. Fails if it is open, has open children or undelivered
    /// messages.
    pub async fn delete_run(&mut self, key: &RunKey, reason: &str) -> Outcome<u64> {
        // A damaged run can be deleted: its columns are sufficient.
        let sql = Sql::new("SELECT rk, status, kind FROM onward.runs WHERE ns = $1 AND id = $2");
        let rows = self.db.query(&sql.key(key)).await?;
        let Some(row) = rows.first() else { return Err(StoreError::RunNotFound { key: key.clone() }.into()) };
        let (rk, kind): (i64, String) = (row.get(0), row.get(2));
        let locked = self.set.runs.get(key).map(|run| &self.set.runs[run].head);
        let may_go = locked.map_or(row.get::<_, i16>(1) >= 4, RunHead::may_be_deleted);
        if let Some(why) = self.busy(key, rk, may_go).await? {
            return Err(StoreError::RunBusy { key: key.clone(), why: why.to_owned() }.into());
        }
        self.remove(&[(key.clone(), rk)]).await?;
        if InternalRuns::of(&key.id).is_some() {
            return Ok(1);
        }
        let (namespace, id, at) = (key.namespace.as_str(), key.id.as_str(), self.set.now.0 as i64);
        let sum = crc(&[at], &[namespace.as_bytes(), id.as_bytes(), kind.as_bytes(), reason.as_bytes()]);
        let text = "INSERT INTO onward.deleted(ns, id, kind, at, reason, crc) VALUES ($1, $2, $3, $4, $5, $6)";
        let sql = Sql::new(text).text(namespace).text(id).text(kind).number(at).bytes(reason.as_bytes().to_vec()).number(sum);
        self.db.query(&sql).await?;
        Ok(1)
    }

    /// Returns the reason why a run cannot be deleted yet.
    async fn busy(&mut self, key: &RunKey, rk: i64, may_go: bool) -> Outcome<Option<&'static str>> {
        if !may_go {
            return Ok(Some("it is not closed"));
        }
        let text = "SELECT 1 FROM onward.runs WHERE parent_ns = $1 AND parent_id = $2 AND status < 4 LIMIT 1";
        let children = Sql::new(text).key(key);
        if InternalRuns::holds_children(&key.id) && !self.db.query(&children).await?.is_empty() {
            return Ok(Some("it has an open child"));
        }
        let messages = self.db.query(&Sql::new("SELECT data FROM onward.outbox WHERE rk = $1").number(rk)).await?;
        // Damaged outbox messages cannot be delivered and are deleted with their run.
        let is_sound = messages.iter().any(|row| unseal_bytes("a delivery", row.get(0)).is_ok());
        Ok(is_sound.then_some("it has undelivered outbox messages"))
    }

    async fn remove(&mut self, gone: &[(RunKey, i64)]) -> Outcome<()> {
        let numbers: Vec<i64> = gone.iter().map(|(_, rk)| *rk).collect();
        let remove = |table: &&str| Sql::new(format!("DELETE FROM onward.{table} WHERE rk = ANY($1)")).numbers(numbers.clone());
        let statements: Vec<Sql> = OF_RUN.iter().chain(&["runs"]).map(remove).collect();
        self.db.pipeline(None, &statements, None).await?;
        for (key, rk) in gone {
            self.set.runs.remove(key);
            self.numbers.remove(rk);
        }
        Ok(())
    }

    pub async fn delete_expired(&mut self, retention: &Retention, limit: usize) -> Outcome<u64> {
        self.forget_deleted(retention).await?;
        // The planner assumes that almost every run has open children, and would sort all of them instead of using the index.
        self.db
            .query(&Sql::new("SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)"))
            .await?;
        let mut deleted = 0;
        for kind in
            self.kinds_of("SELECT kind FROM onward.runs WHERE ended IS NOT NULL AND kind > $1 ORDER BY kind LIMIT 1").await?
        {
            if let Some(before) = retention.kept_since(&kind, self.set.now) {
                deleted += self.delete_ended(&kind, before, limit - deleted).await?;
            }
        }
        Ok(deleted as u64)
    }

    /// Deletes up to `limit` runs of a kind that ended at `before` or earlier, the oldest first, as many as possible at once.
    /// Runs that cannot be deleted yet, or are locked by another transaction, are skipped.
    async fn delete_ended(&mut self, kind: &str, before: i64, limit: usize) -> Outcome<usize> {
        let (mut deleted, mut passed) = (0, 0);
        while deleted < limit && passed < limit.saturating_mul(PASSED_OVER) {
            let (wanted, behind) = (number(limit - deleted), number(passed));
            let rows = self.db.query(&Sql::new(ENDED).text(kind).number(before).number(wanted).number(behind)).await?;
            if rows.is_empty() {
                break;
            }
            // A damaged run must not block the others; it is deleted by hand.
            let found = self.add_rows(&rows);
            let gone = self.idle(found).await?;
            if !gone.is_empty() {
                self.remove(&gone).await?;
            }
            // The next query no longer sees deleted runs, but all others.
            (deleted, passed) = (deleted + gone.len(), passed + rows.len() - gone.len());
        }
        Ok(deleted)
    }

    /// Returns those of the locked runs that can be deleted.
    async fn idle(&mut self, runs: Vec<RunRef>) -> Outcome<Vec<(RunKey, i64)>> {
        let closed = runs.into_iter().map(|run| &self.set.runs[run]).filter(|run| run.head.may_be_deleted());
        let mut idle: Vec<(RunKey, i64)> = closed.map(|run| (run.head.key.clone(), run.own.rk)).collect();
        let (namespaces, ids) = idle.iter().map(|(key, _)| (key.namespace.to_string(), key.id.to_string())).unzip();
        let numbers = idle.iter().map(|(_, rk)| *rk).collect();
        let questions = [
            Sql::new(OPEN_CHILDREN).texts(namespaces).texts(ids).numbers(numbers),
            Sql::new("SELECT rk, data FROM onward.outbox WHERE rk = ANY($1)").numbers(idle.iter().map(|(_, rk)| *rk).collect()),
        ];
        let answers = self.db.pipeline(None, &questions, None).await?;
        // Damaged outbox messages cannot be delivered and are deleted with their run.
        let messages = answers[1].iter().filter(|row| unseal_bytes("a delivery", row.get(1)).is_ok());
        let kept: BTreeSet<i64> = answers[0].iter().chain(messages).map(|row| row.get(0)).collect();
        idle.retain(|(_, rk)| !kept.contains(rk));
        Ok(idle)
    }

    /// Deletes the records of manual deletions after the retention time of their kind.
    async fn forget_deleted(&mut self, retention: &Retention) -> Outcome<()> {
        for kind in self.kinds_of("SELECT kind FROM onward.deleted WHERE kind > $1 ORDER BY kind LIMIT 1").await? {
            if let Some(before) = retention.kept_since(&kind, self.set.now) {
                let sql = Sql::new("DELETE FROM onward.deleted WHERE kind = $1 AND at <= $2").text(kind).number(before);
                self.db.query(&sql).await?;
            }
        }
        Ok(())
    }

    /// Returns all kinds, with one index lookup each.
    async fn kinds_of(&self, text: &str) -> Outcome<Vec<String>> {
        let mut kinds: Vec<String> = Vec::new();
        loop {
            let after = kinds.last().cloned().unwrap_or_default();
            match self.db.query(&Sql::new(text).text(after)).await?.first() {
                Some(row) => kinds.push(row.get(0)),
                None => return Ok(kinds),
            }
        }
    }

    pub async fn delete_runs(&mut self, delete: &Delete) -> Outcome<u64> {
        match delete {
            Delete::Run { key, reason } => self.delete_run(key, reason).await,
            Delete::Expired { retention, limit } => self.delete_expired(retention, *limit).await,
        }
    }

    pub async fn finish_deliveries(&mut self, done: &[OutboxId]) -> Outcome<()> {
        let numbers = done.iter().map(|id| id.0 as i64).collect();
        self.db.query(&Sql::new("DELETE FROM onward.outbox WHERE id = ANY($1)").numbers(numbers)).await?;
        Ok(())
    }

    pub async fn register_kinds(&mut self, kinds: &[KindSchemas], registration: &Registration) -> Outcome<Timestamp> {
        let mut stored = Vec::new();
        for namespace in registration.compared(kinds) {
            // Rows that another transaction inserts could not be locked (RK1). The next statement sees what it has committed.
            let lock = Sql::new("SELECT pg_advisory_xact_lock(hashtextextended('onward.kinds ' || $1, 0))");
            self.db.query(&lock.text(namespace.as_str())).await?;
            stored.extend(list::list_kinds(self.db, &namespace).await?);
        }
        let (mut sorted, at) = registration.decide(kinds.to_vec(), &stored, self.set.now)?;
        // Sorted, so that two servers that register the same kinds do not deadlock; the last registration counts.
        sorted.sort_by(|a, b| a.key().cmp(&b.key()));
        for kind in sorted {
            let (namespace, is_task, name, version) = kind.key();
            let key =
                |text: &str| Sql::new(text).text(namespace.as_str()).flag(is_task).text(name.as_str()).text(text_of(version));
            let sql = match kind.has_schemas() {
                true => key("INSERT INTO onward.kinds(ns, task, kind, version, data) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT (ns, task, kind, version) DO UPDATE SET data = excluded.data")
                .bytes(seal(&kind)),
                false => key("DELETE FROM onward.kinds WHERE ns = $1 AND task = $2 AND kind = $3 AND version = $4"),
            };
            self.db.query(&sql).await?;
        }
        Ok(at)
    }
}
