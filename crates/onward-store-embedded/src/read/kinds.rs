//! Reads of the schemas of kinds.

use onward_core::{KindSchemas, Namespace};
use onward_store::StoreError;
use rusqlite::Connection;

use crate::error::read_error;
use crate::row::unseal;

pub(crate) fn list(db: &Connection, namespace: &Namespace) -> Result<Vec<KindSchemas>, StoreError> {
    let sql = "SELECT data FROM kinds WHERE ns = ?1 ORDER BY task, kind, version";
    let mut statement = db.prepare_cached(sql).map_err(read_error)?;
    let rows = statement.query_map([namespace.as_str()], |row| row.get::<_, Vec<u8>>(0));
    let rows = rows.and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>).map_err(read_error)?;
    rows.iter().map(|data| unseal("a kind's schemas", data)).collect()
}
