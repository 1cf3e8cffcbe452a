//! Tests of the parent module.

use super::*;

#[test]
fn rows_are_cut_between_words_where_that_is_possible() {
    let cut = |text: &str, width: usize, cut: RowCut| {
        let (mut row, mut rows) = (text.to_owned(), Vec::new());
        while let Some(full) = full_row(&mut row, width, cut) {
            rows.push(full);
        }
        rows.push(row);
        rows
    };
    let rows = |text: &str, width: usize| cut(text, width, RowCut::BetweenWords);
    assert_eq!(cut("a  b   c", 3, RowCut::Anywhere), ["a  ", "b  ", " c"], "no blank is dropped");
    assert_eq!(rows("one two three", 7), ["one two", "three"]);
    assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    assert_eq!(rows("漢字漢字", 5), ["漢字", "漢字"], "each is two columns wide");
}

#[test]
fn the_cursor_stays_in_sight() {
    let line: Vec<char> = "abcdefgh".chars().collect();
    assert_eq!(window(&line, 0, 4), ("abcd".to_owned(), 0));
    assert_eq!(window(&line, 8, 4), ("efgh".to_owned(), 4));
    assert_eq!(window(&line, 5, 4), ("bcde".to_owned(), 4));
}

#[test]
fn every_line_of_the_input_has_a_row_and_the_cursor_is_in_its_own() {
    let rows = |text: &str, cursor: usize| {
        let InputRows { rows, cursor_row, column } = InputRows::new(&text.chars().collect::<Vec<_>>(), cursor, 4);
        (rows.join("|"), cursor_row, column)
    };
    assert_eq!(rows("", 0), (String::new(), 0, 0));
    assert_eq!(rows("ab\ncd", 5), ("ab|cd".to_owned(), 1, 2));
    assert_eq!(rows("ab\ncd", 1), ("ab|cd".to_owned(), 0, 1));
    assert_eq!(rows("abcdef\ncdefgh\n", 14), ("abcd|cdef|".to_owned(), 2, 0));
    assert_eq!(rows(&"x\n".repeat(9), 18), ("x|x|x|x|x|x|x|".to_owned(), 7, 0), "only the rows before the cursor fit");
}
