//! Rows of the ledger.
//!
//! A row is written together with the event that it counts, under the lock of its run (LG3, DB1), and stays when its run is
//! deleted (LG4).

use onward_core::RunKey;
use onward_core::ledger::{LedgerKey, LedgerSum, SpendQuery, SpendRow, SpendTally};
use onward_core::root_run::root_run;
use onward_store::durable::seal::{seal, unseal};
use onward_store::unit_of_work::RunRef;
use onward_store::{StoreError, page_limit};
use tokio_postgres::Row;

use crate::connection::sql::{Db, Sql};
use crate::error::{Outcome, damaged_row};
use crate::row::crc;
use crate::write::load::row_key;
use crate::write::unit::{LockedRun, UnitOfWork};

const COLUMNS: &str = "l.ns, l.id, l.day, l.generation, l.incarnation, l.model, l.data, l.crc";

/// Number of rows per query.
const PAGE: i64 = 4_096;

impl UnitOfWork<'_> {
    /// Reads a row. Runs without spend never get here.
    pub async fn need_ledger(&mut self, run: RunRef, row: &LedgerKey) -> Outcome<()> {
        if self.set.runs[run].ledger.knows(row) {
            return Ok(());
        }
        let sql = Sql::new(format!("SELECT {COLUMNS} FROM onward.ledger l"))
            .also(" WHERE l.ns = ?")
            .text(row.run.namespace.as_str())
            .also(" AND l.day = ?")
            .number(i64::from(row.day))
            .also(" AND l.id = ?")
            .text(row.run.id.as_str())
            .also(" AND l.generation = ?")
            .int(row.generation.cast_signed())
            .also(" AND l.incarnation = ?")
            .number(row.incarnation.cast_signed())
            .also(" AND l.model = ?")
            .bytes(row.model.clone().into_bytes());
        let found = self.db.query(&sql).await?;
        let known = found.first().map(read_row).transpose()?;
        self.set.runs[run].ledger.learn(row.clone(), known.map(|(_, known)| known));
        Ok(())
    }
}

pub(crate) fn save(runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
    let rows: Vec<(&LedgerKey, Vec<u8>)> =
        runs.iter().flat_map(|locked| locked.ledger.changes()).filter_map(|(row, sum)| Some((row, seal(sum?)))).collect();
    if rows.is_empty() {
        return;
    }
    calls.push(
        Sql::call("put_ledger")
            .texts(rows.iter().map(|(row, _)| row.run.namespace.as_str().to_owned()).collect())
            .numbers(rows.iter().map(|(row, _)| i64::from(row.day)).collect())
            .texts(rows.iter().map(|(row, _)| row.run.id.as_str().to_owned()).collect())
            .ints(rows.iter().map(|(row, _)| row.generation.cast_signed()).collect())
            .numbers(rows.iter().map(|(row, _)| row.incarnation.cast_signed()).collect())
            .byteses(rows.iter().map(|(row, _)| row.model.clone().into_bytes()).collect())
            .texts(rows.iter().map(|(row, _)| row.tree().to_owned()).collect())
            .byteses(rows.iter().map(|(_, data)| data.clone()).collect())
            .numbers(rows.iter().map(|(row, data)| row_crc(row, data)).collect()),
    );
}

/// Deletes the rows of some logs of a run, which are rebuilt from the logs. The incarnation may be stored as 0 if it was not
/// known.
pub(crate) fn remove(key: &RunKey, logs: impl Iterator<Item = (u32, u64)>) -> Sql {
    let (generations, incarnations) =
        logs.map(|(generation, incarnation)| (generation.cast_signed(), incarnation.cast_signed())).unzip();
    Sql::new(
        "DELETE FROM onward.ledger l USING unnest($4::int[], $5::bigint[]) AS k(generation, incarnation)
         WHERE l.ns = $1 AND l.tree = $2 AND l.id = $3 AND l.generation = k.generation AND l.incarnation IN (k.incarnation, 0)",
    )
    .text(key.namespace.as_str())
    .text(root_run(&key.id))
    .text(key.id.as_str())
    .ints(generations)
    .numbers(incarnations)
}

fn row_crc(row: &LedgerKey, data: &[u8]) -> i64 {
    let names = [row.run.namespace.as_str().as_bytes(), row.run.id.as_str().as_bytes(), row.model.as_bytes(), data];
    crc(&[i64::from(row.day), i64::from(row.generation), row.incarnation.cast_signed()], &names)
}

fn read_row(row: &Row) -> Result<(LedgerKey, LedgerSum), StoreError> {
    let run = row_key(row, 0)?;
    let wrong = || damaged_row(&run, "its spend");
    let (day, generation) = (u32::try_from(row.get::<_, i64>(2)), u32::try_from(row.get::<_, i32>(3)));
    let (Ok(day), Ok(generation), Ok(model)) = (day, generation, String::from_utf8(row.get(5))) else { return Err(wrong()) };
    let key = LedgerKey { run: run.clone(), generation, incarnation: row.get::<_, i64>(4).cast_unsigned(), day, model };
    let data: &[u8] = row.get(6);
    if row.get::<_, i64>(7) != row_crc(&key, data) {
        return Err(wrong());
    }
    Ok((key, unseal("a row of the ledger", data).map_err(|_| wrong())?))
}

pub(crate) async fn spend(db: &Db, query: &SpendQuery) -> Outcome<Vec<SpendRow>> {
    let mut tally = SpendTally::new(query.by);
    let Some((first, last)) = query.days() else { return Ok(Vec::new()) };
    let mut after: Option<LedgerKey> = None;
    loop {
        let rows = db.query(&select(query, (first, last), after.as_ref())).await?;
        for row in &rows {
            let (key, sum) = read_row(row)?;
            tally.add(&key, &sum);
            after = Some(key);
        }
        if (rows.len() as i64) < PAGE {
            break;
        }
    }
    Ok(tally.finish(page_limit(query.limit)))
}

fn select(query: &SpendQuery, (first, last): (u32, u32), after: Option<&LedgerKey>) -> Sql {
    let mut sql =
        Sql::new(format!("SELECT {COLUMNS} FROM onward.ledger l")).also(" WHERE l.ns = ?").text(query.namespace.as_str());
    sql = sql.also(" AND l.day >= ?").number(i64::from(first)).also(" AND l.day <= ?").number(i64::from(last));
    if let Some(tree) = query.tree_name() {
        sql = sql.also(" AND l.tree = ?").text(tree);
    }
    if let Some(after) = after {
        sql = sql
            .also(" AND (l.day, l.id, l.generation, l.incarnation, l.model) > (?,")
            .number(i64::from(after.day))
            .also(" ?,")
            .text(after.run.id.as_str())
            .also(" ?,")
            .int(after.generation.cast_signed())
            .also(" ?,")
            .number(after.incarnation.cast_signed())
            .also(" ?)")
            .bytes(after.model.clone().into_bytes());
    }
    sql.also(" ORDER BY l.day, l.id, l.generation, l.incarnation, l.model LIMIT ?").number(PAGE)
}
