//! Attachments of messages: shown to models, described to them, or left out.

use std::time::Duration;

use onward::Failure;
use onward::agent::{Agent, AgentOutcome, Attachments, MESSAGE, ModelRetries, Provider};
use onward_llm_scripted::{Fault, Rule, ScriptedModel, ScriptedReply, When};
use serde_json::{Value, json};

use crate::in_memory;
use crate::models::{until_turn, with_model};

/// One message must not be the end of a conversation.
#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_that_a_model_cannot_be_shown_is_told_and_the_conversation_goes_on() {
    let model = ScriptedModel::start().await.unwrap();
    let builder = in_memory().model("m", &Provider::anthropic(&model.url(), None).unwrap());
    let onward = builder.register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let run = onward.start::<Value, _>("a", "hello").id("c").await.unwrap();
    until_turn(&onward, "c", 2).await;
    let audio = json!({"type": "attachment", "media_type": "audio/wav", "source": {"base64": "AAAA"}});
    run.message(&json!({"blocks": [{"type": "text", "text": "listen"}, audio]})).await.unwrap();
    until_turn(&onward, "c", 3).await;
    let prompt = model.requests().pop().unwrap().body["messages"].to_string();
    assert!(prompt.contains("[an attachment of type audio/wav, which this model cannot be shown]"), "{prompt}");
    onward.shutdown().await;
}

/// The SHA-256 of three bytes `ff`, the name of [`picture`].
const PICTURE: &str = "5ae7e6a42304dc6e4176210b83c43024f99a0bce9a870c3b6d2c95fc8ebfb74c";

fn picture(hash: &str) -> Value {
    let picture = json!({"type": "attachment", "media_type": "image/png", "source": {"hash": hash}});
    json!({"blocks": [{"type": "text", "text": "look"}, picture]})
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_that_are_named_by_their_hash_are_put_in_place() {
    let model = ScriptedModel::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(PICTURE), [0xff; 3]).unwrap();
    let builder = with_model(in_memory(), &model).attachments(Attachments::folder(folder.path()));
    let onward = builder.register(Agent::new("a").model("m")).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", &picture(PICTURE)).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "You said: look");
    let prompt = model.requests().pop().unwrap().body["messages"].to_string();
    assert!(prompt.contains("data:image/png;base64,////"), "{prompt}");
    onward.shutdown().await;
}

/// An attachment that comes a little late is waited for. The model is told about a missing one, which is looked up again in every
/// later turn, without waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_attachment_is_reported_and_the_conversation_continues() {
    let model = ScriptedModel::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let retries = ModelRetries { first_delay: Duration::from_millis(50), ..ModelRetries::default() };
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap().with_retries(retries);
    let builder = in_memory().model("m", &provider).attachments(Attachments::folder(folder.path()));
    let onward = builder.register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", &picture(PICTURE)).id("r").await.unwrap();
    until_turn(&onward, "r", 2).await;
    let last_prompt = || model.requests().pop().unwrap().body["messages"].to_string();
    assert!(
        last_prompt().contains(&format!("[an attachment {PICTURE} of type image/png, which cannot be found]")),
        "{}",
        last_prompt()
    );
    let spend = run.view().await.unwrap().head.spend.unwrap();
    assert_eq!((spend.attempts, spend.unknown), (4, 0), "it was looked for three times, and nothing was asked");
    run.message("and now?").await.unwrap();
    until_turn(&onward, "r", 3).await;
    assert!(last_prompt().contains("which cannot be found"), "{}", last_prompt());
    assert_eq!(run.view().await.unwrap().head.spend.unwrap().attempts, 5, "an earlier turn has waited for it");
    std::fs::write(folder.path().join(PICTURE), [0xff; 3]).unwrap();
    run.message("and now?").await.unwrap();
    until_turn(&onward, "r", 4).await;
    assert!(last_prompt().contains("data:image/png;base64,////"), "{}", last_prompt());
    onward.shutdown().await;
}

/// The input of a start and a bare signal may be anything, so the API does not validate them: the model is told what is wrong,
/// and the rest is shown.
#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_that_could_never_be_shown_becomes_a_note_and_what_is_beside_it_is_shown() {
    let model = ScriptedModel::start().await.unwrap();
    model.rule(Rule { times: None, ..Rule::always(ScriptedReply::text("ok")) });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(PICTURE), [0xff; 3]).unwrap();
    let builder = with_model(in_memory(), &model).attachments(Attachments::folder(folder.path()));
    let onward = builder.register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let attached = |media_type: Value, source: Value| json!({"type": "attachment", "media_type": media_type, "source": source});
    let png = |source: Value| attached(json!("image/png"), source);
    let bad = [
        (png(json!({"hash": "ab12"})), "`hash`"),
        (png(json!({"base64": "data:image/png;base64,AAAA"})), "`base64`"),
        (png(json!({"url": " "})), "`url`"),
        (png(json!({"path": "/etc/passwd"})), "`source`"),
        (png(json!(null)), "`source`"),
        (attached(json!("picture"), json!({"base64": "AAAA"})), "`media_type`"),
        (attached(json!(null), json!({"base64": "AAAA"})), "`media_type`"),
    ];
    for (number, (attachment, why)) in bad.iter().enumerate() {
        let good = png(json!({"hash": PICTURE}));
        let blocks = json!({"blocks": [{"type": "text", "text": "look"}, attachment, good]});
        let conversation = json!({"messages": [{"role": "user", "content": blocks}]});
        let input = if number % 2 == 0 { &blocks } else { &conversation };
        let id = format!("r{number}");
        let run = onward.start::<AgentOutcome, _>("a", input).id(&id).await.unwrap();
        let last_prompt = || model.requests().pop().unwrap().body["messages"].to_string();
        let check_prompt = |times: usize| {
            let prompt = last_prompt();
            assert_eq!(prompt.matches("[an attachment that no model can be shown: its").count(), times, "{prompt}");
            assert_eq!((prompt.matches(why).count(), prompt.matches("base64,////").count()), (times, times), "{prompt}");
            assert!(!prompt.contains("passwd") && !prompt.contains("media_type\\"), "{prompt}");
        };
        until_turn(&onward, &id, 2).await;
        check_prompt(1);
        run.signal(MESSAGE, &blocks).await.unwrap();
        until_turn(&onward, &id, 3).await;
        check_prompt(2);
        let spend = run.view().await.unwrap().head.spend.unwrap();
        assert_eq!((spend.attempts, spend.unknown), (2, 0), "it is not looked up, and no request has it");
    }
    onward.shutdown().await;
}

/// The file with that name is no longer the attachment.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_attachment_is_shown_to_no_model_and_the_conversation_goes_on() {
    let model = ScriptedModel::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(PICTURE), [0xfe; 3]).unwrap();
    let retries = ModelRetries { first_delay: Duration::from_millis(1), ..ModelRetries::default() };
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap().with_retries(retries);
    let builder = in_memory().model("m", &provider).attachments(Attachments::folder(folder.path()));
    let onward = builder.register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", &picture(PICTURE)).id("r").await.unwrap();
    until_turn(&onward, "r", 2).await;
    let last_prompt = || model.requests().pop().unwrap().body["messages"].to_string();
    let damaged =
        format!("[an attachment {PICTURE} of type image/png, which is damaged: its bytes are not those that were attached]");
    assert!(last_prompt().contains(&damaged) && !last_prompt().contains("base64"), "{}", last_prompt());
    std::fs::write(folder.path().join(PICTURE), [0xff; 3]).unwrap();
    run.message("and now?").await.unwrap();
    until_turn(&onward, "r", 3).await;
    assert!(last_prompt().contains("data:image/png;base64,////"), "{}", last_prompt());
    let error = run.message(&picture("ab12")).await.unwrap_err();
    assert_eq!(error.code(), "attachment_invalid");
    onward.shutdown().await;
}

/// Whether it exists is unknown, so the model must not be told that it is missing.
#[tokio::test(flavor = "multi_thread")]
async fn attachments_that_cannot_be_read_now_are_waited_for_as_a_provider_is() {
    let model = ScriptedModel::start().await.unwrap();
    let retries = ModelRetries { first_delay: Duration::from_millis(1), outage_max: 7, ..ModelRetries::default() };
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap().with_retries(retries);
    let down = Attachments::found_by(|_| async { Err(Failure::new("down", "the store of pictures is down")) });
    let builder = in_memory().model("m", &provider).attachments(down);
    let onward = builder.register(Agent::new("a").model("m")).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", &picture(PICTURE)).id("r").await.unwrap();
    let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
    assert_eq!((failure.code.as_str(), model.request_count()), ("attachment_unreadable", 0));
    assert!(failure.message.contains(&format!("{PICTURE}: the store of pictures is down")), "{failure:?}");
    assert_eq!(run.view().await.unwrap().head.spend.unwrap().attempts, 7);
    onward.shutdown().await;
}

/// A picture that only the provider detects as broken.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_refused_is_made_again_without_what_is_attached() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m")).start().await.unwrap();
    model.next(ScriptedReply::fault(Fault::RequestRefused));
    let picture = json!({"type": "attachment", "media_type": "image/png", "source": {"base64": "AAAA"}});
    let content = json!({"blocks": [{"type": "text", "text": "look"}, picture]});
    let run = onward.start::<AgentOutcome, _>("a", &content).id("r").await.unwrap();
    assert!(
        run.result().await.unwrap().text.contains("[an attachment of type image/png, which the model's provider did not take]")
    );
    assert_eq!(model.request_count(), 2);
    model.next(ScriptedReply::fault(Fault::ContextTooLong));
    let run = onward.start::<AgentOutcome, _>("a", &content).id("long").await.unwrap();
    assert!(run.result().await.unwrap().text.contains("which the model's provider did not take"));
    assert_eq!(model.request_count(), 4, "nothing was summarized");
    model.rule(Rule::always(ScriptedReply::fault(Fault::RequestRefused)));
    for (id, content, attempts) in [("words", json!("hello"), 1), ("both", content, 2)] {
        let before = model.request_count();
        let run = onward.start::<AgentOutcome, _>("a", &content).id(id).await.unwrap();
        let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
        assert_eq!((failure.code.as_str(), model.request_count() - before), ("model_request_refused", attempts), "{id}");
    }
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_text_that_is_too_long_is_replaced_by_a_note() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m")).start().await.unwrap();
    let window = When { tokens_over: Some(8_000), ..When::default() };
    model.rule(Rule { when: window, answer: ScriptedReply::fault(Fault::ContextTooLong), times: None });
    let text = json!({"type": "attachment", "media_type": "text/plain", "source": {"base64": "YWJj".repeat(40_000)}});
    let content = json!({"blocks": [{"type": "text", "text": "look"}, text]});
    let run = onward.start::<AgentOutcome, _>("a", &content).id("r").await.unwrap();
    run.result().await.unwrap();
    let prompt = model.requests().pop().unwrap().body["messages"].to_string();
    assert!(prompt.contains("[an attachment of type text/plain, which the model's provider did not take]"), "{prompt}");
    assert_eq!(model.request_count(), 2, "nothing was summarized");
    onward.shutdown().await;
}

/// A provider does not name the attachment that it rejects, so the request is repeated without any.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_attachments_are_left_out_once_and_for_later_turns() {
    let model = ScriptedModel::start().await.unwrap();
    let refusing = |part: &str| Rule {
        when: When { attached: Some(part.to_owned()), ..When::default() },
        answer: ScriptedReply::fault(Fault::RequestRefused),
        times: None,
    };
    model.rule(refusing("BAD1"));
    model.rule(refusing("BAD2"));
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let content_with = |bytes: &[&str]| {
        let picture = |bytes: &&str| json!({"type": "attachment", "media_type": "image/png", "source": {"base64": bytes}});
        let words = json!({"type": "text", "text": "look"});
        json!({"blocks": std::iter::once(words).chain(bytes.iter().map(picture)).collect::<Vec<_>>()})
    };
    let run = onward.start::<AgentOutcome, _>("a", &content_with(&["GOOD"])).id("r").await.unwrap();
    until_turn(&onward, "r", 2).await;
    let seen = || {
        let messages = model.requests().pop().unwrap().body["messages"].as_array().unwrap().clone();
        let prompt: String = messages.iter().filter(|message| message["role"] == "user").map(Value::to_string).collect();
        let shown = ["GOOD", "GOO2", "GOO3", "BAD"].map(|bytes| prompt.matches(&format!("base64,{bytes}")).count());
        (model.request_count(), shown, prompt.matches("which the model's provider did not take").count())
    };
    assert_eq!(seen(), (1, [1, 0, 0, 0], 0));
    run.message(&content_with(&["BAD1", "GOO2"])).await.unwrap();
    until_turn(&onward, "r", 3).await;
    assert_eq!(seen(), (3, [0, 0, 0, 0], 3), "one request with all of them, one without");
    run.message("and now?").await.unwrap();
    until_turn(&onward, "r", 4).await;
    assert_eq!(seen(), (4, [0, 0, 0, 0], 3), "a later turn leaves them out from the start");
    run.message(&content_with(&["BAD1", "GOO3", "BAD2"])).await.unwrap();
    until_turn(&onward, "r", 5).await;
    assert_eq!(seen(), (6, [0, 0, 0, 0], 6));
    run.message(&content_with(&["GOO3"])).await.unwrap();
    until_turn(&onward, "r", 6).await;
    assert_eq!(seen(), (7, [0, 0, 1, 0], 6), "an attachment that is sent again is shown again");
    onward.shutdown().await;
}
