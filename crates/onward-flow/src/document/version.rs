//! What a flow is known by outside of its document: its version, and the schema of its input.

use serde_json::{Map, Value, json};

use super::Flow;

impl Flow {
    /// Returns the version: 16 hex digits of the hash of the content, whatever its form and order of keys.
    pub fn version(&self) -> String {
        let mut text = String::new();
        canonical(&serde_json::to_value(self).unwrap_or_default(), &mut text);
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// Writes JSON with sorted keys.
fn canonical(value: &Value, text: &mut String) {
    let mut separator = "";
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in fields {
                text.push_str(separator);
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                canonical(value, text);
                separator = ",";
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                text.push_str(separator);
                canonical(item, text);
                separator = ",";
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Returns the JSON Schema of the input of a flow: an object with its inputs, of which those without a default are required.
/// Null counts as an object without inputs.
pub fn input_schema(flow: &Flow) -> Value {
    let property = |(name, input): (&String, &super::Input)| (name.clone(), serde_json::to_value(input).unwrap_or_default());
    let required: Vec<&String> = flow.inputs.iter().filter(|(_, input)| input.default.is_none()).map(|(name, _)| name).collect();
    json!({
        "type": if required.is_empty() { json!(["object", "null"]) } else { json!("object") },
        "properties": flow.inputs.iter().map(property).collect::<Map<_, _>>(),
        "required": required,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::document::parse;

    fn flow(text: &str) -> Flow {
        let parsed = parse(text, "flow.yaml");
        assert!(parsed.flow.is_some(), "{:?}", parsed.problems);
        parsed.flow.expect("checked above")
    }

    #[test]
    fn the_version_is_that_of_the_content() {
        let yaml = flow("flow: f\nsteps:\n  - name: a   # a remark\n    set: { y: 1, x: 2 }\n");
        let json = flow(r#"{"steps": [{"set": {"x": 2, "y": 1}, "name": "a"}], "flow": "f"}"#);
        assert_eq!(yaml.version(), json.version());
        assert_eq!(yaml.version(), "9d0704d4f628d055");
        assert_ne!(yaml.version(), flow("flow: f\nsteps:\n  - name: a\n    set: { y: 1, x: 3 }\n").version());
    }

    #[test]
    fn inputs_are_an_object_without_others() {
        let flow = flow("flow: f\ninputs:\n  a: { type: string }\n  b: { type: integer, default: 2 }\nsteps: []\n");
        let properties = json!({"a": {"type": "string"}, "b": {"type": "integer", "default": 2}});
        let schema = json!({"type": "object", "properties": properties, "required": ["a"], "additionalProperties": false});
        assert_eq!(input_schema(&flow), schema);
        let flow = Flow { inputs: BTreeMap::new(), ..flow };
        assert_eq!(input_schema(&flow)["type"], json!(["object", "null"]));
    }
}
