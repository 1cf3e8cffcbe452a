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
