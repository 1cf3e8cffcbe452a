//! Tests of the parent module.

use super::*;

#[test]
fn long_texts_are_broken_at_blanks_or_where_they_must() {
    assert_eq!(wrap("the code changed", 8), ["the code", "changed"]);
    assert_eq!(wrap("a bcdefghijk l", 4), ["a", "bcde", "fghi", "jk l"]);
    assert_eq!(wrap("", 4), [""]);
}

#[test]
fn columns_stand_under_each_other_and_nothing_trails() {
    let mut table = TextTable::new(&["ID", "KIND"]);
    table.row(vec!["order-1".into(), "order".into()]);
    table.row(vec!["a\nb".into(), "".into()]);
    assert_eq!(table.take(), "ID       KIND\norder-1  order\na\\nb\n");
    table.row(vec!["x".into(), "y".into()]);
    assert_eq!(table.take(), "x        y\n");
}
