//! Tests of the parent module.

use super::*;

#[test]
fn a_text_is_cut_in_whole_characters() {
    assert_eq!(fragments("żółwie są dobre").collect::<Vec<_>>(), ["żółwie", " są do", "bre"]);
    assert_eq!(fragments("").count(), 0);
}

#[test]
fn lists_are_mixed_in_turns() {
    assert_eq!(in_turns(vec![vec![1, 2, 3], vec![10], vec![100, 200]]), [1, 10, 100, 2, 200, 3]);
}
