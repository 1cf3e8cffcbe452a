//! Reads of one run. Each has one snapshot, so a run that is being deleted is read completely or not at all (L20).

use onward_core::run::OutboxMessage;
use onward_core::{Index, Record, RunHead, RunKey, Timestamp};
use onward_store::durable::large::{self, HasPayloads};
use onward_store::durable::seal::{number, unseal_message};
use onward_store::{KnownRun, OutboxId, RunUpdate, StoreError, payloads, shown};
use tokio_postgres::Row;

use crate::connection::sql::{Db, Sql};
use crate::error::{OpError, Outcome};
use crate::row::{EventRow, unseal_head};
use crate::write::load::row_key;

/// Checks that the database accepts writes: a standby responds, but accepts none.
pub(crate) async fn check(db: &Db) -> Outcome<()> {
    let rows = db.query(&Sql::new("SELECT current_setting('transaction_read_only')::boolean")).await?;
    match rows.first().is_some_and(|row| row.get(0)) {
        true => Err(OpError::Refused(StoreError::Unavailable { why: "it accepts no writes: standby or read-only".to_owned() })),
        false => Ok(()),
    }
}

/// A run as stored in its row.
struct StoredRun {
    rk: i64,
    head: RunHead,
}

async fn find(db: &Db, key: &RunKey) -> Outcome<Option<StoredRun>> {
    let text = "SELECT rk, head, worker IS NOT NULL FROM onward.runs WHERE ns = $1 AND id = $2";
    let rows = db.query(&Sql::new(text).key(key)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (head, _) = unseal_head(key, row.get(1))?;
    Ok(Some(StoredRun { rk: row.get(0), head: shown(head, row.get(2)) }))
}

pub(crate) async fn read_run(db: &Db, key: &RunKey, generation: Option<u32>) -> Outcome<Option<RunHead>> {
    let Some(found) = find(db, key).await? else { return Ok(None) };
    match generation {
        Some(generation) if generation != found.head.generation => past(db, key, found.rk, generation).await,
        _ => Ok(Some(found.head)),
    }
}

async fn past(db: &Db, key: &RunKey, rk: i64, generation: u32) -> Outcome<Option<RunHead>> {
    let sql = Sql::new("SELECT head FROM onward.past WHERE rk = $1 AND generation = $2").number(rk).int(generation as i32);
    let rows = db.query(&sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(unseal_head(key, row.get(0))?.0))
}

/// Number of rows per query: few at first, because each may have large payloads.
const FIRST_PAGE: usize = 16;
const PAGE_MAX: usize = 1_024;

pub(crate) async fn read_log(db: &Db, key: &RunKey, generation: Option<u32>, from: Index, limit: usize) -> Outcome<Vec<Record>> {
    let missing = || StoreError::RunNotFound { key: key.clone() };
    let found = find(db, key).await?.ok_or_else(missing)?;
    let head = match generation {
        Some(generation) if generation != found.head.generation => {
            past(db, key, found.rk, generation).await?.ok_or_else(missing)?
        }
        _ => found.head,
    };
    let mut records: Vec<Record> = Vec::new();
    let mut rows = FIRST_PAGE;
    loop {
        let next = records.last().map_or(from, Record::next_index);
        let wanted = rows.min(limit - records.len());
        let page = read_records(db, key, found.rk, head.generation, next, wanted).await?;
        let is_last = page.len() < wanted || records.len() + page.len() == limit;
        records.extend(page);
        if payloads::is_long(&records) {
            payloads::shorten(&mut records);
            return Ok(records);
        }
        if is_last {
            break;
        }
        rows = (rows * 2).min(PAGE_MAX);
    }
    // The head records the length of the log: a missing tail is damage, not the end.
    let end = records.last().map_or(from, Record::next_index);
    if records.len() < limit && end < head.next_index {
        return Err(StoreError::LogCorrupt { key: key.clone(), index: end, why: "the event is missing".to_owned() }.into());
    }
    Ok(records)
}

pub(crate) const READ_RECORDS: &str = "SELECT idx, at, crc, body FROM onward.events WHERE rk = $1 AND generation = $2
  AND idx >= coalesce((SELECT max(idx) FROM onward.events WHERE rk = $1 AND generation = $2 AND idx <= $3), $3) ORDER BY idx LIMIT $4";

/// Reads up to `limit` records from the one that contains event `from`.
pub(crate) async fn read_records(
    db: &Db,
    key: &RunKey,
    rk: i64,
    generation: u32,
    from: Index,
    limit: usize,
) -> Outcome<Vec<Record>> {
    let sql = Sql::new(READ_RECORDS).number(rk).int(generation as i32).number(number(from.0)).number(number(limit));
    check_records(db, key, rk, generation, from, db.query(&sql).await?.iter()).await
}

/// Decodes and checks the records of one log. Rows end with index, time, checksum and body; the first one contains event `from`
/// or precedes it.
async fn check_records(
    db: &Db,
    key: &RunKey,
    rk: i64,
    generation: u32,
    from: Index,
    rows: impl Iterator<Item = &Row>,
) -> Outcome<Vec<Record>> {
    let mut expected = from;
    let mut records: Vec<Record> = Vec::new();
    for row in rows {
        let at = row.len() - 4;
        let (index, time) = (Index(row.get::<_, i64>(at) as u64), Timestamp(row.get::<_, i64>(at + 1) as u64));
        let event = EventRow { rk, generation, index, at: time, crc: row.get(at + 2), body: row.get(at + 3) };
        let mut record = event.decode(key)?;
        let follows = if records.is_empty() { record.index <= expected } else { record.index == expected };
        let corrupt = |index: Index, why: String| StoreError::LogCorrupt { key: key.clone(), index, why };
        if !follows {
            return Err(corrupt(expected, "the event is missing".to_owned()).into());
        }
        record.events = match restore_payloads(db, rk, std::mem::take(&mut record.events)).await {
            Err(OpError::Refused(error)) => return Err(corrupt(record.index, error.to_string()).into()),
            other => other?,
        };
        expected = record.next_index();
        records.push(record);
    }
    // The record before `from` may end before it: then there is nothing yet.
    records.retain(|record| record.next_index() > from);
    Ok(records)
}

/// Reads what runs have beyond what is known: one statement finds those that have grown, a second one reads their records.
pub(crate) async fn read_since(db: &Db, known: &[KnownRun]) -> Outcome<Vec<RunUpdate>> {
    let names = |known: &KnownRun| (known.run.namespace.as_str().to_owned(), known.run.id.as_str().to_owned());
    let (namespaces, ids) = known.iter().map(names).unzip();
    let sql = Sql::new(GROWN_RUNS)
        .texts(namespaces)
        .texts(ids)
        .ints(known.iter().map(|known| known.generation as i32).collect())
        .numbers(known.iter().map(|known| known.next.0 as i64).collect());
    let mut grown = Vec::new();
    for row in db.query(&sql).await? {
        let known = &known[row.get::<_, i64>(0) as usize - 1];
        let (head, _) = unseal_head(&known.run, row.get(2))?;
        grown.push((known, row.get::<_, i64>(1), shown(head, row.get(3))));
    }
    if grown.is_empty() {
        return Ok(Vec::new());
    }
    let sql = Sql::new(NEW_RECORDS)
        .numbers(grown.iter().map(|(_, rk, _)| *rk).collect())
        .ints(grown.iter().map(|(known, ..)| known.generation as i32).collect())
        .numbers(grown.iter().map(|(known, ..)| known.next.0 as i64).collect());
    let rows = db.query(&sql).await?;
    let mut logs = rows.chunk_by(|a, b| a.get::<_, i64>(0) == b.get::<_, i64>(0)).peekable();
    let mut updates = Vec::new();
    for ((known, rk, head), position) in grown.into_iter().zip(1i64..) {
        let own = logs.next_if(|rows| rows[0].get::<_, i64>(0) == position).unwrap_or_default();
        let records = check_records(db, &known.run, rk, known.generation, known.next, own.iter()).await?;
        updates.push(RunUpdate { generation: known.generation, head, records });
    }
    Ok(updates)
}

/// Finds those of many runs that have grown. The LIMIT keeps it to one index lookup per run.
pub(crate) const GROWN_RUNS: &str = "SELECT k.position, r.rk, r.head, r.is_held
  FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) WITH ORDINALITY AS k(ns, id, generation, next, position)
  CROSS JOIN LATERAL (SELECT r.rk, r.head, r.worker IS NOT NULL AS is_held FROM onward.runs r
    WHERE r.ns = k.ns AND r.id = k.id AND (r.generation, r.next) > (k.generation, k.next) LIMIT 1) AS r";

/// Reads like [`READ_RECORDS`], for many runs in their order.
pub(crate) const NEW_RECORDS: &str = "SELECT k.position, e.idx, e.at, e.crc, e.body
  FROM unnest($1::bigint[], $2::int[], $3::bigint[]) WITH ORDINALITY AS k(rk, generation, next, position)
  CROSS JOIN LATERAL (SELECT e.idx, e.at, e.crc, e.body FROM onward.events e WHERE e.rk = k.rk AND e.generation = k.generation
    AND e.idx >= coalesce((SELECT max(b.idx) FROM onward.events b
      WHERE b.rk = k.rk AND b.generation = k.generation AND b.idx <= k.next), k.next) ORDER BY e.idx) AS e
  ORDER BY k.position, e.idx";

/// Reads the oldest outbox messages. Damaged ones are skipped; if only damaged ones are left, each call fails with their error.
pub(crate) async fn read_outbox(db: &Db, limit: usize) -> Outcome<Vec<(OutboxId, OutboxMessage)>> {
    let (mut found, mut after, mut first_error) = (Vec::new(), 0, None);
    while found.is_empty() {
        let sql = Sql::new("SELECT id, rk, data FROM onward.outbox WHERE id > $1 ORDER BY id LIMIT $2");
        let rows = db.query(&sql.number(after).number(number(limit))).await?;
        let Some(last) = rows.last() else { break };
        after = last.get(0);
        for row in &rows {
            let (id, rk): (i64, i64) = (row.get(0), row.get(1));
            match read_delivery(db, rk, row.get(2)).await {
                Ok(message) => found.push((OutboxId(id as u64), message)),
                Err(OpError::Refused(error)) => first_error = first_error.or(Some((rk, error))),
                Err(other) => return Err(other),
            }
        }
    }
    match first_error {
        Some((rk, error)) if found.is_empty() => Err(lost_news(db, rk, error).await.into()),
        _ => Ok(found),
    }
}

async fn read_delivery(db: &Db, rk: i64, data: &[u8]) -> Outcome<OutboxMessage> {
    restore_payloads(db, rk, unseal_message(data)?).await
}

/// Adds the run whose outbox message is damaged to the error.
async fn lost_news(db: &Db, rk: i64, error: StoreError) -> StoreError {
    let rows = db.query(&Sql::new("SELECT ns, id FROM onward.runs WHERE rk = $1").number(rk)).await.unwrap_or_default();
    match rows.first().map(|row| row_key(row, 0)) {
        Some(Ok(key)) => {
            let why = format!("its outbox message for another run cannot be delivered: {error}");
            StoreError::LogCorrupt { key, index: Index(0), why }
        }
        _ => error,
    }
}

/// Replaces stubs by the large payloads, which belong to the run that refers to them and are deleted with it: there are no
/// reference counts, and runs that got the same file do not block each other.
pub(crate) async fn restore_payloads<C: HasPayloads>(db: &Db, rk: i64, mut carrier: C) -> Outcome<C> {
    let wanted = large::wanted(&mut carrier);
    if wanted.is_empty() {
        return Ok(carrier);
    }
    let hashes = wanted.iter().map(|hash| hash.to_vec()).collect();
    let sql = Sql::new("SELECT hash, data FROM onward.blobs WHERE rk = $1 AND hash = ANY($2)").number(rk).byteses(hashes);
    let found: Vec<(Vec<u8>, Vec<u8>)> = db.query(&sql).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    let find = &mut |hash: &[u8; 16]| -> Result<Option<Vec<u8>>, StoreError> {
        Ok(found.iter().find(|(own, _)| own == hash).map(|(_, data)| data.clone()))
    };
    large::restore(&mut carrier, find).map_err(OpError::Refused)?;
    Ok(carrier)
}
