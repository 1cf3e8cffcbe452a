use super::*;

fn redaction() -> Redaction {
    let mask = |text: &str| text.contains("4111").then(|| text.replace("4111", "****"));
    Redaction::new().field("Password").text(mask)
}

fn redacted(text: &str) -> String {
    let payload = redaction().payload(Payload::from_json_text(text.to_owned()));
    String::from_utf8(payload.data().to_vec()).unwrap()
}

#[test]
fn fields_are_replaced_at_any_depth_and_in_any_case() {
    assert_eq!(
        redacted(r#"{"a":[{"PASSWORD":{"x":1}}],"password":null}"#),
        r#"{"a":[{"PASSWORD":"[redacted]"}],"password":"[redacted]"}"#
    );
    assert_eq!(redacted(r#"{"pass\u0077ord":1}"#), r#"{"password":"[redacted]"}"#, "an escaped name is the same name");
    assert_eq!(redacted(r#"{"password":1,"password":2}"#), r#"{"password":"[redacted]","password":"[redacted]"}"#);
}

#[test]
fn texts_are_replaced_and_every_other_byte_stays() {
    assert_eq!(
        redacted(r#"["card 4111", 1.10, 123456789012345678901234567890]"#),
        r#"["card ****",1.10,123456789012345678901234567890]"#
    );
    for same in [r#" {"a": 1.10, "b" : [ ] } "#, "4111", "null", r#""""#, "123456789012345678901234567890"] {
        assert_eq!(redacted(same), same);
    }
}

#[test]
fn what_is_nested_too_deep_to_check_is_replaced() {
    let deep = format!("{}4{}", "[".repeat(200), "]".repeat(200));
    let found = redacted(&deep);
    assert!(found.contains("[redacted]") && !found.contains('4'), "{found}");
}

#[test]
fn every_text_of_a_failure_is_replaced() {
    let failure =
        Failure::retryable("card 4111").with_details(Payload::from_json_text(r#"{"password":"x"}"#)).with_diagnosis("raw 4111");
    let failure = redaction().failure(Failure { causes: vec!["because of 4111".to_owned()], ..failure });
    assert_eq!(failure.message, "card ****");
    assert_eq!(failure.causes, ["because of ****"]);
    assert_eq!(failure.diagnosis.as_deref().map(String::as_str), Some("raw ****"));
    assert_eq!(format!("{:?}", failure.details.unwrap()), r#"{"password":"[redacted]"}"#);
}

#[test]
fn later_replacements_see_the_text_of_earlier_ones() {
    let both = Redaction::new().text(|text| Some(text.replace('a', "b"))).text(|text| Some(text.replace('b', "c")));
    assert_eq!(both.replaced("ab"), Some("cc".to_owned()));
}
