//! JSON Schemas of inputs and outputs, with a bounded cost.
//!
//! Invariant FY3: a check of a value evaluates each subschema at most once at each part of the value, because references are
//! neither recursive nor multiply the schema beyond [`SUBSCHEMAS_MAX`].

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::schema_rules::{self, DEPTH_MAX, PATTERN_BYTES_MAX, Subschemas, subschemas};

/// Maximum number of subschemas, each counted as often as references lead to it.
const SUBSCHEMAS_MAX: usize = 10_000;
/// Maximum number of problems that a check returns.
const PROBLEMS_MAX: usize = 20;

/// Keywords that change what references mean, beside those of [`schema_rules::REFUSED`].
const REFUSED: [&str; 3] = ["$anchor", "$dynamicAnchor", "$id"];

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct ValueSchema {
    validator: Validator,
}

/// Why a JSON Schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ValueSchemaError {
    /// Keys and indexes from the root of the schema to the place.
    pub path: Vec<String>,
    pub message: String,
}

impl ValueSchema {
    /// Compiles a schema, which may not load others, recurse, or grow beyond limits.
    pub fn compile(schema: &Value) -> Result<ValueSchema, ValueSchemaError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err(ValueSchemaError { path: Vec::new(), message: "it is not a map".to_owned() });
        }
        jsonschema::meta::validate(schema).map_err(|error| refused(&error))?;
        Walk { root: schema, subschemas: 0 }
            .visit(schema, 0)
            .map_err(|message| ValueSchemaError { path: Vec::new(), message })?;
        let options = jsonschema::options()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .should_validate_formats(false)
            .offline();
        let validator = options.build(schema).map_err(|error| refused(&error))?;
        Ok(ValueSchema { validator })
    }

    /// Returns how a value does not fit, with the place in the value.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        let text = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
            "" => short(&error),
            path => format!("at `{path}`: {}", short(&error)),
        };
        self.validator.iter_errors(value).take(PROBLEMS_MAX).map(text).collect()
    }

    /// Returns the compiled schema.
    pub(crate) fn validator(&self) -> &Validator {
        &self.validator
    }

    /// Returns whether a value fits.
    pub fn fits(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }
}

fn refused(error: &jsonschema::ValidationError<'_>) -> ValueSchemaError {
    let pointer = error.instance_path().as_str();
    let path = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    ValueSchemaError { path, message: short(error) }
}

fn short(error: &jsonschema::ValidationError<'_>) -> String {
    error.to_string().chars().take(300).collect()
}

struct Walk<'a> {
    root: &'a Value,
    subschemas: usize,
}

impl<'a> Walk<'a> {
    /// Counts subschemas, along references too; these count for the depth.
    fn visit(&mut self, schema: &'a Value, depth: usize) -> Result<(), String> {
        let Value::Object(fields) = schema else { return Ok(()) };
        self.subschemas += 1;
        if depth > DEPTH_MAX {
            return Err(format!("it is recursive, or nests deeper than {DEPTH_MAX} subschemas"));
        }
        if self.subschemas > SUBSCHEMAS_MAX {
            return Err(format!("it has more than {SUBSCHEMAS_MAX} subschemas"));
        }
        for (key, value) in fields {
            if REFUSED.contains(&key.as_str()) || schema_rules::REFUSED.contains(&key.as_str()) {
                return Err(format!("`{key}` is not supported"));
            }
            match (subschemas(key, value), value) {
                (_, Value::String(reference)) if key == "$ref" => {
                    let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                    self.visit(target.ok_or_else(|| format!("the reference `{reference}` names nothing in it"))?, depth + 1)?;
                }
                (Some(Subschemas::List), Value::Array(schemas)) => {
                    schemas.iter().try_for_each(|schema| self.visit(schema, depth + 1))?;
                }
                (Some(Subschemas::Map), Value::Object(schemas)) => {
                    schemas.values().try_for_each(|schema| self.visit(schema, depth + 1))?;
                }
                (Some(Subschemas::One), _) => self.visit(value, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks FY3.
    #[test]
    fn schemas_that_could_cost_too_much_are_refused() {
        let doubling: serde_json::Map<String, Value> = (0..20)
            .map(|n| {
                (
                    format!("s{n}"),
                    json!({"allOf": [{"$ref": format!("#/$defs/s{}", n + 1)}, {"$ref": format!("#/$defs/s{}", n + 1)}]}),
                )
            })
            .chain([("s20".to_owned(), json!({"type": "integer"}))])
            .collect();
        let table = [
            (json!({"$ref": "#"}), "it is recursive, or nests deeper than 64 subschemas"),
            (json!({"properties": {"next": {"$ref": "#"}}}), "it is recursive, or nests deeper than 64 subschemas"),
            (json!({"$ref": "#/$defs/s0", "$defs": doubling}), "it has more than 10000 subschemas"),
            (
                json!({"$ref": "https://example.com/schema.json"}),
                "the reference `https://example.com/schema.json` names nothing in it",
            ),
            (json!({"$dynamicRef": "#a"}), "`$dynamicRef` is not supported"),
            (json!("text"), "it is not a map"),
        ];
        for (schema, message) in table {
            assert_eq!(ValueSchema::compile(&schema).expect_err(message).message, message);
        }
        assert!(ValueSchema::compile(&json!({"pattern": "(a{1000}){1000}"})).is_err());
        assert!(ValueSchema::compile(&json!({"pattern": "(a)\\1"})).is_err());
        let error = ValueSchema::compile(&json!({"properties": {"a": {"type": "text"}}})).expect_err("an unknown type");
        assert_eq!(error.path, ["properties", "a", "type"]);
    }

    #[test]
    fn values_are_checked_with_their_places() {
        let schema = json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer", "minimum": 1}}});
        let schema = ValueSchema::compile(&schema).expect("a schema");
        assert_eq!(schema.problems(&json!([1, 2])), Vec::<String>::new());
        assert!(schema.fits(&json!([])) && !schema.fits(&json!({})));
        assert_eq!(schema.problems(&json!([1, 0])), ["at `/1`: 0 is less than the minimum of 1"]);
    }
}
