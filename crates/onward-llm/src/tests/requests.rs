//! One conversation in both API formats.

use super::{call, reasoning};
use crate::formats::{anthropic, openai};
use crate::{Attachment, Block, JsonText, Message, ModelRequest, Role, Source, ToolChoice, ToolResult, ToolSchema};

fn assistant(blocks: Vec<Block>) -> Message {
    Message { role: Role::Assistant, blocks }
}

fn result(call_id: &str, text: &str, is_error: bool) -> Message {
    let result = ToolResult { call_id: call_id.into(), blocks: vec![Block::text(text)], is_error };
    Message { role: Role::Tool, blocks: vec![Block::ToolResult(result)] }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let input = JsonText::parse(r#"{"type":"object","maximum":18446744073709551616}"#).unwrap();
    ModelRequest {
        system: Some("Be brief.".into()),
        tools: vec![ToolSchema { name: "f".into(), description: "does".into(), input }],
        tool_choice: Some(ToolChoice::Any),
        max_tokens: Some(100),
        temperature_milli: Some(700),
        ..ModelRequest::new("m", messages)
    }
}

fn openai(request: &ModelRequest) -> String {
    serde_json::to_string(&openai::body(request, "p", "max_tokens").unwrap()).unwrap()
}

fn anthropic(request: &ModelRequest) -> String {
    serde_json::to_string(&anthropic::body(request, "p").unwrap()).unwrap()
}

/// Messages always refuses a text of blanks, and with it every later turn of the conversation.
#[test]
fn a_text_of_blanks_is_not_sent_in_messages() {
    let calls = vec![Block::text("\n\n"), call("a", "f", "{}")];
    let body = anthropic(&request(vec![Message::user("go"), assistant(calls), result("a", " \n", false), Message::user("on")]));
    assert!(body.contains(r#"{"content":[{"id":"a","input":{},"name":"f","type":"tool_use"}],"role":"assistant"}"#), "{body}");
    assert!(body.contains(r#"{"content":[],"tool_use_id":"a""#), "{body}");
}

fn talk() -> Vec<Message> {
    let thought = reasoning("hm", r#"{"type":"thinking","thinking":"hm","signature":"s"}"#);
    let calls = vec![thought, Block::text("ok"), call("a", "f", r#"{"n": 9007199254740993}"#), call("b", "f", "{oops")];
    vec![Message::user("go"), assistant(calls), result("a", "1", false), result("b", "bad", true), Message::user("on")]
}

#[test]
fn a_conversation_in_the_words_of_messages() {
    let expected = concat!(
        r#"{"max_tokens":100,"messages":[{"content":[{"text":"go","type":"text"}],"role":"user"},"#,
        r#"{"content":[{"signature":"s","thinking":"hm","type":"thinking"},{"text":"ok","type":"text"},"#,
        r#"{"id":"a","input":{"n": 9007199254740993},"name":"f","type":"tool_use"},"#,
        r#"{"id":"b","input":{"INVALID_JSON":"{oops"},"name":"f","type":"tool_use"}],"role":"assistant"},"#,
        r#"{"content":[{"content":[{"text":"1","type":"text"}],"tool_use_id":"a","type":"tool_result"},"#,
        r#"{"content":[{"text":"bad","type":"text"}],"is_error":true,"tool_use_id":"b","type":"tool_result"},"#,
        r#"{"text":"on","type":"text"}],"role":"user"}],"model":"m","stream":true,"system":"Be brief.","temperature":0.7,"#,
        r#""tool_choice":{"type":"any"},"tools":[{"description":"does","input_schema":{"type":"object","maximum":18446744073709551616},"name":"f"}]}"#,
    );
    assert_eq!(anthropic(&request(talk())), expected);
}

#[test]
fn a_conversation_in_the_words_of_chat_completions() {
    let expected = concat!(
        r#"{"max_tokens":100,"messages":[{"content":"Be brief.","role":"system"},{"content":"go","role":"user"},"#,
        r#"{"content":"ok","role":"assistant","tool_calls":["#,
        r#"{"function":{"arguments":"{\"n\": 9007199254740993}","name":"f"},"id":"a","type":"function"},"#,
        r#"{"function":{"arguments":"{\"INVALID_JSON\":\"{oops\"}","name":"f"},"id":"b","type":"function"}]},"#,
        r#"{"content":"1","role":"tool","tool_call_id":"a"},{"content":"error: bad","role":"tool","tool_call_id":"b"},"#,
        r#"{"content":"on","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"#,
        r#""tool_choice":"required","tools":[{"function":{"description":"does","name":"f","parameters":{"type":"object","maximum":18446744073709551616}},"type":"function"}]}"#,
    );
    assert_eq!(openai(&request(talk())), expected);
}

#[test]
fn a_call_that_the_model_made_up_goes_back_in_words_that_providers_take() {
    let long = "x".repeat(500);
    let calls = vec![call("f.g:0", "functions.f", "{\"n\": 1, \"k"), call("b", &long, ""), call("c", "", "[1]")];
    let conversation = request(vec![Message::user("go"), assistant(calls), result("f.g:0", "no such tool", true)]);
    let (chat, messages) = (openai(&conversation), anthropic(&conversation)); // LM4
    for body in [&chat, &messages] {
        assert!(body.contains(r#""name":"functions_f""#), "{body}");
        assert!(body.contains(&format!(r#""name":"{}""#, "x".repeat(64))) && !body.contains(&"x".repeat(65)), "{body}");
        assert!(body.contains(r#""name":"_""#), "{body}");
    }
    for arguments in [
        r#""arguments":"{\"INVALID_JSON\":\"{\\\"n\\\": 1"#,
        r#""arguments":"{}""#,
        r#""arguments":"{\"INVALID_JSON\":\"[1]\"}""#,
    ] {
        assert!(chat.contains(arguments), "{arguments} is not in {chat}");
    }
    assert!(chat.contains(r#""id":"f.g:0""#) && chat.contains(r#""tool_call_id":"f.g:0""#), "{chat}");
    assert!(messages.contains(r#""id":"f_g_0""#) && messages.contains(r#""tool_use_id":"f_g_0""#), "{messages}");
}

#[test]
fn reasoning_goes_back_to_its_own_provider_alone() {
    let thought = reasoning("hm", r#"{"type":"redacted_thinking","data":"x"}"#);
    let request = request(vec![Message::user("go"), assistant(vec![thought, Block::text("ok")])]);
    let body = |provider| serde_json::to_string(&anthropic::body(&request, provider).unwrap()).unwrap();
    assert!(body("p").contains("redacted_thinking")); // LM2
    assert!(!body("q").contains("redacted_thinking"));
    let thought = reasoning("hm", r#"{"reasoning_details":[{"signature":"s"}]}"#);
    let request = self::request(vec![Message::user("go"), assistant(vec![thought, Block::text("ok")])]);
    let body = |provider| serde_json::to_string(&openai::body(&request, provider, "max_tokens").unwrap()).unwrap();
    assert!(body("p").contains("signature") && !body("q").contains("signature"));
}

#[test]
fn plain_reasoning_goes_back_within_its_turn_and_details_always() {
    let thought = || reasoning("hm", r#"{"reasoning":"hm","reasoning_details":[{"signature":"s"}]}"#);
    let calls = || assistant(vec![thought(), call("a", "f", "{}")]);
    let open = openai(&request(vec![Message::user("go"), calls(), result("a", "1", false)]));
    assert!(open.contains(r#""reasoning":"hm","reasoning_details":[{"signature":"s"}]"#), "{open}");
    let over = openai(&request(vec![Message::user("go"), calls(), result("a", "1", false), Message::user("next")]));
    assert!(!over.contains(r#""reasoning":"hm""#) && over.contains("reasoning_details"), "{over}");
    assert!(open.contains(r#"{"content":null,"reasoning""#), "{open}"); // nothing but a call
}

#[test]
fn attachments_go_along_and_those_of_tools_after_all_results() {
    let image =
        |data: &str| Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Base64(data.into()) });
    let shown = ToolResult { call_id: "a".into(), blocks: vec![Block::text("see"), image("AA")], is_error: false };
    let shown = Message { role: Role::Tool, blocks: vec![Block::ToolResult(shown)] };
    let messages = vec![
        Message { role: Role::User, blocks: vec![Block::text("look"), image("BB")] },
        assistant(vec![call("a", "f", "{}"), call("b", "f", "{}")]),
        shown,
        result("b", "2", false),
    ];
    let request = request(messages);
    let tail = concat!(
        r#"{"content":"see","role":"tool","tool_call_id":"a"},{"content":"2","role":"tool","tool_call_id":"b"},"#,
        r#"{"content":[{"image_url":{"url":"data:image/png;base64,AA"},"type":"image_url"}],"role":"user"}]"#,
    );
    let body = openai(&request);
    assert!(body.contains(tail), "{body}");
    let body = anthropic(&request);
    assert!(
        body.contains(r#"{"source":{"data":"AA","media_type":"image/png","type":"base64"},"type":"image"}],"tool_use_id":"a""#),
        "{body}"
    );
}

#[test]
fn an_attachment_that_is_not_there_is_refused_before_anything_is_sent() {
    let hash = Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Hash("ab".into()) });
    let request = request(vec![Message { role: Role::User, blocks: vec![hash] }]);
    let errors = [openai::body(&request, "p", "max_tokens").unwrap_err(), anthropic::body(&request, "p").unwrap_err()];
    assert_eq!(errors.map(|error| error.code()), ["attachment_missing"; 2]);
}

/// Every model reads text; a text attachment that is not UTF-8 is replaced by a note.
#[test]
fn the_words_of_a_text_are_sent() {
    let attachment = |media_type: &str, source: Source| Block::Attachment(Attachment { media_type: media_type.into(), source });
    let blocks = vec![
        attachment("text/csv", Source::bytes("bell,7".as_bytes())),
        attachment("image/svg+xml", Source::bytes("<svg/>".as_bytes())),
        attachment("text/plain", Source::bytes(b"\xff")),
        attachment("text/plain", Source::Url("https://x/y".into())),
    ];
    let request = request(vec![Message { role: Role::User, blocks }]);
    for body in [openai(&request), anthropic(&request)] {
        let parts = [
            r#"{"text":"[an attachment of type text/csv]\nbell,7","type":"text"}"#,
            r#"{"text":"[an attachment of type image/svg+xml]\n<svg/>","type":"text"}"#,
            r#"{"text":"[an attachment of type text/plain, which this model cannot be shown]","type":"text"}"#,
            r#"{"text":"[an attachment https://x/y of type text/plain, which this model cannot be shown]","type":"text"}"#,
        ];
        assert!(body.contains(&parts.join(",")), "{body}");
    }
}

#[test]
fn an_attachment_that_an_api_format_cannot_express_becomes_a_note() {
    let attachment = |media_type: &str, source: Source| Block::Attachment(Attachment { media_type: media_type.into(), source });
    let blocks = vec![
        attachment("audio/wav", Source::Base64("AA".into())),
        attachment("application/zip", Source::Base64("BB".into())),
        attachment("application/pdf", Source::Url("https://x/y".into())),
    ];
    let request = request(vec![Message { role: Role::User, blocks }]);
    let zip = r#"{"text":"[an attachment of type application/zip, which this model cannot be shown]","type":"text"}"#;
    let body = anthropic(&request);
    assert!(body.contains("[an attachment of type audio/wav, which") && body.contains(zip), "{body}");
    assert!(body.contains(r#"{"source":{"type":"url","url":"https://x/y"},"type":"document"}"#), "{body}");
    let body = openai(&request);
    assert!(
        body.contains(r#"{"input_audio":{"data":"AA","format":"wav"},"type":"input_audio"}"#) && body.contains(zip),
        "{body}"
    );
    assert!(body.contains("[an attachment https://x/y of type application/pdf, which this model cannot be shown]"), "{body}");
}
