//! Rules for JSON Schemas that others write: limits, and the keywords that hold subschemas.
//!
//! The schemas of kinds (onward-runtime) and those in documents of flows are bounded in different ways: the former by a meter, the
//! latter by their structure, because a check of a flow must give the same result on every machine. Both follow these rules.

use serde_json::Value;

/// Maximum depth of subschemas in each other.
pub const DEPTH_MAX: usize = 64;

/// Maximum size of a compiled pattern.
pub const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Keywords that would let a schema refer to something outside or unvisited.
pub const REFUSED: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$vocabulary"];

const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// `dependencies` in old drafts also has lists of names, which are no subschemas.
const MAPS: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// How the value of a keyword holds subschemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subschemas {
    /// The value is one.
    One,
    /// The elements of the list are.
    List,
    /// The values of the map are.
    Map,
    /// The values of the map are, but only references lead to them.
    Definitions,
}

/// Returns how the value of a keyword holds subschemas, if it does.
pub fn subschemas(keyword: &str, value: &Value) -> Option<Subschemas> {
    match value {
        // In old drafts `items` may be a list.
        Value::Array(_) if LISTS.contains(&keyword) || keyword == "items" => Some(Subschemas::List),
        Value::Object(_) if MAPS.contains(&keyword) => Some(Subschemas::Map),
        Value::Object(_) if DEFINITIONS.contains(&keyword) => Some(Subschemas::Definitions),
        _ if ONE.contains(&keyword) => Some(Subschemas::One),
        _ => None,
    }
}
