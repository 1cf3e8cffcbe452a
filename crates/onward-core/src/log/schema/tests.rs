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
        3 => weight: Option<u64>,
        4 => counts: Vec<u32>,
        5 => inner: Option<Box<Thing>>,
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
