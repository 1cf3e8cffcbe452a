//! Tests of the parent module.

use onward_core::Name;
use onward_llm::{JsonText, ModelReply, ProviderPayload, Reasoning};

use super::*;

fn entry(role: &str, content: &impl serde::Serialize) -> Entry {
    Entry::first(Name::new(role).unwrap(), Payload::json(content).unwrap())
}

fn to_prompt(entries: &[Entry]) -> PromptMessages {
    to_messages(entries, "p")
}

fn call(id: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() })
}

fn result(id: &str) -> serde_json::Value {
    serde_json::to_value(Message::tool_result(id, "done")).unwrap()
}

/// PR2, for any blocks in a user's message.
#[test]
fn a_users_message_has_nothing_that_providers_take_from_others_only() {
    let refusal = Block::Refusal { text: "no".into() };
    for block in [call("1"), refusal] {
        let alone = Message { role: Role::User, blocks: vec![block.clone()] };
        assert_eq!(without_blanks(alone), None);
        let beside = Message { role: Role::User, blocks: vec![block, Block::text("and this")] };
        assert_eq!(without_blanks(beside), Some(Message::user("and this")));
    }
}

#[test]
fn contents_of_every_shape_are_sent() {
    #[derive(serde::Serialize)]
    struct WithMood {
        text: &'static str,
        mood: &'static str,
    }
    let prompt = to_prompt(&[
        entry("system", &"be brief"),
        entry("user", &"hello"),
        entry("user", &WithMood { text: "you", mood: "good" }),
        entry("assistant", &ModelReply { blocks: vec![Block::text("yes")], ..ModelReply::default() }),
        entry("customer", &[1, 2]),
    ]);
    assert_eq!(prompt.system, ["be brief"]);
    let texts: Vec<_> = prompt.messages.iter().map(|message| (message.role, text_of(&message.blocks))).collect();
    let user = |text: &str| (Role::User, text.to_owned());
    assert_eq!(texts, [user("hello"), user("you"), (Role::Assistant, "yes".to_owned()), user("[1,2]")]);
}

#[test]
fn every_call_has_one_result_before_the_next_message() {
    let reply = ModelReply { blocks: vec![call("a"), call("b")], ..ModelReply::default() };
    let prompt = to_prompt(&[
        entry("assistant", &reply),
        entry("tool", &result("a")),
        entry("tool", &result("a")),
        entry("tool", &result("nobody's")),
        entry("user", &"and?"),
        entry("assistant", &ModelReply { blocks: vec![call("c")], ..ModelReply::default() }),
    ]);
    let shape: Vec<(Role, usize)> = prompt.messages.iter().map(|message| (message.role, message.blocks.len())).collect();
    let expected = [
        (Role::Assistant, 2),
        (Role::Tool, 1),
        (Role::Tool, 1),
        (Role::User, 1),
        (Role::User, 1),
        (Role::Assistant, 1),
        (Role::Tool, 1),
    ];
    assert_eq!(shape, expected);
    assert_eq!(text_of(&prompt.messages[3].blocks), "A tool reports:\ndone", "no call requested it");
    let Block::ToolResult(missing) = &prompt.messages[2].blocks[0] else { panic!() };
    assert_eq!((missing.call_id.as_str(), missing.is_error), ("b", true));
}

#[test]
fn an_unrequested_report_of_a_tool_is_sent_behind_the_results() {
    let reply = ModelReply { blocks: vec![call("a"), call("b")], ..ModelReply::default() };
    let prompt = to_prompt(&[
        entry("assistant", &reply),
        entry("tool", &result("a")),
        entry("tool", &"The parcel has left Bremen."),
        entry("tool", &result("b")),
        entry("tool", &"It is in Ulm."),
    ]);
    let shape: Vec<(Role, String)> =
        prompt.messages.iter().map(|message| (message.role, text_of(&message.blocks))).skip(1).collect();
    let report = |text: &str| (Role::User, format!("A tool reports:\n{text}"));
    let result = || (Role::Tool, String::new());
    assert_eq!(shape, [result(), result(), report("The parcel has left Bremen."), report("It is in Ulm.")]);
}

#[test]
fn an_empty_entry_is_not_sent() {
    #[derive(serde::Serialize)]
    struct Blocks {
        blocks: Vec<Block>,
    }
    let thought = Block::Reasoning(Reasoning { text: "hm".into(), payload: None });
    let prompt = to_prompt(&[
        entry("system", &" "),
        entry("user", &Blocks { blocks: Vec::new() }),
        entry("user", &""),
        entry("assistant", &Blocks { blocks: vec![thought.clone(), Block::text("")] }),
        entry("tool", &Blocks { blocks: Vec::new() }),
        entry("assistant", &Blocks { blocks: vec![thought, Block::text("yes")] }),
    ]);
    assert_eq!(prompt.system, Vec::<String>::new());
    let sizes: Vec<usize> = prompt.messages.iter().map(|message| message.blocks.len()).collect();
    assert_eq!(sizes, [2]);
}

#[test]
fn of_a_long_text_the_beginning_and_the_end_are_sent() {
    let result = ToolResult { call_id: "a".into(), blocks: vec![Block::text("ä".repeat(100))], is_error: false };
    let message = |role, blocks| Message { role, blocks };
    let mut messages = vec![
        message(Role::User, vec![Block::text("0123456789abcdef"), Block::text("short")]),
        message(Role::Assistant, vec![Block::text("0123456789")]),
        message(Role::Assistant, vec![Block::text("this is what it said last")]),
        message(Role::Tool, vec![Block::ToolResult(result)]),
    ];
    truncate(&mut messages, 8);
    let Block::ToolResult(result) = &messages[3].blocks[0] else { panic!("a result") };
    let texts = [&messages[0].blocks[..], &messages[1].blocks, &messages[2].blocks, &result.blocks].map(text_of);
    let expected = [
        "012345\n[8 characters are left out here]\nef\nshort",
        "012345\n[2 characters are left out here]\n89",
        "this i\n[17 characters are left out here]\nst",
        "ääääää\n[92 characters are left out here]\nää",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn attached_texts_and_arguments_are_cut_and_stay_what_they_are() {
    let attached = |media_type: &str, bytes: &[u8]| {
        Block::Attachment(Attachment { media_type: media_type.into(), source: Source::bytes(bytes) })
    };
    let call = |arguments: &str| ToolCall { id: "c".into(), name: "t".into(), arguments: arguments.into() };
    let cut = |block: Block| truncated(block, 8);
    let picture = attached("image/png", &[0; 100]);
    assert_eq!(cut(picture.clone()), picture);
    let short = attached("text/plain", b"");
    assert_eq!(truncated(short.clone(), 100), short);
    let expected = "[an attachment of type text/plain]\n01234567890123\n[70 characters are left out here]\n4567890123456789";
    let long = "0123456789".repeat(10);
    assert_eq!(truncated(attached("text/plain", long.as_bytes()), 65), Block::text(expected));
    let Block::ToolCall(truncated_call) = cut(Block::ToolCall(call(r#"{"n":12345678,"of":["0123456789"]}"#))) else {
        panic!("a call")
    };
    assert_eq!(truncated_call.arguments, r#"{"n":12345678,"of":["012345\n[2 characters are left out here]\n89"]}"#);
    let Block::ToolCall(truncated_call) = cut(Block::ToolCall(call("{0123456789"))) else { panic!("a call") };
    assert_eq!(truncated_call.arguments, "{01234\n[3 characters are left out here]\n89");
    let payload = ProviderPayload { provider: "p".into(), json: JsonText::parse("1").unwrap() };
    let mut signed = vec![Block::Opaque(payload), Block::ToolCall(call(r#"{"of":"0123456789"}"#))];
    let whole = signed.clone();
    truncate_texts(&mut signed, 8);
    assert_eq!(signed, whole, "a provider may have signed what was asked for");
}

fn truncated(block: Block, chars_max: usize) -> Block {
    let mut blocks = vec![block];
    truncate_texts(&mut blocks, chars_max);
    blocks.remove(0)
}

#[test]
fn content_that_is_not_json_becomes_text_or_an_attachment() {
    let shown = |content_type: &str, data: &'static [u8]| blocks(&Payload::binary(content_type, data));
    assert_eq!(shown("application/json", b"{bad"), [Block::text("{bad")]);
    assert_eq!(shown("text/plain", b"hello"), [Block::text("hello")]);
    let picture = Attachment { media_type: "image/png".into(), source: Source::bytes(&[1, 2]) };
    assert_eq!(shown("image/png", &[1, 2]), [Block::Attachment(picture)]);
    assert_eq!(shown("application/json", b"null"), []);
}

#[test]
fn words_beside_no_blocks_are_sent() {
    let content = |text: &str| blocks(&Payload::from_json_text(text.to_owned()));
    assert_eq!(content(r#"{"text":"ok","blocks":[]}"#), [Block::text("ok")]);
    assert_eq!(content(r#"{"text":"ok","blocks":[{"type":"text","text":"yes"}]}"#), [Block::text("yes")]);
}

#[test]
fn without_tools_calls_and_results_are_texts() {
    let thought = Block::Reasoning(Reasoning { text: "hm".into(), payload: None });
    let reply = ModelReply { blocks: vec![thought, Block::text("let me see"), call("a")], ..ModelReply::default() };
    let prompt = to_prompt(&[entry("assistant", &reply), entry("tool", &result("a")), entry("user", &"and?")]);
    let plain = without_tools(prompt.messages);
    let texts: Vec<_> = plain.iter().map(|message| (message.role, text_of(&message.blocks))).collect();
    let expected = [
        (Role::Assistant, "let me see\n(I called the tool `t` with {})"),
        (Role::User, "(The tool `t` answered: done)"),
        (Role::User, "and?"),
    ];
    assert_eq!(texts, expected.map(|(role, text)| (role, text.to_owned())));
    assert!(plain.iter().flat_map(|message| &message.blocks).all(|block| matches!(block, Block::Text { .. })));
}
