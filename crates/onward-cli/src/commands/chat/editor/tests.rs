//! Tests of the parent module.

use super::*;

fn after(bytes: &[u8]) -> (String, usize) {
    let mut editor = Editor::default();
    editor.handle_keys(bytes);
    (editor.line.iter().collect(), editor.cursor)
}

#[test]
fn keys_change_the_line_where_the_cursor_is() {
    assert_eq!(after(b"abc\x1b[D\x1b[DX"), ("aXbc".to_owned(), 2));
    assert_eq!(after(b"one two\x17"), ("one ".to_owned(), 4));
    assert_eq!(after(b"abc\x01\x1b[3~Y\x05Z\x7f"), ("Ybc".to_owned(), 3));
    assert_eq!(after(b"abc\x1b[D\x0b\x1b"), ("ab".to_owned(), 2));
    assert_eq!(after(b"abc\x15\x1b[200~d\x1b[201~"), ("d".to_owned(), 1));
}

#[test]
fn characters_and_sequences_may_come_in_pieces() {
    let mut editor = Editor::default();
    for byte in "żß\u{1f600}".bytes().chain(*b"\x1b[D!") {
        assert_eq!(editor.handle_keys(&[byte]), []);
    }
    // A lone escape is consumed at once, so the rest of its sequence is inserted as text.
    assert_eq!(editor.line.iter().collect::<String>(), "żß\u{1f600}[D!");
    assert_eq!(editor.handle_keys(b"\xff\r"), [Typed::Message("żß\u{1f600}[D!".to_owned())]);
}

#[test]
fn lines_from_before_come_back() {
    let mut editor = Editor::default();
    assert_eq!(editor.handle_keys(b"one\rtwo\n"), [Typed::Message("one".to_owned()), Typed::Message("two".to_owned())]);
    editor.handle_keys(b"\x1b[A\x1b[A\x1b[A");
    assert_eq!(editor.line().0.iter().collect::<String>(), "one");
    editor.handle_keys(b"\x1b[B\x1b[B");
    assert_eq!(editor.line().0.len(), 0);
    assert_eq!(editor.handle_keys(b"\x04"), [Typed::End]);
}

#[test]
fn pasted_lines_are_one_message() {
    let message = |text: &str| vec![Typed::Message(text.to_owned())];
    let mut editor = Editor::default();
    assert_eq!(
        editor.handle_keys(b"see: \x1b[200~one\r\ntwo\n\tthree\x03\x1b[201~ done\n"),
        message("see: one\ntwo\n    three done")
    );
    // The end marker may arrive in pieces.
    assert_eq!(editor.handle_keys(b"\x1b[200~a\nb\x1b"), []);
    assert_eq!(editor.handle_keys(b"[20"), []);
    assert_eq!(editor.handle_keys(b"1~\n"), message("a\nb"));
    // So may a line end.
    assert_eq!(editor.handle_keys(b"\x1b[200~a\r"), []);
    assert_eq!(editor.handle_keys(b"\nb\rc\x1b[201~\r"), message("a\nb\nc"));
}

#[test]
fn alt_enter_and_a_backslash_add_a_line() {
    let mut editor = Editor::default();
    assert_eq!(editor.handle_keys(b"one\x1b\ntwo\\\nthree\n"), [Typed::Message("one\ntwo\nthree".to_owned())]);
    assert_eq!(editor.handle_keys(b"a\\b\n"), [Typed::Message("a\\b".to_owned())]);
}
