use super::*;

#[test]
fn only_yes_and_no_decide() {
    let decided = |approved, feedback: &str| Answered::Decision {
        approved,
        feedback: Some(feedback.to_owned()).filter(|text| !text.is_empty()),
    };
    for (line, expected) in [
        ("y", decided(true, "")),
        (" YES ", decided(true, "")),
        ("n, too long", decided(false, "too long")),
        ("no: x, y", decided(false, "x, y")),
        ("", Answered::Unclear),
        ("yesterday", Answered::Unclear),
        ("maybe y", Answered::Unclear),
    ] {
        assert_eq!(parse(line), expected, "{line:?}");
    }
}
