use super::*;

fn problem(line: usize, column: usize) -> Problem {
    Problem {
        severity: Severity::Error,
        code: "unknown_step",
        message: "no step is named `b\u{1b}`".to_owned(),
        hint: Some("did you mean `a`?".to_owned()),
        file: "f.yaml".to_owned(),
        line,
        column,
        path: String::new(),
        step: None,
    }
}

#[test]
fn a_problem_shows_its_line_with_a_caret() {
    let shown = format_problem(&problem(2, 8), "flow: x\n  日本\u{1b}: b\n", Style::stdout());
    let expected = "f.yaml:2:8: error[unknown_step]: no step is named `b\\u{1b}`\n  2 |   日本\\u{1b}: b\n    |               ^\n  hint: did you mean `a`?";
    assert_eq!(shown, expected);
}

#[test]
fn long_lines_are_cut_around_the_column() {
    let (line, before) = excerpt(&"x".repeat(10_000), 5_000);
    assert_eq!(line.chars().count(), 122);
    assert_eq!(before, 61);
    assert_eq!(excerpt("abc", 9), ("abc".to_owned(), 3));
    assert_eq!(excerpt("", 1), (String::new(), 0));
}
