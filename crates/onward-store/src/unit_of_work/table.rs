//! Rows of one run, as far as a unit of work has read and changed them.
//!
//! Owns the difference between "does not exist" and "not read". Changes are visible to later decisions before they are saved.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, Option<V>>,
    /// All stored rows are in `rows`.
    is_complete: bool,
    /// All stored rows are deleted first.
    is_cleared: bool,
    changed: BTreeSet<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { rows: BTreeMap::new(), is_complete: false, is_cleared: false, changed: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    /// Creates the table of a run that has no stored rows.
    pub fn empty() -> Table<K, V> {
        Table { is_complete: true, ..Table::default() }
    }

    /// Returns true if nothing was read, changed or cleared.
    pub fn is_untouched(&self) -> bool {
        self.rows.is_empty() && !self.is_complete
    }

    pub fn knows(&self, key: &K) -> bool {
        self.is_complete || self.rows.contains_key(key)
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns a row, which must be known.
    pub fn get(&self, key: &K) -> Option<&V> {
        debug_assert!(self.knows(key), "a row is looked at after it was read");
        self.rows.get(key).and_then(Option::as_ref)
    }

    /// Returns all rows, which must be known.
    pub fn all(&self) -> impl Iterator<Item = (&K, &V)> {
        debug_assert!(self.is_complete, "all rows are looked at after they were read");
        self.rows.iter().filter_map(|(key, row)| row.as_ref().map(|row| (key, row)))
    }

    /// Adds a row that was read, unless it is known already.
    pub fn learn(&mut self, key: K, row: Option<V>) {
        self.rows.entry(key).or_insert(row);
    }

    pub fn learn_all(&mut self) {
        self.is_complete = true;
    }

    pub fn put(&mut self, key: K, row: V) {
        self.changed.insert(key.clone());
        self.rows.insert(key, Some(row));
    }

    pub fn remove(&mut self, key: &K) {
        self.changed.insert(key.clone());
        self.rows.insert(key.clone(), None);
    }

    pub fn clear(&mut self) {
        *self = Table { is_complete: true, is_cleared: true, ..Table::default() };
    }

    pub fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Returns the changes to write: a row, or none for a deleted one.
    pub fn changes(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.changed.iter().map(|key| (key, self.rows.get(key).and_then(Option::as_ref)))
    }
}

#[cfg(test)]
mod tests;
