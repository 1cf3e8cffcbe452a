//! Tests of the parent module.

use super::shell_word;

#[test]
fn words_are_quoted_when_a_shell_would_take_them_apart() {
    assert_eq!(shell_word("order-1~0~2.1.0"), "order-1~0~2.1.0");
    assert_eq!(shell_word("a b"), "'a b'");
    assert_eq!(shell_word("it's"), r"'it'\''s'");
    assert_eq!(shell_word("~0"), "'~0'");
    assert_eq!(shell_word(""), "''");
}
