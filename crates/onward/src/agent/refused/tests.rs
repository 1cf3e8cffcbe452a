//! Tests of the parent module.

use onward_llm::Role;

use super::*;

fn attachment(text: &str) -> Block {
    Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Base64(text.into()) })
}

fn message(role: Role, texts: &[&str]) -> Message {
    Message { role, blocks: texts.iter().map(|text| attachment(text)).collect() }
}

/// AR1.
#[test]
fn all_attachments_are_replaced_by_notes_and_named() {
    let mut request = ModelRequest::new("m", vec![message(Role::User, &["a", "b"])]);
    assert_eq!(leave_out_all("p", &mut request).len(), 2);
    assert_eq!(request.messages[0].blocks, [noted(), noted()]);
    assert_eq!(leave_out_all("p", &mut request), Vec::<String>::new());
}

fn noted() -> Block {
    Block::text("[an attachment of type image/png, which the model's provider did not take]")
}

/// AR2.
#[test]
fn what_an_answer_was_given_without_is_left_out_before_it_for_that_provider() {
    let mut messages = [message(Role::User, &["a", "b"]), message(Role::Tool, &["b"])];
    let Block::Attachment(b) = attachment("b") else { unreachable!() };
    let answer = Payload::json(&serde_json::json!({"blocks": [], "left_out": [name_of("p", &b)]})).unwrap();
    leave_out_as_before("q", &answer, &mut messages);
    leave_out_as_before("p", &Payload::from_json_text(r#""a text""#), &mut messages);
    assert_eq!(messages, [message(Role::User, &["a", "b"]), message(Role::Tool, &["b"])]);
    leave_out_as_before("p", &answer, &mut messages);
    assert_eq!(messages[0].blocks, [attachment("a"), noted()]);
    assert_eq!(messages[1].blocks, [noted()]);
}
