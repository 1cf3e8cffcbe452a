use super::*;

fn flow() -> Flow {
    let steps = serde_json::json!([{"name": "plan", "prompt": "?", "model": "small"}, {"name": "a\u{1b}[2J", "task": "t"}]);
    serde_json::from_value(serde_json::json!({"flow": "f", "steps": steps})).unwrap()
}

fn progress(state: ProgressState) -> Progress {
    Progress { step: "plan".to_owned(), state, times: 1, done: None, of: None, next: vec!["end".to_owned()] }
}

#[test]
fn a_step_is_a_row_of_columns() {
    let screen = ProgressScreen::with_mode(&flow(), Mode::Live);
    let (since, until) = (Timestamp::default(), Timestamp::default().after(std::time::Duration::from_millis(1_234)));
    let row = |progress: Progress| screen.format_row(&progress, "*".to_owned(), since, until);
    assert_eq!(row(progress(ProgressState::Done)), "* plan   prompt small    1.2 s");
    assert_eq!(row(progress(ProgressState::Skipped)), "* plan   prompt small  skipped");
    assert_eq!(row(progress(ProgressState::Failed)), "* plan   prompt small    1.2 s  goes to end");
    let counted = Progress { done: Some(3), of: Some(8), times: 2, ..progress(ProgressState::Running) };
    assert_eq!(row(counted), "* plan   prompt small    1.2 s  3 of 8, 2 times");
    let hostile = Progress { step: "a\u{1b}[2J".to_owned(), ..progress(ProgressState::Done) };
    assert_eq!(row(hostile), "* a\\u{…                  1.2 s");
}

#[test]
fn the_end_of_a_step_is_a_line() {
    let (since, at) = (Timestamp::default(), Timestamp::default().after(std::time::Duration::from_millis(12)));
    let line = |state| format_over(&progress(state), since, at);
    assert_eq!(line(ProgressState::Done), "plan: done (after 12 ms)");
    assert_eq!(line(ProgressState::Failed), "plan: failed (after 12 ms), goes to end");
    assert_eq!(line(ProgressState::Skipped), "plan: skipped");
}
