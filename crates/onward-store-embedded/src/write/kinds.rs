//! Schemas of kinds.

use onward_core::{KindSchemas, Name};
use rusqlite::params;

use crate::error::Outcome;
use crate::row::seal;
use crate::write::writer::Writer;

impl Writer<'_> {
    pub(crate) fn register_kinds(&mut self, kinds: Vec<KindSchemas>) -> Outcome<()> {
        for kind in kinds {
            let kind = KindSchemas { registered_at: self.set.now, ..kind };
            let (namespace, is_task, name, version) = kind.key();
            let (namespace, name, version) = (namespace.as_str(), name.as_str(), version.map_or("", Name::as_str));
            if kind.says_something() {
                self.db
                    .prepare_cached("INSERT OR REPLACE INTO kinds(ns, task, kind, version, data) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![namespace, is_task, name, version, seal(&kind)])?;
            } else {
                self.db
                    .prepare_cached("DELETE FROM kinds WHERE ns = ?1 AND task = ?2 AND kind = ?3 AND version = ?4")?
                    .execute(params![namespace, is_task, name, version])?;
            }
        }
        Ok(())
    }
}
