//! Tests of the parent module.

use super::*;

#[test]
fn rows_go_out_in_their_order_and_in_portions_that_a_statement_takes() {
    let half = BATCH_BYTES_MAX / 2;
    let rows = [half, half, 1, half, half, 3 * half, 1, 1];
    let sizes: Vec<Vec<usize>> = portions(rows, |row| *row);
    assert_eq!(sizes, [vec![half, half], vec![1, half], vec![half], vec![3 * half], vec![1, 1]]);
    assert!(portions([], |row: &usize| *row).is_empty());
}
