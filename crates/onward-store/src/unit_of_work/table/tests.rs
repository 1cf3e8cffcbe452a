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

#[test]
fn a_table_is_untouched_until_it_is_read_changed_or_cleared() {
    let touched = |touch: fn(&mut Table<u32, &str>)| {
        let mut table = Table::default();
        touch(&mut table);
        !table.is_untouched()
    };
    assert!(!touched(|_| {}));
    assert!(touched(|table| table.learn(1, None)) && touched(|table| table.learn_all()));
    assert!(touched(|table| table.put(1, "new")) && touched(|table| table.remove(&1)) && touched(|table| table.clear()));
    assert!(!Table::<u32, &str>::empty().is_untouched());
}
