//! The inputs of a flow from the command line.

use anyhow::Result;
use onward_core::ErrorCode;
use onward_flow::document::{Flow, Input};
use serde_json::{Map, Value};

use crate::args::read_argument;
use crate::error::Mistake;

/// Reads the inputs; `None` if none are given. Single ones win over those of the object.
pub fn read(flow: &Flow, object: Option<&str>, single: &[String]) -> Result<Option<Value>> {
    if object.is_none() && single.is_empty() {
        return Ok(None);
    }
    let mut inputs = match object {
        Some(text) => read_object(&read_argument(text, "the inputs")?)?,
        None => Map::new(),
    };
    for text in single {
        let Some((name, value)) = text.split_once('=') else {
            return Err(usage(format!("`--input {text}` has no value"), "use `--input NAME=VALUE`"));
        };
        let Some(input) = flow.inputs.get(name) else { return Err(unknown(flow, name)) };
        let value = match value.strip_prefix('@') {
            Some(_) => read_argument(value, "the input")?,
            None => value.to_owned(),
        };
        inputs.insert(name.to_owned(), read_value(input, name, value)?);
    }
    if let Some(name) = inputs.keys().find(|name| !flow.inputs.contains_key(*name)) {
        return Err(unknown(flow, name));
    }
    Ok(Some(Value::Object(inputs)))
}

/// Fails if an input without a default is missing, and names all of them.
pub fn check_required(flow: &Flow, given: Option<&Value>) -> Result<()> {
    let is_missing = |name: &&str| given.is_none_or(|given| given.get(*name).is_none());
    let missing: Vec<&str> = required(flow).filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (noun, is) = if missing.len() == 1 { ("input", "is") } else { ("inputs", "are") };
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let options = options(missing.into_iter());
    Err(usage(format!("the {noun} {} {is} missing", names.join(", ")), &format!("add `{options}`")))
}

/// Returns the inputs without a default.
pub fn required(flow: &Flow) -> impl Iterator<Item = &str> {
    flow.inputs.iter().filter(|(_, input)| input.default.is_none()).map(|(name, _)| name.as_str())
}

/// Returns the options that set inputs, without their values.
pub fn options<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("--input {name}=..")).collect::<Vec<_>>().join(" ")
}

fn read_object(text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(inputs)) => Ok(inputs),
        Ok(_) => Err(usage("the inputs are not a JSON object".to_owned(), "use `--input-json '{\"name\": \"value\"}'`")),
        Err(error) => {
            let message = format!("the inputs are not JSON: {error}");
            Err(Mistake::usage(ErrorCode::PayloadInvalid, message, "use @FILE for a file and - for stdin").into())
        }
    }
}

/// Reads a value. An input that may be a text takes every text that is no JSON, and one that must be a text every text.
fn read_value(input: &Input, name: &str, text: String) -> Result<Value> {
    let types = match input.schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if types == ["string"] {
        return Ok(Value::String(text));
    }
    match serde_json::from_str(&text) {
        Ok(value) => Ok(value),
        Err(_) if types.is_empty() || types.contains(&"string") => Ok(Value::String(text)),
        Err(error) => {
            let message = format!("the input `{name}` has the type {}, and `{text}` is not JSON: {error}", types.join(" or "));
            Err(Mistake::usage(ErrorCode::PayloadInvalid, message, "quote the whole option: '--input list=[1, 2]'").into())
        }
    }
}

fn unknown(flow: &Flow, name: &str) -> anyhow::Error {
    let known: Vec<&str> = flow.inputs.keys().map(String::as_str).collect();
    let hint = match known.is_empty() {
        true => "the flow has no inputs".to_owned(),
        false => format!("the flow has the inputs {}", known.join(", ")),
    };
    usage(format!("the flow has no input `{name}`"), &hint)
}

fn usage(message: String, hint: &str) -> anyhow::Error {
    Mistake::usage(ErrorCode::Usage, message, hint).into()
}

#[cfg(test)]
mod tests;
