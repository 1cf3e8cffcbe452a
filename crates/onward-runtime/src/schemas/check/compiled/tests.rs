use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn compiled(schema: &Value) -> Result<Compiled, String> {
    Compiled::new(&Payload::json(schema).unwrap())
}

fn check(schema: &Value, input: &Value) -> Checked {
    let input = Payload::json(input).unwrap();
    let begun = Instant::now();
    let checked = compiled(schema).unwrap().check(&input, budget::of(input.data().len()));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    checked
}

#[track_caller]
fn refused(schema: &Value, why: &str) {
    let error = compiled(schema).map(drop).unwrap_err();
    assert!(error.contains(why), "{error}");
}

#[test]
fn every_violation_is_reported_with_its_place_and_without_the_value() {
    let schema = json!({
        "type": "object",
        "properties": {"id": {"type": "string"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}}, "a/b": {"const": 1}},
        "required": ["id"],
        "additionalProperties": false,
        "$defs": {"Line": {"type": "object", "properties": {"cents": {"type": "integer", "minimum": 0}}}},
    });
    assert_eq!(check(&schema, &json!({"id": "x", "lines": [{"cents": 1}]})), Checked::Done(Vec::new()));
    let Checked::Done(found) = check(&schema, &json!({"lines": [{"cents": "SECRET"}, {"cents": -4242}], "a/b": 4242})) else {
        panic!()
    };
    let mut violations: Vec<(&str, &str)> = found.iter().map(|one| (one.path.as_str(), one.keyword.as_str())).collect();
    violations.sort_unstable();
    assert_eq!(violations, [("", "required"), ("/a~1b", "const"), ("/lines/0/cents", "type"), ("/lines/1/cents", "minimum")]);
    assert!(!format!("{found:?}").contains("SECRET") && !format!("{found:?}").contains("4242"), "{found:?}");
    let quoted = json!({"$ref": "#/$defs/a%20b~1~1", "$defs": {"a b//": {"type": "string"}}});
    assert_eq!(check(&quoted, &json!("x")), Checked::Done(Vec::new()));
    assert_ne!(check(&quoted, &json!(1)), Checked::Done(Vec::new()));
    let property = json!({"type": "object", "additionalProperties": false});
    assert_ne!(check(&property, &json!({"!meter": 1})), Checked::Done(Vec::new()), "the meter is no property");
}

/// KI3.
#[test]
fn a_schema_that_reaches_out_or_is_too_large_is_refused() {
    refused(&json!({"$ref": "http://127.0.0.1:9/x"}), "is external");
    refused(&json!({"$ref": "file:///etc/passwd"}), "is external");
    refused(&json!({"properties": {"a": {"$ref": "other.json#/x"}}}), "is external");
    refused(&json!({"$ref": "#/enum/0", "enum": [{"anyOf": []}]}), "names no subschema");
    refused(&json!({"$dynamicRef": "#x"}), "`$dynamicRef` is not supported");
    refused(&json!({"properties": {"a": {"$id": "http://x/y"}}}), "`$id`");
    refused(&json!({"$schema": "http://x/y"}), "draft");
    refused(&json!({"!meter": 0}), "`!meter` is not supported");
    refused(&json!({"type": 12}), "at `/type`");
    refused(&json!("x"), "not a schema");
    refused(&json!({"description": "x".repeat(limits::SCHEMA_BYTES_MAX)}), "bytes");
    let mut deep = json!({});
    (0..65).for_each(|_| deep = json!({"not": deep.take()}));
    refused(&deep, "nests deeper");
    let mut data = json!(1);
    (0..120).for_each(|_| data = json!([data.take()]));
    assert!(compiled(&json!({"const": data})).is_err());
    refused(&json!({"pattern": "^(((a{100}){100}){100}){100}$"}), "regex");
    refused(&json!({"pattern": "(a)\\1"}), "regex");
}

/// KI3: schemas that other validators follow forever.
#[test]
fn no_schema_keeps_a_check_going() {
    for looping in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    ] {
        drop(check(&looping, &json!(1)));
    }
    let mut doubling = serde_json::Map::new();
    for n in 0..60 {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        doubling.insert(format!("a{n}"), json!({"anyOf": [next, next]}));
    }
    doubling.insert("a60".to_owned(), json!({"type": "string"}));
    assert_eq!(check(&json!({"$ref": "#/$defs/a0", "$defs": doubling}), &json!(1)), Checked::TooLong);
    let mut nested = json!({});
    (0..60).for_each(|_| nested = json!({"x": nested.take()}));
    let branch = json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["z"]});
    drop(check(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [branch, branch]}}}), &nested));
    assert_ne!(check(&json!({"pattern": "^(a+)+$"}), &json!(format!("{}b", "a".repeat(100_000)))), Checked::TooLong);
    let values: Vec<u32> = (0..5_000).collect();
    let many: Vec<u32> = (10_000..30_000).collect();
    assert_eq!(check(&json!({"items": {"enum": values}}), &json!(many)), Checked::TooLong);
}

/// KI3: neither the schema's references nor the input's depth exhaust the stack.
#[test]
fn a_long_chain_of_references_over_a_deep_input_comes_to_an_end() {
    let mut chain = serde_json::Map::new();
    for n in 0..1_000 {
        chain.insert(format!("a{n}"), json!({"$ref": format!("#/$defs/a{}", n + 1)}));
    }
    chain.insert("a1000".to_owned(), json!({"properties": {"x": {"$ref": "#/$defs/a0"}}}));
    let mut nested = json!({});
    (0..60).for_each(|_| nested = json!({"x": nested.take()}));
    drop(check(&json!({"$ref": "#/$defs/a0", "$defs": chain}), &nested));
    let tree = json!({"type": "object", "properties": {"x": {"$ref": "#"}}});
    assert_eq!(check(&tree, &nested), Checked::Done(Vec::new()), "an honest tree of 60 levels is compared");
}
