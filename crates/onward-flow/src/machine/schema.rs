//! JSON Schemas, with problems in words of our own: they are part of prompts, so they must not change with the library (FW1).

use serde_json::Value;

use crate::document::ValueSchema;

/// The number of problems that are listed.
const PROBLEMS_MAX: usize = 20;

/// The length of a part of a schema in a problem.
const PART_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub struct Schema {
    source: Value,
    bounded: ValueSchema,
}

impl Schema {
    pub fn compile(source: &Value) -> Result<Schema, String> {
        let bounded = ValueSchema::compile(source).map_err(|error| error.to_string())?;
        Ok(Schema { source: source.clone(), bounded })
    }

    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Returns what does not fit, in the order of the document; `name` is the name of the value.
    pub fn problems(&self, name: &str, value: &Value) -> Vec<String> {
        if self.bounded.fits(value) {
            return Vec::new();
        }
        let errors = self.bounded.validator().iter_errors(value).take(PROBLEMS_MAX);
        errors.map(|error| self.problem(name, error.instance_path().as_str(), error.schema_path().as_str())).collect()
    }

    fn problem(&self, name: &str, instance: &str, schema: &str) -> String {
        let keyword = schema.rsplit('/').next().unwrap_or_default();
        let part = self.source.pointer(schema).map(Value::to_string).unwrap_or_default();
        let mut shown: String = part.chars().take(PART_CHARS_MAX).collect();
        if shown.len() < part.len() {
            shown.push_str("..");
        }
        format!("`{name}{instance}` does not fit `{keyword}: {shown}`")
    }
}
