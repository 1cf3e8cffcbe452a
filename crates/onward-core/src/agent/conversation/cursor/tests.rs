//! Tests of the parent module.

use super::*;

#[test]
fn a_cursor_reads_back_from_its_text_and_nothing_else_is_one() {
    let id = Hash::of_parts(&[b"x"]);
    for cursor in [EntryCursor::from(id), EntryCursor { id, generation: Some(7) }] {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
    for text in ["", "x", &format!("{id}~"), &format!("{id}~-1"), &format!("{id}0"), "é".repeat(16).as_str()] {
        assert_eq!(text.parse::<EntryCursor>(), Err(CursorError), "{text}");
    }
}
