//! Tests of the parent module.

use super::*;
use crate::log::codec::Field;
use crate::{CallId, Name};

crate::message! {
    /// A thing.
    struct Thing {
        /// Its name.
        1 => name: Name,
        2 => call_id: Option<CallId>,
        #[serde(with = "crate::log::text_number")]
        3 => weight: Option<u64>,
        4 => counts: Vec<u32>,
        5 => inner: Option<Box<Thing>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        7 => others: Vec<Thing>,
    }
}

#[test]
fn a_message_is_spelled_as_it_is_encoded() {
    let mut schema = Schema::default();
    assert_eq!(Thing::proto(&mut schema).name(), "Thing");
    let text = schema.text();
    assert!(text.contains("// A thing.\nmessage Thing {\n  // Its name.\n  string name = 1;\n"), "{text}");
    assert!(text.contains("  OptionalListUint32 call_id = 2;\n  optional uint64 weight = 3;\n"), "{text}");
    assert!(
        text.contains("  repeated uint32 counts = 4;\n  optional Thing inner = 5;\n  repeated Thing others = 7;\n"),
        "{text}"
    );
    assert!(text.contains("message OptionalListUint32 {\n  repeated uint32 value = 1;\n}"), "{text}");
}

#[test]
fn a_json_schema_describes_what_serde_writes() {
    let mut schema = Schema::default();
    Thing::proto(&mut schema);
    let thing = &schema.json()["Thing"];
    assert_eq!(thing["description"], "A thing.");
    assert_eq!(thing["properties"]["name"], json!({"type": "string", "description": "Its name."}));
    assert_eq!(thing["properties"]["call_id"], json!({"type": ["string", "null"]}));
    assert_eq!(thing["properties"]["weight"], json!({"type": ["string", "null"], "pattern": "^[0-9]+$"}));
    assert_eq!(thing["properties"]["inner"], json!({"oneOf": [{"$ref": "#/components/schemas/Thing"}, {"type": "null"}]}));
    assert_eq!(thing["required"], json!(["name", "call_id", "weight", "counts", "inner"]));
}

#[test]
fn a_json_schema_of_input_requires_no_field_with_a_default() {
    let mut schema = Schema::of_input();
    Thing::proto(&mut schema);
    assert_eq!(schema.json()["Thing"]["required"], json!(["name", "weight", "counts"]));
}
