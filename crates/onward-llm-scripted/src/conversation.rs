//! Parses requests of both API formats, and refuses what real servers refuse.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiFormat {
    OpenAi,
    Anthropic,
}

#[derive(Debug, Clone, Serialize)]
pub struct ScriptedConversation {
    pub model: String,
    pub system: String,
    pub turns: Vec<ScriptedMessage>,
    pub tools: Vec<Tool>,
    /// True if reasoning was requested.
    pub thinks: bool,
    /// URLs and base64 data of the attachments, as they were sent.
    pub attached: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedRole {
    User,
    Assistant,
    Tool,
}

/// A message, or one tool result.
#[derive(Debug, Clone, Serialize)]
pub struct ScriptedMessage {
    pub role: ScriptedRole,
    pub text: String,
    pub calls: Vec<ScriptedCall>,
    /// Of a result: the call it belongs to.
    pub call_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptedCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// Collects the URLs and base64 data of attachments in either format.
fn attached(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| attached(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if matches!(name.as_str(), "url" | "data" | "file_data") => found.push(text.clone()),
                    value => attached(value, found),
                }
            }
        }
        _ => {}
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Tool {
    pub name: String,
    pub schema: Value,
}

impl ScriptedConversation {
    /// Parses a request; the error is the message that a real server would return.
    pub fn read(api_format: ApiFormat, body: &Value) -> Result<ScriptedConversation, String> {
        let model = body["model"].as_str().ok_or("model: field required")?.to_owned();
        let messages =
            body["messages"].as_array().filter(|list| !list.is_empty()).ok_or("messages: at least one message is required")?;
        let mut conversation = ScriptedConversation {
            model,
            system: text(&body["system"]),
            turns: Vec::new(),
            tools: Vec::new(),
            thinks: false,
            attached: Vec::new(),
        };
        attached(&body["messages"], &mut conversation.attached);
        for message in messages {
            match api_format {
                ApiFormat::OpenAi => conversation.add_openai(message)?,
                ApiFormat::Anthropic => conversation.add_anthropic(message)?,
            }
        }
        let tools = body["tools"].as_array().into_iter().flatten();
        conversation.tools = match api_format {
            ApiFormat::OpenAi => tools.map(|tool| read_tool(&tool["function"], "parameters")).collect::<Result<_, _>>()?,
            ApiFormat::Anthropic => tools.map(|tool| read_tool(tool, "input_schema")).collect::<Result<_, _>>()?,
        };
        conversation.thinks = body["thinking"]["type"] == "enabled" || body["reasoning_effort"].is_string();
        if api_format == ApiFormat::Anthropic && !body["max_tokens"].is_u64() {
            return Err("max_tokens: field required".into());
        }
        conversation.check_pairs()?;
        Ok(conversation)
    }

    fn add_openai(&mut self, message: &Value) -> Result<(), String> {
        let text = text(&message["content"]);
        let role = match message["role"].as_str() {
            Some("system" | "developer") => {
                self.system.push_str(&text);
                return Ok(());
            }
            Some("user") => ScriptedRole::User,
            Some("assistant") => ScriptedRole::Assistant,
            Some("tool") => ScriptedRole::Tool,
            other => return Err(format!("messages: unknown role {other:?}")),
        };
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| read_call(call, &call["function"], &call["function"]["arguments"]));
        let call_id = message["tool_call_id"].as_str().map(str::to_owned);
        for detail in message["reasoning_details"].as_array().into_iter().flatten() {
            check_signature(&detail["text"], &detail["signature"])?;
        }
        self.turns.push(ScriptedMessage { role, text, calls: calls.collect::<Result<_, _>>()?, call_id });
        Ok(())
    }

    fn add_anthropic(&mut self, message: &Value) -> Result<(), String> {
        let role = match message["role"].as_str() {
            Some("user") => ScriptedRole::User,
            Some("assistant") => ScriptedRole::Assistant,
            other => return Err(format!("messages: unexpected role {other:?}")),
        };
        let mut turn = ScriptedMessage { role, text: text(&message["content"]), calls: Vec::new(), call_id: None };
        let mut results = Vec::new();
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") if block["input"].is_object() => turn.calls.push(read_call(block, block, &block["input"])?),
                Some("tool_use") => return Err("messages: tool_use.input: Input should be a valid dictionary".into()),
                Some("tool_result") => {
                    let call_id = block["tool_use_id"].as_str().map(str::to_owned);
                    results.push(ScriptedMessage {
                        role: ScriptedRole::Tool,
                        text: text(&block["content"]),
                        calls: Vec::new(),
                        call_id,
                    });
                }
                Some("thinking") => check_signature(&block["thinking"], &block["signature"])?,
                Some("text") if block["text"] == "" => return Err("messages: text content blocks must be non-empty".into()),
                Some(_) => {}
                None => return Err("messages: a content block without a type".into()),
            }
        }
        let has_content = !turn.text.is_empty() || !turn.calls.is_empty() || results.is_empty();
        self.turns.extend(results);
        self.turns.extend(has_content.then_some(turn));
        Ok(())
    }

    /// Checks that every call has a result before the next message, and every result a call.
    fn check_pairs(&self) -> Result<(), String> {
        let mut open: Vec<&str> = Vec::new();
        for turn in &self.turns {
            match (turn.role, &turn.call_id) {
                (ScriptedRole::Tool, Some(id)) => {
                    let at = open.iter().position(|open| open == id);
                    open.swap_remove(at.ok_or_else(|| format!("messages: the result {id} has no call in the message before"))?);
                }
                (ScriptedRole::Tool, None) => return Err("messages: a result without the id of its call".into()),
                _ if !open.is_empty() => return Err(format!("messages: no results for the calls {}", open.join(", "))),
                _ => open = turn.calls.iter().map(|call| call.id.as_str()).collect(),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("messages: no results for the calls {}", open.join(", "))) }
    }

    pub fn last_user(&self) -> &str {
        self.turns.iter().rfind(|turn| turn.role == ScriptedRole::User).map_or("", |turn| &turn.text)
    }

    /// Returns the number of the model's messages.
    pub fn turn(&self) -> usize {
        self.turns.iter().filter(|turn| turn.role == ScriptedRole::Assistant).count()
    }

    /// Returns the tool results at the end of the conversation, each with the name of its tool.
    pub fn results(&self) -> Vec<(&str, &str)> {
        let count = self.turns.iter().rev().take_while(|turn| turn.role == ScriptedRole::Tool).count();
        let calls: Vec<&ScriptedCall> = self.turns.iter().flat_map(|turn| &turn.calls).collect();
        let results = self.turns[self.turns.len() - count..].iter();
        let name = |turn: &ScriptedMessage| {
            calls.iter().rfind(|call| Some(&call.id) == turn.call_id.as_ref()).map_or("", |call| call.name.as_str())
        };
        results.map(|turn| (name(turn), turn.text.as_str())).collect()
    }

    /// Returns a hash of the conversation, from which ids are made (SM1).
    pub fn fingerprint(&self) -> String {
        let turns: Vec<Value> = self.turns.iter().map(|turn| json!([turn.role, turn.text, turn.calls, turn.call_id])).collect();
        hash(&json!([self.model, self.system, turns]).to_string())
    }
}

/// Returns a stand-in for a signature: changed reasoning is refused, as by real servers.
pub(crate) fn sign(text: &str) -> String {
    hash(&format!("signature of {text}"))
}

pub(crate) fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

fn check_signature(text: &Value, signature: &Value) -> Result<(), String> {
    let good = text.as_str().is_some_and(|text| signature == &sign(text));
    if good { Ok(()) } else { Err("messages: invalid `signature` in `thinking` block".into()) }
}

fn read_tool(tool: &Value, schema: &str) -> Result<Tool, String> {
    let name = tool["name"].as_str().filter(|name| !name.is_empty()).ok_or("tools: a tool without a name")?;
    Ok(Tool { name: name.to_owned(), schema: tool[schema].clone() })
}

fn read_call(outer: &Value, inner: &Value, arguments: &Value) -> Result<ScriptedCall, String> {
    let (id, name) = (outer["id"].as_str(), inner["name"].as_str());
    let (Some(id), Some(name)) = (id, name) else { return Err("messages: a call without id or name".into()) };
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    Ok(ScriptedCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

/// Returns the text of a content, which is a text or a list of blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}
