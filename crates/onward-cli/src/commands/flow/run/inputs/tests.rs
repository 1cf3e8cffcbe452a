use serde_json::json;

use super::*;

fn flow() -> Flow {
    let inputs = json!({"text": {"type": "string"}, "count": {"type": "integer", "default": 1}, "any": {"default": 0}});
    serde_json::from_value(json!({"flow": "f", "inputs": inputs, "steps": []})).unwrap()
}

#[track_caller]
fn check(object: Option<&str>, single: &[&str], expected: Result<Value, &str>) {
    let single: Vec<String> = single.iter().map(|text| (*text).to_owned()).collect();
    let read = read(&flow(), object, &single).and_then(|given| {
        check_required(&flow(), given.as_ref())?;
        Ok(given.unwrap())
    });
    assert_eq!(read.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
}

#[test]
fn values_have_the_types_of_their_inputs() {
    check(None, &["text=12", "count=12", "any=x y"], Ok(json!({"text": "12", "count": 12, "any": "x y"})));
    check(None, &["text=a=b", "any=[1]"], Ok(json!({"text": "a=b", "any": [1]})));
    check(Some(r#"{"text": "a", "count": 2}"#), &["count=3"], Ok(json!({"text": "a", "count": 3})));
}

#[test]
fn wrong_inputs_are_named() {
    check(None, &[], Err("the input `text` is missing"));
    check(None, &["x=1"], Err("the flow has no input `x`"));
    check(Some(r#"{"y": 1}"#), &[], Err("the flow has no input `y`"));
    check(None, &["text"], Err("`--input text` has no value"));
    check(Some("[]"), &[], Err("the inputs are not a JSON object"));
    check(
        None,
        &["count=many"],
        Err("the input `count` has the type integer, and `many` is not JSON: expected value at line 1 column 1"),
    );
}
