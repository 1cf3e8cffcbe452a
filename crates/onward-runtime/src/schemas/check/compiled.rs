//! A compiled schema.

use jsonschema::{PatternOptions, Validator};
use onward_core::Payload;
use onward_flow::schema_rules::PATTERN_BYTES_MAX;
use serde_json::Value;

use super::{Violation, budget, limits};

/// Maximum number of reported violations.
const VIOLATIONS_MAX: usize = 100;

pub struct Compiled {
    validator: Validator,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    Done(Vec<Violation>),
    /// The check would exceed its budget.
    TooLong,
}

impl Compiled {
    /// Compiles a schema. Takes milliseconds for a large one.
    pub fn new(schema: &Payload) -> Result<Compiled, String> {
        let bytes = schema.data().len();
        if bytes > limits::SCHEMA_BYTES_MAX {
            return Err(format!("it has {bytes} bytes, more than {}", limits::SCHEMA_BYTES_MAX));
        }
        let schema: Value = schema.read().map_err(|error| format!("it is not JSON: {error}"))?;
        let metered = limits::metered(schema.clone())?;
        // On the original schema, so that error locations fit it.
        jsonschema::meta::validate(&schema).map_err(|error| format!("at `{}`: {}", error.instance_path(), short(&error)))?;
        // Linear in the length of the text for any pattern, so look-around and back references are not supported.
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
        let options = jsonschema::options()
            .with_keyword(budget::METER, budget::meter)
            .with_pattern_options(patterns)
            .should_validate_formats(false)
            .offline();
        let validator = options.build(&metered).map_err(|error| short(&error))?;
        Ok(Compiled { validator })
    }

    /// Returns the violations by a value.
    pub fn check(&self, value: &Payload, budget: u64) -> Checked {
        let Ok(value) = value.read::<Value>() else {
            return Checked::Done(vec![violation(String::new(), "type", "the value is not valid JSON".to_owned())]);
        };
        let checked = budget::within(budget, || {
            if self.validator.is_valid(&value) {
                return Vec::new();
            }
            let errors = self.validator.iter_errors(&value).take(VIOLATIONS_MAX);
            // Masked: an error must never reveal a payload.
            let violation = |error: jsonschema::ValidationError<'_>| {
                violation(error.instance_path().to_string(), error.kind().keyword(), error.masked().to_string())
            };
            errors.map(violation).collect()
        });
        checked.map_or(Checked::TooLong, Checked::Done)
    }
}

fn short(error: &jsonschema::ValidationError<'_>) -> String {
    error.to_string().chars().take(500).collect()
}

fn violation(path: String, keyword: &str, message: String) -> Violation {
    Violation { path, keyword: keyword.to_owned(), message }
}

#[cfg(test)]
mod tests;
