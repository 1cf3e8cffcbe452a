//! The inputs of a run: defaults, and the check of all inputs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::plan::InputPlan;
use super::turn::FlowFailure;

/// Returns the inputs with defaults, or a failure with the list of all problems.
pub fn checked(declared: &BTreeMap<String, InputPlan>, input: Value) -> Result<Value, FlowFailure> {
    let mut given = match input {
        Value::Null => Map::new(),
        Value::Object(given) => given,
        _ => return Err(invalid(vec!["the input is not an object".to_owned()])),
    };
    let mut problems = Vec::new();
    problems.extend(given.keys().filter(|name| !declared.contains_key(*name)).map(|name| format!("`{name}` is not an input")));
    for (name, input) in declared {
        if let (false, Some(default)) = (given.contains_key(name), &input.default) {
            given.insert(name.clone(), default.clone());
        }
        match given.get(name) {
            Some(value) => problems.extend(input.schema.problems(name, value)),
            None => problems.push(format!("`{name}` is missing")),
        }
    }
    if problems.is_empty() { Ok(Value::Object(given)) } else { Err(invalid(problems)) }
}

fn invalid(problems: Vec<String>) -> FlowFailure {
    let mut failure = FlowFailure::permanent("invalid_input", format!("the input is invalid: {}", problems.join("; ")));
    failure.details = Some(json!({ "problems": problems }));
    failure
}
