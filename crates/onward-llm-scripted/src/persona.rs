//! The default responses without a script: repeats the user's text, calls the tools that it names, and reports their results.
//!
//! Simple enough to predict in a test, and useful enough for a demo.

use serde_json::{Map, Value, json};

use crate::conversation::{ScriptedConversation, Tool};
use crate::script::ScriptedReply;

pub(crate) fn answer(conversation: &ScriptedConversation) -> ScriptedReply {
    let message = conversation.last_user();
    let results = conversation.results();
    if !results.is_empty() {
        let reports: Vec<String> = results.iter().map(|(name, text)| format!("{name} says: {text}")).collect();
        return thinking(conversation, "The tools have answered.").and_text(&reports.join("\n"));
    }
    let wanted: Vec<&Tool> = conversation.tools.iter().filter(|tool| names(message, &tool.name)).collect();
    if wanted.is_empty() {
        return thinking(conversation, "I have nothing to look up.").and_text(&echo(conversation, message));
    }
    let answer = thinking(conversation, "I should call what was named.").and_text("Let me see.");
    wanted.into_iter().fold(answer, |answer, tool| answer.and_call(&tool.name, &arguments(tool, message)))
}

fn thinking(conversation: &ScriptedConversation, thought: &str) -> ScriptedReply {
    if conversation.thinks { ScriptedReply::reasoning(thought) } else { ScriptedReply::default() }
}

fn echo(conversation: &ScriptedConversation, message: &str) -> String {
    let mut text = format!("You said: {message}");
    if !conversation.tools.is_empty() {
        let names: Vec<&str> = conversation.tools.iter().map(|tool| tool.name.as_str()).collect();
        text.push_str(&format!("\nName a tool and I will call it: {}.", names.join(", ")));
    }
    text
}

/// Returns true if a word of the text is the tool's name, ignoring case and with `-` as `_`.
fn names(text: &str, tool: &str) -> bool {
    let plain = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    words.map(plain).any(|word| word == plain(tool))
}

/// Returns JSON from the user's text, or arguments that fit the schema: strings are the user's text, numbers the first one in
/// it.
fn arguments(tool: &Tool, message: &str) -> String {
    if let Some(given) = message.find('{').and_then(|at| first_json(&message[at..])) {
        return given.to_owned();
    }
    let required: Vec<&str> = tool.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = required.iter().map(|name| ((*name).to_owned(), value(&tool.schema["properties"][name], message)));
    Value::Object(fields.collect::<Map<String, Value>>()).to_string()
}

fn first_json(text: &str) -> Option<&str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    values.next()?.ok()?;
    Some(&text[..values.byte_offset()])
}

fn value(schema: &Value, message: &str) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(first_number(message).unwrap_or(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!(message),
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests;
