//! Tests of the parent module.

use super::*;

#[test]
fn an_attribute_is_what_it_looks_like_and_a_text_in_quotes_is_a_text() {
    let value = |text: &str| attribute(text).unwrap().value;
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    assert_eq!(value("n=42"), AttributeValue::Int(42));
    assert_eq!(value("n=\"42\""), text("42"));
    assert_eq!(value("n=042"), text("042"));
    assert_eq!(value("n=true"), AttributeValue::Bool(true));
    assert_eq!(value("n=a=b"), text("a=b"));
    assert_eq!(value("n"), text(""));
    assert!(matches!(value("n=2026-11-15T05:00:00Z"), AttributeValue::Time(_)));
    assert!(attribute("=1").is_err());
}

#[test]
fn a_filter_with_an_invalid_name_fails_with_the_code_of_a_name() {
    let with = |kind: Option<&str>, version: &[&str], attr: &[&str]| FilterArgs {
        kind: kind.map(str::to_owned),
        version: version.iter().map(ToString::to_string).collect(),
        status: Vec::new(),
        attr: attr.iter().map(ToString::to_string).collect(),
    };
    for filter in [with(Some(""), &[], &[]), with(None, &[""], &[]), with(None, &[], &["=1"])] {
        assert_eq!(filter.query(Namespace::default(), 1).unwrap_err().code(), "name_invalid", "{filter:?}");
    }
}
