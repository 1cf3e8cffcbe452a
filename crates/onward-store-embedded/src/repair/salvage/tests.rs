//! Tests of the parent module.

use super::*;

/// I11: an entry of `attributes_value` (name, value, run, row) has the types of one of `runs_key`.
#[test]
fn an_index_entry_of_an_attribute_is_not_read_as_that_of_a_run() {
    let text = |text: &str| Value::Text(text.to_owned());
    let number = Value::Integer;
    let key = RunKey::new(Namespace::new("shop").expect("a name"), RunId::new("order-1").expect("an id"));
    assert_eq!(indexed_run(&[text("customer"), text("c7"), number(116), number(116)]), None);
    let of_id = indexed_run(&[text("order-1"), text("shop"), number(0), number(116)]);
    assert_eq!(of_id, Some((116, IndexedRun { key: key.clone(), created: None })));
    let of_list = indexed_run(&[text("shop"), number(5), text("order-1"), text(""), number(1), number(116)]);
    assert_eq!(of_list, Some((116, IndexedRun { key, created: Some(Timestamp(5)) })));
}

/// SQLite reads such a page, but refuses to write it.
#[test]
fn a_leaf_with_a_free_block_outside_of_its_content_is_rebuilt() {
    let rows = [[3, 1, 2, 1, 7], [3, 2, 2, 1, 8]]; // length, row number, header of two bytes, type, value
    let mut page = vec![0; PAGE_BYTES];
    page[0] = TABLE_LEAF;
    page[4] = 2;
    for (number, row) in rows.iter().enumerate() {
        let at = USABLE - row.len() * (number + 1);
        page[at..at + row.len()].copy_from_slice(row);
        page[8 + 2 * number..10 + 2 * number].copy_from_slice(&(at as u16).to_be_bytes());
        page[5..7].copy_from_slice(&(at as u16).to_be_bytes());
    }
    let whole = page.clone();
    assert!(tidy_leaf(&mut page));
    assert_eq!(page, whole);
    page[1] = 1; // the free block is in the empty part of the page, so its length is 0
    assert!(tidy_leaf(&mut page));
    assert_eq!(page, whole);
}
