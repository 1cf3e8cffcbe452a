//! Tests of the parent module.

use super::*;
use crate::CallId;
use crate::run::reopen::{child_id, derived_id};

fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

#[test]
fn a_family_is_what_stands_before_the_first_slash() {
    for (text, expected) in
        [("order-7", "order-7"), ("order-7/2", "order-7"), ("order-7/2/1-0", "order-7"), ("/x", ""), ("a/", "a")]
    {
        assert_eq!(root_run(&id(text)), expected);
    }
}

#[test]
fn a_long_family_is_cut_between_two_characters() {
    assert_eq!(root_run(&id(&"a".repeat(255))).len(), ROOT_RUN_BYTES_MAX);
    // Three bytes each: the 67th begins at byte 198 and would end at 201.
    assert_eq!(root_run(&id(&"€".repeat(80))).len(), 198);
}

#[test]
fn what_is_derived_from_a_run_is_of_its_family_however_deep_and_long() {
    for text in ["r", "/", "order-7/2", &"a".repeat(255), &"a".repeat(201), &"€".repeat(85), &format!("{}/b", "a".repeat(199))]
    {
        let first = id(text);
        let mut run = first.clone();
        for depth in 0..200 {
            run = child_id(&run, depth % 3, &CallId::root(1_000_000));
            assert_eq!(root_run(&run), root_run(&first), "{run} is derived from {first}"); // FA1
        }
        assert_eq!(root_run(&derived_id(&first, 1, "fork-0123456789abcdef")), root_run(&first));
    }
}

#[test]
fn the_ids_of_a_family_begin_with_its_stem() {
    for text in ["r", "order-7/2", &"a".repeat(255), &"a".repeat(201), &"a".repeat(200), &"€".repeat(85)] {
        let (first, mut run) = (id(text), id(text));
        for depth in 0..60 {
            run = child_id(&run, depth % 3, &CallId::root(1_000_000));
            assert!(run.as_str().starts_with(&stem(&first)), "{run} is derived from {first}");
        }
    }
    assert_eq!(stem(&id("order-7/2")), "order-7/");
    assert_eq!(stem(&id("order-7")), "order-7/", "and not order-71");
}

#[test]
fn two_children_of_a_run_with_a_long_id_have_two_ids() {
    let run = id(&"a".repeat(255));
    assert_ne!(child_id(&run, 0, &CallId::root(0)), child_id(&run, 0, &CallId::root(1)));
}
