//! Large payloads, stored once by content hash.
//!
//! Owns the tables `blobs` (reference counts) and `payloads` (bytes, apart so that counting does not move them). A write of a row
//! with stubs lists their hashes in the row's `blobs` column and increments their counts; a removal of the row decrements them.
//! Must never return data with another hash.

use onward_store::StoreError;
use onward_store::durable::Blobs;
use onward_store::durable::large::{self, HasPayloads};
use rusqlite::{Connection, Row, params};

use crate::error::{leave_damaged, read_error};
use crate::row::{Statements, hashes, seal_bytes};

/// Encodes the row's `blobs` column.
pub(crate) fn column(blobs: &Blobs) -> Option<Vec<u8>> {
    (!blobs.blobs.is_empty()).then(|| seal_bytes(blobs.blobs.iter().flat_map(|(hash, _)| hash.0).collect()))
}

/// Writes the blobs, or increments the counts of existing ones.
pub(crate) fn write(blobs: &Blobs, db: &Connection) -> rusqlite::Result<()> {
    for (hash, data) in &blobs.blobs {
        // A damaged count stays damaged, and its blob is never removed.
        let known =
            "UPDATE blobs SET refs = refs + 1, crc = row_crc(hash, refs + 1) WHERE hash = ?1 AND crc = row_crc(hash, refs)";
        if db.run(known, params![&hash.0])? == 0 {
            let new =
                "INSERT INTO blobs(hash, refs, crc) VALUES (?1, 1, row_crc(?1, 1)) ON CONFLICT(hash) DO NOTHING RETURNING seq";
            if let Some(seq) = db.one(new, params![&hash.0], |row| row.get::<_, i64>(0))? {
                db.run("INSERT INTO payloads(seq, data) VALUES (?1, ?2)", params![seq, &data[..]])?;
            }
        }
    }
    Ok(())
}

/// Reads the `blobs` column, the first of the query, of a row that is being removed. A value of another type counts as empty.
pub(crate) fn read_column(row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(row.get_ref(0)?.as_blob_or_null().ok().flatten().map(<[u8]>::to_vec))
}

/// Decrements the counts of what a removed row referred to.
pub(crate) fn drop_references(db: &Connection, column: Option<&[u8]>) -> rusqlite::Result<()> {
    for hash in hashes(column) {
        let sql = "UPDATE blobs SET refs = refs - 1, crc = row_crc(hash, refs - 1) WHERE hash = ?1 AND crc = row_crc(hash, refs)
                 RETURNING seq, refs";
        let left: Option<(i64, i64)> = db.one(sql, params![&hash], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some((seq, _)) = left.filter(|(_, left)| *left <= 0) {
            db.run("DELETE FROM blobs WHERE seq = ?1", [seq])?;
            leave_damaged(db.run("DELETE FROM payloads WHERE seq = ?1", [seq]))?;
        }
    }
    Ok(())
}

/// Replaces stubs by their payloads.
pub(crate) fn restore(db: &Connection, carrier: &mut impl HasPayloads) -> Result<(), StoreError> {
    large::restore(carrier, &mut |hash| {
        let sql = "SELECT data FROM blobs JOIN payloads USING (seq) WHERE hash = ?1";
        db.one(sql, params![hash], |row| row.get(0)).map_err(read_error)
    })
}
