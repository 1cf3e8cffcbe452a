//! Large payloads, stored once per run and content.
//!
//! They belong to the run that refers to them and are deleted with it. So there are no reference counts, and runs that got the
//! same file do not block each other.

use onward_store::StoreError;
use onward_store::durable::large::{self, HasPayloads};

use crate::connection::sql::{Db, Sql};
use crate::error::{Outcome, Trouble};

/// Replaces stubs by the large payloads.
pub(crate) async fn restore<C: HasPayloads>(db: &Db, rk: i64, mut carrier: C) -> Outcome<C> {
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
    large::restore(&mut carrier, find).map_err(Trouble::Refused)?;
    Ok(carrier)
}
