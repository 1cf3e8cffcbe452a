use super::{call, reasoning};
use crate::{ApiFormat, Block, CallError, Delta, ModelReply, StopReason, Usage};

fn read(events: &[&str]) -> (Result<ModelReply, CallError>, Vec<Delta>) {
    super::read(ApiFormat::OpenAi, events)
}

/// Returns the blocks of a response with these deltas.
#[track_caller]
fn blocks(deltas: &[&str]) -> Vec<Block> {
    let events: Vec<String> =
        deltas.iter().map(|delta| format!(r#"{{"id":"r","choices":[{{"index":0,"delta":{delta}}}]}}"#)).collect();
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let events: Vec<&str> = events.iter().map(String::as_str).chain([end, "[DONE]"]).collect();
    read(&events).0.unwrap().blocks
}

#[test]
fn text_comes_with_its_usage_and_cached_tokens_apart() {
    let (reply, deltas) = read(&[
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{"content":"Good "}}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{"content":"day"}}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"id":"c1","model":"gpt","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":3}}}"#,
        "[DONE]",
    ]);
    let reply = reply.unwrap();
    let usage = Usage { input: 36, cached_read: 64, cached_write: 0, output: 7, reasoning: 3 };
    assert_eq!((reply.text().as_str(), &reply.stop, reply.usage), ("Good day", &Some(StopReason::End), Some(usage)));
    assert_eq!((reply.response_id.as_str(), reply.model.as_str()), ("c1", "gpt"));
    let text = |text: &str| Delta::Text { text: text.into() };
    let begin = Delta::Begin { response_id: "c1".into(), model: "gpt".into() };
    assert_eq!(deltas, [begin, text("Good "), text("day"), Delta::Usage(usage)]);
}

#[test]
fn fragments_of_calls_are_distinguished_by_their_index() {
    let found = blocks(&[
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{\"y\""}},{"index":0,"function":{"arguments":"{\"x\":"}}]}"#,
        r#"{"tool_calls":[{"index":1,"function":{"arguments":":2}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"9007199254740993}"}}]}"#,
    ]);
    assert_eq!(found, [call("a", "f", r#"{"x":9007199254740993}"#), call("b", "g", r#"{"y":2}"#)]);
}

#[test]
fn ids_and_names_that_are_repeated_in_every_fragment_are_one_call() {
    // Observed with a real server: treated as new calls, the fragments became 231 calls.
    let fragment =
        |text: &str| format!(r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"f","arguments":{text:?}}}}}]}}"#);
    let fragments = ["{", "\"x\":1", "}"].map(fragment);
    assert_eq!(blocks(&fragments.each_ref().map(String::as_str)), [call("a", "f", r#"{"x":1}"#)]);
}

#[test]
fn a_call_without_an_id_gets_one_and_ids_are_not_used_twice() {
    let found = blocks(&[
        r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":2,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":3,"id":"a","function":{"name":"g","arguments":"{}"}}]}"#,
    ]);
    assert_eq!(
        found,
        [call("call_r_0", "f", "{}"), call("call_r_1", "f", "{}"), call("a", "f", "{}"), call("call_r_3", "g", "{}")]
    );
}

#[test]
fn calls_without_an_index_or_all_with_the_same_one_stay_apart() {
    let without = blocks(&[
        r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":"1}"}}]}"#,
        r#"{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]}"#,
    ]);
    assert_eq!(without, [call("a", "f", r#"{"x":1}"#), call("b", "f", "{}")]);
    let same = blocks(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
    ]);
    assert_eq!(same, [call("a", "f", "{}"), call("b", "g", "{}")]);
}

#[test]
fn arguments_are_kept_as_they_are_also_if_they_are_no_json() {
    let found = blocks(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\": 1, oops"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":{"x": 12345678901234567890123}}}]}"#,
        r#"{"tool_calls":[{"index":2,"id":"c","function":{"name":"h","arguments":null}}]}"#,
    ]);
    assert_eq!(
        found,
        [call("a", "f", "{\"x\": 1, oops"), call("b", "g", r#"{"x": 12345678901234567890123}"#), call("c", "h", "")]
    );
    let Block::ToolCall(broken) = &found[0] else { panic!() };
    assert!(broken.json().is_err()); // LM1
}

#[test]
fn a_call_whose_name_comes_late_is_announced_with_what_came_before_it() {
    let (reply, deltas) = read(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":":1}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
    ]);
    assert_eq!(reply.unwrap().blocks, [call("a", "f", r#"{"x":1}"#)]);
    let begin = Delta::ToolCallBegin { call: 0, id: "a".into(), name: "f".into() };
    assert_eq!(deltas[1..], [begin, Delta::ToolCallArguments { call: 0, text: r#"{"x":1}"#.into() }]);
    let (reply, _) = read(&[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]},"finish_reason":"tool_calls"}]}"#]);
    assert_eq!(reply.unwrap_err().code(), "model_answer_broken"); // no name at all
}

#[test]
fn reasoning_is_kept_under_the_name_it_came_with() {
    let found =
        blocks(&[r#"{"content":null,"reasoning_content":"I "}"#, r#"{"reasoning_content":"see"}"#, r#"{"content":"yes"}"#]);
    assert_eq!(found, [reasoning("I see", r#"{"reasoning_content":"I see"}"#), Block::text("yes")]);
}

#[test]
fn details_of_reasoning_are_joined_and_keep_their_signatures() {
    let found = blocks(&[
        r#"{"reasoning":"I ","reasoning_details":[{"type":"reasoning.text","text":"I ","index":0,"format":"x"}]}"#,
        r#"{"reasoning":"see","reasoning_details":[{"type":"reasoning.text","text":"see","index":0,"signature":null}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"s1"}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"aa","index":1},{"type":"reasoning.encrypted","data":"bb","index":1}]}"#,
        r#"{"content":"yes"}"#,
    ]);
    let details = concat!(
        r#"{"reasoning":"I see","reasoning_details":[{"format":"x","index":0,"signature":"s1","text":"I see","type":"reasoning.text"},"#,
        r#"{"data":"aa","index":1,"type":"reasoning.encrypted"},{"data":"bb","index":1,"type":"reasoning.encrypted"}]}"#,
    );
    assert_eq!(found, [reasoning("I see", details), Block::text("yes")]);
}

#[test]
fn refusals_are_answers() {
    assert_eq!(blocks(&[r#"{"refusal":"I "}"#, r#"{"refusal":"won't"}"#]), [Block::Refusal { text: "I won't".into() }]);
    let (filtered, _) = read(&[r#"{"choices":[{"delta":{"content":""},"finish_reason":"content_filter"}]}"#, "[DONE]"]);
    let filtered = filtered.unwrap();
    assert_eq!((filtered.refusal(), &filtered.stop), (Some(""), &Some(StopReason::Refusal)));
}

#[test]
fn an_answer_without_content_is_an_error_whatever_its_token_count() {
    let empties: [&[&str]; 4] = [
        &["[DONE]"],
        &[r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#, "[DONE]"],
        &[r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#, "[DONE]"],
        &[r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#, "[DONE]"],
    ];
    for events in empties {
        assert_eq!(read(events).0.unwrap_err().code(), "empty_model_response", "{events:?}"); // LA3
    }
    let zero_tokens =
        [r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#];
    assert_eq!(read(&zero_tokens).0.unwrap().text(), "hi");
}

#[test]
fn an_error_inside_a_success_keeps_what_had_arrived() {
    let error = r#"{"error":{"code":502,"message":"upstream died"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#;
    let nothing = read(&[error]).0.unwrap_err();
    assert_eq!(nothing.code(), "empty_model_response");
    assert_eq!(nothing.provider_message.as_deref(), Some("upstream died"));
    assert!(!nothing.to_string().contains("upstream died"), "it is for operators alone");
    let some = read(&[r#"{"choices":[{"delta":{"content":"On the one"}}]}"#, error]).0.unwrap_err();
    assert_eq!((some.code(), some.arrived.text().as_str()), ("model_answer_broken", "On the one"));
}

#[test]
fn an_answer_counts_once_it_is_complete_and_not_before() {
    let text = r#"{"choices":[{"delta":{"content":"On the"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let broken = read(&[text]).0.unwrap_err(); // LA2
    assert_eq!((broken.code(), broken.arrived.text().as_str()), ("model_answer_broken", "On the"));
    assert_eq!(broken.arrived.usage.unwrap().output, 2);
    assert!(broken.may_have_cost() && broken.cost_is_unknown() && broken.is_retryable());
    let cut = read(&[text, r#"{"choices":[{"delta":{"con"#]).0.unwrap_err();
    assert_eq!(cut.code(), "model_answer_broken");
    let without_done = read(&[text, r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#]).0.unwrap();
    assert_eq!(without_done.stop, Some(StopReason::MaxTokens));
}

#[test]
fn other_choices_and_unknown_fields_are_left_out() {
    let (reply, _) = read(&[
        r#"{"service_tier":"x","choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes","audio":null}}]}"#,
        r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"},{"index":0,"delta":{},"finish_reason":"soon"}]}"#,
    ]);
    let reply = reply.unwrap();
    assert_eq!((reply.text().as_str(), reply.stop), ("yes", Some(StopReason::Other("soon".into()))));
}
