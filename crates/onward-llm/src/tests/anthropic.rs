use super::{call, reasoning};
use crate::{ApiFormat, Block, CallError, Delta, JsonText, ModelReply, ProviderPayload, StopReason, Usage};

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn read(events: &[&str]) -> (Result<ModelReply, CallError>, Vec<Delta>) {
    super::read(ApiFormat::Anthropic, events)
}

#[test]
fn blocks_are_put_together_and_counts_brought_up_to_date() {
    let (reply, deltas) = read(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"I "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\"see\""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"yes"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\": 90071"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"99254740993}"}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}"#,
        STOP,
    ]);
    let reply = reply.unwrap();
    let thought = reasoning("I \"see\"", r#"{"type":"thinking","thinking":"I \"see\"","signature":"c2ln"}"#);
    assert_eq!(reply.blocks, [thought, Block::text("yes"), call("toolu_1", "f", r#"{"x": 9007199254740993}"#)]);
    let usage = Usage { input: 10, cached_read: 30, cached_write: 20, output: 42, reasoning: 0 };
    assert_eq!((reply.usage, reply.stop, reply.response_id.as_str()), (Some(usage), Some(StopReason::ToolCalls), "msg_1"));
    assert_eq!(deltas[1], Delta::Usage(Usage { output: 1, ..usage })); // the known cost of a call that is dropped now
}

#[test]
fn a_call_without_arguments_has_those_it_began_with() {
    let (reply, _) = read(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"b","name":"g","input":{"x": 1.0}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        STOP,
    ]);
    assert_eq!(reply.unwrap().blocks, [call("a", "f", "{}"), call("b", "g", r#"{"x": 1.0}"#)]);
}

#[test]
fn what_is_hidden_or_unknown_is_kept_as_it_came() {
    let hidden = r#"{"type":"redacted_thinking","data":"ZW5j"}"#;
    let (reply, _) = read(&[
        START,
        &format!(r#"{{"type":"content_block_start","index":0,"content_block":{hidden}}}"#),
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1e3}"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"It is","citations":[]}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"url":"u","n":1.0}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"},"usage":{"output_tokens":3}}"#,
        STOP,
    ]);
    let reply = reply.unwrap();
    let json = |text: &str| JsonText::parse(text).unwrap();
    let unknown = json(r#"{"id":"s","input":{"q":1e3},"name":"web_search","type":"server_tool_use"}"#);
    let cited = Block::Text { text: "It is".into(), citations: vec![json(r#"{"url":"u","n":1.0}"#)] };
    assert_eq!(
        reply.blocks,
        [reasoning("", hidden), Block::Opaque(ProviderPayload { provider: "p".into(), json: unknown }), cited]
    );
    assert_eq!(reply.stop, Some(StopReason::Paused));
}

#[test]
fn an_error_in_the_stream_has_its_kind_and_its_cost() {
    let error = read(&[START, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]).0.unwrap_err();
    assert_eq!((error.code(), error.arrived.usage.unwrap().input), ("model_overloaded", 10));
    assert!(error.may_have_cost() && error.cost_is_unknown(), "output after the last usage event is not counted");
    let unknown = read(&[START, r#"{"type":"error","error":{"type":"api_error","message":"Internal"}}"#]).0.unwrap_err();
    assert_eq!(unknown.code(), "empty_model_response");
}

#[test]
fn a_refusal_without_a_word_is_one() {
    let (reply, _) =
        read(&[START, r#"{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":0}}"#, STOP]);
    assert_eq!(reply.unwrap().refusal(), Some(""));
}

#[test]
fn nothing_is_an_error_and_so_is_half_of_something() {
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#;
    assert_eq!(read(&[START, end, STOP]).0.unwrap_err().code(), "empty_model_response");
    assert_eq!(read(&[START]).0.unwrap_err().code(), "model_answer_broken");
    assert_eq!(read(&[]).0.unwrap_err().code(), "empty_model_response");
    let lost =
        read(&[START, r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}"#]).0.unwrap_err();
    assert_eq!(lost.code(), "model_answer_broken");
}
