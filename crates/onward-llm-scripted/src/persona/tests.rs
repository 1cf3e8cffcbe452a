//! Tests of the parent module.

use super::*;
use crate::conversation::ApiFormat;
use crate::script::ReplyPart;

fn ask(message: &str) -> Vec<ReplyPart> {
    let schema = json!({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]});
    let tools = json!([{"name": "get_weather", "input_schema": schema}]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": message}], "tools": tools});
    answer(&ScriptedConversation::read(ApiFormat::Anthropic, &body).unwrap()).parts
}

#[test]
fn it_calls_what_is_named_with_arguments_that_fit() {
    let call = |arguments: &str| ReplyPart::Call { name: "get_weather".into(), arguments: arguments.into() };
    assert_eq!(ask("Get-Weather for 3 days!")[1], call(r#"{"city":"Get-Weather for 3 days!","days":3}"#));
    assert_eq!(ask(r#"use get_weather {"city": "Ulm", "days": 2} now"#)[1], call(r#"{"city": "Ulm", "days": 2}"#));
    assert_eq!(ask("weather?"), [ReplyPart::Text("You said: weather?\nName a tool and I will call it: get_weather.".into())]);
}
