//! Tests of the parent module.

use super::super::messages::tests::of_user;
use super::*;

/// Applies snapshots like the client library.
fn apply(has: &[&str], events: &[Value]) -> Vec<String> {
    let mut has: Vec<String> = has.iter().map(|id| (*id).to_owned()).collect();
    for event in events {
        let wanted: Vec<String> =
            event["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect();
        has.retain(|id| wanted.contains(id));
        has.extend(wanted.into_iter().filter(|id| !has.contains(id)).collect::<Vec<_>>());
    }
    has
}

fn of(ids: &[&str]) -> Vec<Value> {
    ids.iter().map(|id| json!({"id": id, "role": "user", "content": id})).collect()
}

#[test]
fn a_client_gets_the_order_of_the_conversation_whatever_it_has() {
    for has in [&["1", "3"][..], &["3", "1"], &["x", "2", "1"], &[], &["1", "2", "3", "4", "5"], &["4", "2"]] {
        let mut client = KnownMessages::new(&of(has));
        let sent = client.replace(&of(&["1", "2", "3", "4"]));
        assert_eq!(apply(has, &sent), ["1", "2", "3", "4"], "{has:?}");
        assert_eq!(client.replace(&of(&["1", "2", "3", "4"])).len(), 1, "once it has it, it is sent once");
    }
}

#[test]
fn what_is_streamed_is_known_too() {
    let mut client = KnownMessages::new(&of(&["1"]));
    for event in
        [json!({"type": "TEXT_MESSAGE_START", "messageId": "b"}), json!({"type": "TOOL_CALL_START", "parentMessageId": "b"})]
    {
        client.record_event(&event);
    }
    assert_eq!(client.ids, ["1", "b"]);
    assert_eq!(client.replace(&of(&["1", "a", "b"])).len(), 2);
}

#[test]
fn one_of_two_equal_messages_is_found_by_its_id() {
    let messages = [of_user(&json!({"id": "1", "text": "go on"})), of_user(&json!({"id": "2", "text": "go on"}))];
    let client = KnownMessages::new(&[json!({"id": "2", "role": "user", "content": "go on"})]);
    let mut names = BTreeMap::new();
    client.recognize(&messages, &mut names);
    assert_eq!(messages.map(|message| message.name(&names)), ["1", "2"]);
}
