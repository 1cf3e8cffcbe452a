//! The JSON Schema of the format, for completion and checks in editors.
//!
//! It is generated from the types and has the rules that lead to good messages: fields, types, and that a step has a kind.
//! [`check`](super::check()) finds all else.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Flow;

/// The kinds of steps, of which each step has one.
const KINDS: [&str; 11] = ["prompt", "task", "action", "approval", "wait", "sleep", "child", "set", "parallel", "join", "switch"];

/// The schema of JSON Schemas, which editors have built in.
const META_SCHEMA: &str = "http://json-schema.org/draft-07/schema#";

/// Returns the JSON Schema of the format, as draft 7: editors know it best.
pub fn json_schema() -> Value {
    let mut schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<Flow>().to_value();
    without_null(&mut schema);
    schema["title"] = json!("Flow of Onward");
    let definitions = &mut schema["definitions"];
    let step = &mut definitions["Step"];
    step["anyOf"] = KINDS.iter().map(|kind| json!({ "required": [kind] })).collect();
    step["dependencies"] = json!({
        "agent": ["prompt"],
        "model": ["prompt"],
        "system": ["model"],
        "queue": ["task"],
        "show": ["approval"],
        "deciders": ["approval"],
        "answer": ["approval"],
    });
    step["properties"]["output"]["allOf"] = json!([{ "$ref": META_SCHEMA }]);
    step["properties"]["answer"]["allOf"] = json!([{ "$ref": META_SCHEMA }]);
    definitions["Input"]["allOf"] = json!([{ "$ref": META_SCHEMA }]);
    definitions["Undo"]["oneOf"] = json!([{ "required": ["task"] }, { "required": ["action"] }]);
    schema
}

/// Removes null from what may be left out: a field without a value is a mistake.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|name| name != "null");
                if let [name] = types.as_slice() {
                    let name = name.clone();
                    fields.insert("type".to_owned(), name);
                }
            }
            unwrap_union(fields);
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// Replaces a union of a schema and null by the schema.
fn unwrap_union(fields: &mut Map<String, Value>) {
    let Some(Value::Array(members)) = fields.get_mut("anyOf") else { return };
    members.retain(|member| *member != json!({ "type": "null" }));
    if let [Value::Object(_)] = members.as_slice() {
        let member = members.remove(0);
        fields.remove("anyOf");
        // Beside `$ref`, draft 7 ignores the description.
        fields.insert("allOf".to_owned(), json!([member]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flow.schema.json");

    /// Editors complete documents from the committed schema. `ONWARD_WRITE=1` writes it.
    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let text = serde_json::to_string_pretty(&json_schema()).expect("JSON") + "\n";
        if std::env::var_os("ONWARD_WRITE").is_some() {
            std::fs::write(PATH, &text).expect("write the schema");
        }
        let committed = std::fs::read_to_string(PATH).unwrap_or_default();
        assert!(committed == text, "docs/flow.schema.json is old: ONWARD_WRITE=1 cargo test -p onward-flow schema");
    }

    #[test]
    fn each_field_has_a_description() {
        let schema = json_schema();
        let definitions = schema["definitions"].as_object().expect("definitions");
        for (name, definition) in definitions.iter().chain([(&"Flow".to_owned(), &schema)]) {
            let fields = definition["properties"].as_object().into_iter().flatten();
            let bare: Vec<&String> = fields.filter(|(_, field)| field["description"].is_null()).map(|(field, _)| field).collect();
            assert!(bare.is_empty(), "{name}: {bare:?}");
            assert!(!definition["description"].is_null(), "{name}");
        }
    }

    #[test]
    fn the_schema_accepts_examples_and_refuses_broken_documents() {
        let validator = jsonschema::draft7::new(&json_schema()).expect("a schema");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flows");
        let mut examples = 0;
        for entry in std::fs::read_dir(folder).expect("the examples") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let parsed = parse(&std::fs::read_to_string(&path).expect("a text"), "flow.yaml");
            let document = parsed.positions.root.as_ref().expect("a document").to_value();
            let problems: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(problems.is_empty(), "{}: {problems:?}", path.display());
            examples += 1;
        }
        assert!(examples > 0);
        let flow = |step: Value| json!({ "flow": "f", "steps": [step] });
        let good = [
            json!({ "name": "a", "prompt": "x", "model": "m", "output": { "type": "string" } }),
            json!({ "name": "a", "approval": "x", "answer": { "type": "object" } }),
            json!({ "name": "a", "task": "t", "retry": 3, "timeout": "30s", "each": { "in": "state.x" } }),
            json!({ "name": "a", "task": "t", "retry": { "attempts": 3 }, "next": "end", "on_failure": { "task": "u" } }),
            json!({ "name": "a", "action": "http", "next": { "all": [{ "goto": "b" }] }, "catch": [{ "on": ["x"], "goto": "b" }] }),
            json!({ "name": "a", "parallel": { "l": [{ "name": "b", "set": { "x": 1 } }] } }),
            json!({ "name": "a", "join": { "wait": 2, "take": { "x": "l.x" } } }),
            json!({ "name": "a", "switch": { "on": "state.x", "cases": { "1": "b" } } }),
        ];
        for step in good {
            assert!(validator.is_valid(&flow(step.clone())), "{step}");
        }
        let broken = [
            json!({ "task": "t" }),
            json!({ "name": "a" }),
            json!({ "name": "a", "task": "t", "colour": 1 }),
            json!({ "name": "a", "task": 5 }),
            json!({ "name": "a", "task": null }),
            json!({ "name": "a", "agent": "x" }),
            json!({ "name": "a", "task": "t", "timeout": 30 }),
            json!({ "name": "a", "task": "t", "timeout": "soon" }),
            json!({ "name": "a", "action": "htp" }),
            json!({ "name": "a", "task": "t", "retry": 0 }),
            json!({ "name": "a", "task": "t", "output": { "type": "text" } }),
            json!({ "name": "a", "task": "t", "answer": { "type": "string" } }),
            json!({ "name": "a", "approval": "x", "answer": { "type": "text" } }),
            json!({ "name": "a", "task": "t", "next": [{ "when": "x" }] }),
            json!({ "name": "a", "task": "t", "on_failure": {} }),
            json!({ "name": "a", "parallel": { "l": [{ "name": "b" }] } }),
            json!("text"),
        ];
        for step in broken {
            assert!(!validator.is_valid(&flow(step.clone())), "{step}");
        }
        assert!(!validator.is_valid(&json!({ "flow": "f" })));
        assert!(!validator.is_valid(&json!({ "flow": "f", "steps": [], "input": {} })));
        assert!(!validator.is_valid(&json!({ "flow": "f", "steps": [], "inputs": { "a": { "type": "text" } } })));
    }
}
