//! Tests of the parent module.

use super::*;

#[test]
fn output_of_a_program_moves_no_cursor() {
    assert_eq!(printable(b"\x1b[2J? Call the tool?\r\n"), "\\u{1b}[2J? Call the tool?");
    assert_eq!(printable(b"a\tb\x08\xff \n"), "a b\\u{8}\u{fffd}");
}
