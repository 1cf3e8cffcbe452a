//! Tests of the parent module.

use super::*;

#[test]
fn every_shape_of_an_entry_is_printed_in_lines() {
    let text_of = |text: &str| indented(&Payload::from_json_text(text.to_owned()));
    assert_eq!(text_of(r#""hello\nyou""#), "  hello\n  you\n");
    assert_eq!(text_of(r#"{"text":"hi","covers":"x"}"#), "  hi\n");
    let reply = r#"{"blocks":[{"type":"reasoning","text":"hm"},{"type":"text","text":"It is 7."},
        {"type":"tool_call","id":"1","name":"add","arguments":"{\"a\":1}"}],"model":"m"}"#;
    assert_eq!(text_of(reply), "  [reasoning] hm\n  It is 7.\n  [calls add] {\"a\":1}\n");
    let result = r#"{"blocks":[{"type":"tool_result","call_id":"1","blocks":[{"type":"text","text":"no"}],"is_error":true}]}"#;
    assert_eq!(text_of(result), "  [failed] no\n");
    assert_eq!(text_of(r#"{"a":1}"#), "  {\"a\":1}\n");
    assert_eq!(text_of(r#""\u001b[31mred""#), "  \\u{1b}[31mred\n");
}
