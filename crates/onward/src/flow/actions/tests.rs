use super::*;

#[test]
fn random_numbers_stay_within_their_bounds() {
    for _ in 0..200 {
        let number = random(RandomArguments { min: Some(-1), max: Some(1) }).unwrap().as_i64().unwrap();
        assert!((-1..=1).contains(&number), "{number}");
        let fraction = random(RandomArguments { min: None, max: None }).unwrap().as_f64().unwrap();
        assert!((0.0..1.0).contains(&fraction), "{fraction}");
    }
    assert_eq!(random(RandomArguments { min: None, max: Some(0) }).unwrap(), json!(0));
    let all = random(RandomArguments { min: Some(i64::MIN), max: Some(i64::MAX) }).unwrap();
    assert!(all.is_i64());
    assert_eq!(random(RandomArguments { min: Some(2), max: Some(1) }).unwrap_err().code, "invalid_arguments");
    assert_eq!(random(RandomArguments { min: Some(2), max: None }).unwrap_err().code, "invalid_arguments");
}

#[test]
fn a_uuid_has_its_version_and_variant() {
    for _ in 0..50 {
        let uuid = uuid();
        assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'4'), "{uuid}");
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }
}

#[test]
fn fail_fails_with_its_code_and_details_and_is_final() {
    let failure = fail(Fail { message: "no stock".to_owned(), code: Some("no_stock".to_owned()), details: Some(json!([1])) });
    assert_eq!((failure.code.as_str(), failure.message.as_str(), failure.retryable), ("no_stock", "no stock", false));
    assert_eq!(failure.details.unwrap().read::<Value>().unwrap(), json!([1]));
}

#[test]
fn json_parses_a_text() {
    assert_eq!(parse("[1, null]").unwrap(), json!([1, null]));
    assert_eq!(parse("[1").unwrap_err().code, "json_invalid");
}
