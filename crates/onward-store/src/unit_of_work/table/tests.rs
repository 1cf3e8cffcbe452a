//! Tests of the parent module.

use super::*;

#[test]
fn what_was_changed_counts_more_than_what_is_read_later() {
    let mut table: Table<u32, &str> = Table::default();
    table.put(1, "new");
    table.remove(&2);
    for (key, row) in [(1, "old"), (2, "old"), (3, "old")] {
        table.learn(key, Some(row));
    }
    table.learn_all();
    assert_eq!(table.all().collect::<Vec<_>>(), [(&1, &"new"), (&3, &"old")]);
    assert_eq!(table.changes().collect::<Vec<_>>(), [(&1, Some(&"new")), (&2, None)]);
    table.clear();
    assert_eq!((table.all().count(), table.changes().count(), table.is_cleared()), (0, 0, true));
}
