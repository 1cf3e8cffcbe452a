use super::*;

fn input(messages: Value) -> RunAgentInput {
    serde_json::from_value(json!({"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []})).unwrap()
}

#[test]
fn a_thread_is_a_run_whose_name_people_recognize_where_that_is_possible() {
    let run = |thread: &str| RunAgentInput { thread_id: thread.to_owned(), ..input(json!([])) }.run("support");
    assert_eq!(run("t-1").unwrap().as_str(), "support:t-1");
    let odd = run("a/b c").unwrap();
    assert!(odd.as_str().starts_with("support:") && !odd.as_str().contains('/'), "{odd}");
    assert_ne!(odd, run("a/b d").unwrap());
    assert!(run("").is_err());
}

#[test]
fn only_messages_since_the_last_answer_are_new() {
    let user = |id: &str| json!({"id": id, "role": "user", "content": id});
    let answer = json!({"id": "a", "role": "assistant", "content": "well"});
    let input = input(json!([user("1"), answer, user("2"), {"id": "s", "role": "system", "content": "x"}, user("3")]));
    let ids = |messages: Vec<UserMessage>| messages.into_iter().map(|message| message.id).collect::<Vec<_>>();
    assert_eq!(ids(input.new_messages()), ["2", "3"]);
    let started = input.start(&input.new_messages()[1]);
    let known = Started::read(&started);
    let message =
        |id: &str, role: &str, text: &str| UserMessage::read(&json!({"id": id, "role": role, "content": text})).unwrap();
    assert_eq!(known.compare(&message("1", "user", "1")), Again::Same);
    assert_eq!(known.compare(&message("4", "user", "4")), Again::New);
    for other in [message("1", "user", "one"), message("a", "user", "well"), message("s", "user", "x")] {
        assert_eq!(known.compare(&other), Again::Other, "{other:?}");
    }
    assert_eq!(started.read::<Value>().unwrap()["text"], "3");
}

#[test]
fn an_empty_message_is_refused_and_skipped_when_another_one_follows() {
    let user = |id: &str, content: Value| json!({"id": id, "role": "user", "content": content});
    let image = json!([{"type": "image", "source": {"type": "url", "value": "http://x/y"}}]);
    for nothing in [json!(""), json!(" "), json!([]), json!([{"type": "text", "text": ""}])] {
        let only = input(json!([user("1", nothing.clone())]));
        assert_eq!(only.check().unwrap_err().code, "message_empty", "{nothing}");
        let then = input(json!([user("1", nothing), user("2", json!("hello"))]));
        then.check().unwrap();
        let messages = then.new_messages();
        assert_eq!(messages.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["2"]);
        assert_eq!(then.start(&messages[0]).read::<Value>().unwrap()["messages"].as_array().unwrap().len(), 1);
    }
    input(json!([user("1", image)])).check().unwrap();
    input(json!([])).check().unwrap();
}

#[test]
fn a_message_without_receiver_is_refused() {
    let refused = |message: Value| input(json!([message])).check().is_err();
    for bad in [
        json!({"role": "user", "content": "no id"}),
        json!({"id": "", "role": "user", "content": "no id"}),
        json!({"id": 5, "role": "user", "content": "a number"}),
        json!({"id": "1", "role": "user", "content": 5}),
        json!({"id": "1", "role": "user", "content": {"text": "an object"}}),
        json!({"id": "1", "role": "user"}),
        json!({"id": "1", "role": "User", "content": "hello"}),
        json!({"id": "1", "content": "hello"}),
        json!("hello"),
    ] {
        assert!(refused(bad.clone()), "{bad}");
    }
    for good in [json!({"id": "1", "role": "user", "content": "hello"}), json!({"id": "1", "role": "activity", "content": {}})] {
        assert!(!refused(good.clone()), "{good}");
    }
}

#[test]
fn an_id_stands_for_one_message() {
    let user = |text: &str| json!({"id": "1", "role": "user", "content": text});
    assert_eq!(input(json!([user("a"), user("b")])).check().unwrap_err().code, "json_invalid");
    let twice = input(json!([user("a"), user("a")]));
    twice.check().unwrap();
    let messages = twice.new_messages();
    assert_eq!(messages.len(), 1);
    assert_eq!(twice.start(&messages[0]).read::<Value>().unwrap()["messages"], json!([user("a")]));
}

#[test]
fn parts_become_blocks() {
    let parts = json!([{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "value": "http://x/y", "mimeType": "image/png"}}]);
    let message = UserMessage::read(&json!({"id": "1", "role": "user", "content": parts})).unwrap();
    assert_eq!(message.text, "see");
    assert_eq!(
        message.content["blocks"][1],
        json!({"type": "attachment", "media_type": "image/png", "source": {"url": "http://x/y"}})
    );
    let only = UserMessage::read(&json!({"id": "1", "role": "user", "content": [{"type": "text", "text": "a"}]})).unwrap();
    assert_eq!(only.content, json!({"id": "1", "text": "a"}));
    let known = Started { messages: vec![json!({"id": "1", "role": "user", "content": parts})] };
    assert_eq!(known.compare(&message), Again::Same);
    assert_eq!(known.compare(&UserMessage { content: json!({"id": "1", "text": "see"}), ..message }), Again::Same);
    assert_eq!(known.compare(&only), Again::Other);
    let began = input(json!([{"id": "1", "role": "user", "content": parts}, {"id": "2", "role": "user", "content": "so?"}]));
    let started = Started::read(&began.start(&began.new_messages()[1]));
    assert_eq!(started.messages[0]["content"]["blocks"], began.new_messages()[0].content["blocks"]);
    assert_eq!(started.compare(&began.new_messages()[0]), Again::Same);
    assert_eq!(started.compare(&only), Again::Other);
}

#[test]
fn bytes_are_taken_and_an_unreadable_part_is_refused() {
    let input_with =
        |part: Value| input(json!([{"id": "1", "role": "user", "content": [{"type": "text", "text": "see"}, part]}]));
    for (given, source, value) in [("data", "base64", "aGV5"), ("url", "url", "https://x/y")] {
        let message = input_with(json!({"type": "binary", "mimeType": "image/png", given: value})).new_messages().remove(0);
        let expected = json!({"type": "attachment", "media_type": "image/png", "source": {source: value}});
        assert_eq!(message.content["blocks"][1], expected);
    }
    for unknown in [
        json!({"type": "hologram"}),
        json!({"type": "binary", "mimeType": "image/png"}),
        json!({"type": "image", "source": {"type": "id", "value": "x"}}),
    ] {
        let refused = input_with(unknown.clone());
        assert_eq!(refused.check().unwrap_err().code, "json_invalid", "{unknown}");
        assert!(refused.new_messages().is_empty(), "a client sends it again with the next one");
    }
}

#[test]
fn a_resolved_interrupt_is_approved_only_if_its_payload_approves_it() {
    let decision = |status: &str, payload: Value| {
        let resume: Resume = serde_json::from_value(json!({"interruptId": "i", "status": status, "payload": payload})).unwrap();
        resume.decision()
    };
    assert_eq!(decision("resolved", json!({"approved": true})).unwrap(), (true, None, None));
    assert_eq!(decision("resolved", json!(true)).unwrap(), (true, None, None));
    let answered = decision("resolved", json!({"approved": true, "answer": {"n": 1}})).unwrap();
    assert_eq!(answered, (true, None, Some(Payload::json(&json!({"n": 1})).unwrap())));
    assert_eq!(decision("resolved", json!({"approved": false, "feedback": "no"})).unwrap(), (false, Some("no".to_owned()), None));
    assert_eq!(decision("resolved", json!(false)).unwrap(), (false, None, None));
    assert!(!decision("cancelled", json!({"approved": true})).unwrap().0);
    for unreadable in
        [json!(null), json!({}), json!({"approved": "no"}), json!({"approved": 0}), json!({"approve": false}), json!("false")]
    {
        assert!(decision("resolved", unreadable.clone()).is_err(), "{unreadable}");
    }
}
