//! Rows of the ledger.
//!
//! A row is written together with the event that it counts (LG3), and stays when its run is deleted (LG4). The unsigned
//! incarnation is stored as a signed integer.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::ledger::{LedgerKey, LedgerSum, SpendQuery, SpendRow, SpendTally};
use onward_core::spend::PicoDollars;
use onward_core::{Namespace, RunId, RunKey};
use onward_store::{StoreError, page_limit};
use rusqlite::{Connection, Row, params};

use crate::error::{OpError, Outcome, damaged, damaged_row, read_error};
use crate::row::{Statements, seal, unseal};

const COLUMNS: &str = "ns, id, generation, incarnation, day, model, sum,
  crc IS row_crc(ns, id, tree, generation, incarnation, day, model, sum) AS is_sound";

/// Returns the sum in a row.
pub(crate) fn find(db: &Connection, row: &LedgerKey) -> Outcome<Option<LedgerSum>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM ledger
           WHERE ns = ?1 AND day = ?2 AND id = ?3 AND generation = ?4 AND incarnation = ?5 AND model = ?6"
    );
    let (namespace, id) = (row.run.namespace.as_str(), row.run.id.as_str());
    let key = params![namespace, row.day, id, row.generation, row.incarnation.cast_signed(), row.model];
    match db.one(&sql, key, read_row)? {
        None => Ok(None),
        Some(Some((_, sum))) => Ok(Some(sum)),
        Some(None) => Err(OpError::Damaged(damaged_row(&row.run, "the ledger"))),
    }
}

pub(crate) fn put(db: &Connection, row: &LedgerKey, sum: &LedgerSum) -> rusqlite::Result<()> {
    let sql = "INSERT INTO ledger(ns, id, tree, generation, incarnation, day, model, sum, crc)
           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, row_crc(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8))
         ON CONFLICT(ns, day, id, generation, incarnation, model) DO UPDATE SET tree = excluded.tree, sum = excluded.sum, crc = excluded.crc";
    let (namespace, id, incarnation) = (row.run.namespace.as_str(), row.run.id.as_str(), row.incarnation.cast_signed());
    let params = params![namespace, id, row.tree(), row.generation, incarnation, row.day, row.model, seal(sum)];
    db.run(sql, params).map(drop)
}

/// Returns the row if its checksum is valid.
fn read_row(row: &Row<'_>) -> rusqlite::Result<Option<(LedgerKey, LedgerSum)>> {
    if !row.get::<_, bool>("is_sound")? {
        return Ok(None);
    }
    let Some(run) = read_run_of(row)? else { return Ok(None) };
    let Ok(sum) = unseal::<LedgerSum>("a row of the ledger", row.get_ref("sum")?.as_blob()?) else { return Ok(None) };
    let (generation, incarnation) = (row.get("generation")?, row.get::<_, i64>("incarnation")?.cast_unsigned());
    Ok(Some((LedgerKey { run, generation, incarnation, day: row.get("day")?, model: row.get("model")? }, sum)))
}

/// Returns the run that a row names.
fn read_run_of(row: &Row<'_>) -> rusqlite::Result<Option<RunKey>> {
    let text = |name: &str| Ok::<_, rusqlite::Error>(row.get_ref(name)?.as_str().ok().map(str::to_owned));
    let (namespace, id) = (text("ns")?, text("id")?);
    let names = namespace.and_then(|name| Namespace::new(name).ok()).zip(id.and_then(|id| RunId::new(id).ok()));
    Ok(names.map(|(namespace, id)| RunKey::new(namespace, id)))
}

/// Returns the rows with a wrong checksum, by the run that each names.
pub(crate) fn damaged_rows(db: &Connection) -> rusqlite::Result<BTreeMap<RunKey, Vec<i64>>> {
    let mut statement = db.prepare(&format!("SELECT seq, {COLUMNS} FROM ledger NOT INDEXED"))?;
    let mut damaged: BTreeMap<RunKey, Vec<i64>> = BTreeMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if read_row(row)?.is_none()
            && let Some(run) = read_run_of(row)?
        {
            damaged.entry(run).or_default().push(row.get(0)?);
        }
    }
    Ok(damaged)
}

/// Returns the rows of a run with a valid checksum.
pub(crate) fn sound_rows(db: &Connection, run: &RunKey) -> rusqlite::Result<BTreeSet<LedgerKey>> {
    let mut statement = db.prepare(&format!("SELECT {COLUMNS} FROM ledger NOT INDEXED WHERE ns = ?1 AND id = ?2"))?;
    let rows = statement.query_map(params![run.namespace.as_str(), run.id.as_str()], read_row)?;
    rows.filter_map(|row| row.map(|row| row.map(|(key, _)| key)).transpose()).collect()
}

pub(crate) fn spend(db: &Connection, query: &SpendQuery) -> Result<Vec<SpendRow>, StoreError> {
    let mut tally = SpendTally::new(query.by);
    let Some((first, last)) = query.days() else { return Ok(Vec::new()) };
    let tree = if query.tree.is_some() {
        " AND +day BETWEEN ?2 AND ?3 AND tree = ?4"
    } else {
        " AND day BETWEEN ?2 AND ?3 AND ?4 IS NULL"
    };
    let sql = format!("SELECT {COLUMNS} FROM ledger WHERE ns = ?1{tree}");
    let mut statement = db.prepare_cached(&sql).map_err(read_error)?;
    let params = params![query.namespace.as_str(), first, last, query.tree_name()];
    let mut rows = statement.query(params).map_err(read_error)?;
    while let Some(row) = rows.next().map_err(read_error)? {
        match read_row(row).map_err(read_error)? {
            Some((key, sum)) => tally.add(&key, &sum),
            None => return Err(damaged_ledger(read_run_of(row).map_err(read_error)?)),
        }
    }
    Ok(tally.finish(page_limit(query.limit)))
}

/// Sums the costs of a namespace on a day.
pub(crate) fn spent_on(db: &Connection, namespace: &Namespace, day: u32) -> Result<PicoDollars, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM ledger WHERE ns = ?1 AND day = ?2");
    let mut statement = db.prepare_cached(&sql).map_err(read_error)?;
    let mut rows = statement.query(params![namespace.as_str(), day]).map_err(read_error)?;
    let mut spent = PicoDollars::default();
    while let Some(row) = rows.next().map_err(read_error)? {
        match read_row(row).map_err(read_error)? {
            Some((_, sum)) => spent = spent.plus(sum.lines.cost),
            None => return Err(damaged_ledger(read_run_of(row).map_err(read_error)?)),
        }
    }
    Ok(spent)
}

fn damaged_ledger(run: Option<RunKey>) -> StoreError {
    match run {
        Some(key) => damaged_row(&key, "the ledger"),
        None => damaged("a row of the ledger", "wrong checksum"),
    }
}
