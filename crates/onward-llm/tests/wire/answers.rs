use onward_llm::{
    ApiFormat, Block, Delta, EmptyModelResponse, Failures, JsonText, Message, ModelRequest, Next, StopReason, ToolSchema, Usage,
};
use onward_llm_scripted::{Fault, ReplyPart, Rule, ScriptedReply};

use crate::{DIALECTS, KEY, call, scripted};

fn weather() -> ToolSchema {
    let input = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
    ToolSchema { name: "weather".into(), description: "tells it".into(), input: JsonText::parse(input).unwrap() }
}

#[tokio::test]
async fn an_answer_arrives_in_pieces_and_as_a_whole() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        let request = ModelRequest {
            system: Some("Be brief.".into()),
            ..ModelRequest::new("scripted", vec![Message::user("Żółw 🐢!")])
        };
        let (reply, deltas) = call(&provider, &request).await;
        let reply = reply.unwrap();
        assert_eq!((reply.text().as_str(), &reply.stop), ("You said: Żółw 🐢!", &Some(StopReason::End)));
        assert_eq!((reply.model.as_str(), reply.usage), ("scripted", Some(Usage { input: 5, output: 5, ..Usage::default() })));
        let pieces: Vec<&str> =
            deltas.iter().filter_map(|delta| if let Delta::Text { text } = delta { Some(text.as_str()) } else { None }).collect();
        assert!(pieces.len() > 2 && pieces.concat() == reply.text(), "{pieces:?}");
        let [request] = &model.requests()[..] else { panic!("one request was sent") }; // LP1
        assert_eq!((request.key.as_deref(), request.body["stream"].as_bool()), (Some(KEY), Some(true)));
    }
}

#[tokio::test]
async fn a_turn_with_tools_goes_there_and_back() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        let mut request = ModelRequest::new("scripted", vec![Message::user("weather in Ulm?")]);
        request.tools = vec![weather()];
        let reply = call(&provider, &request).await.0.unwrap();
        let calls: Vec<_> = reply.calls().cloned().collect();
        assert_eq!((calls.len(), calls[0].arguments.as_str()), (1, r#"{"city":"weather in Ulm?"}"#));
        assert_eq!(reply.stop, Some(StopReason::ToolCalls));
        request.messages.push(reply.into_message());
        let orphan = call(&provider, &request).await.0.unwrap_err(); // a call without its result is refused, as by real servers
        assert_eq!(orphan.code(), "model_request_refused");
        request.messages.push(Message::tool_result(&calls[0].id, "rain"));
        let reply = call(&provider, &request).await.0.unwrap();
        assert_eq!(reply.text(), "weather says: rain");
        assert!(reply.usage.unwrap().cached_read > 0);
        assert_eq!(model.request_count(), 3);
    }
}

#[tokio::test]
async fn reasoning_goes_back_with_its_signature() {
    for api_format in DIALECTS {
        let (_model, provider) = scripted(api_format).await;
        let mut request = ModelRequest::new("scripted", vec![Message::user("weather")]);
        request.tools = vec![weather()];
        let (field, value) = match api_format {
            ApiFormat::OpenAi => ("reasoning_effort", r#""high""#),
            ApiFormat::Anthropic => ("thinking", r#"{"type":"enabled","budget_tokens":1024}"#),
        };
        request.extras.insert(field.into(), JsonText::parse(value).unwrap());
        let reply = call(&provider, &request).await.0.unwrap();
        let Block::Reasoning(thought) = &reply.blocks[0] else { panic!("{:?}", reply.blocks) };
        assert_eq!(thought.text, "I should call what was named.");
        let id = reply.calls().next().unwrap().id.clone();
        request.messages.extend([reply.into_message(), Message::tool_result(id, "sun")]);
        assert_eq!(call(&provider, &request).await.0.unwrap().text(), "weather says: sun");
        // The server checks the signature: a changed thought is refused.
        let Block::Reasoning(thought) = &mut request.messages[1].blocks[0] else { panic!() };
        let payload = thought.payload.as_mut().unwrap();
        payload.json = JsonText::parse(payload.json.as_str().replace("named", "said")).unwrap();
        assert_eq!(call(&provider, &request).await.0.unwrap_err().code(), "model_request_refused");
    }
}

#[tokio::test]
async fn calls_are_put_together_however_they_are_mixed() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        let (first, second) = (r#"{"city": "Ulm", "id": 9007199254740993}"#, r#"{"city": "Gdańsk"}"#);
        let answer = ScriptedReply::call("weather", first).and_call("weather", second).and_call("tide", "{oops");
        for fault in [None, Some(Fault::Interleaved), Some(Fault::WithoutIds)] {
            model.next(ScriptedReply { fault, ..answer.clone() });
            let reply = call(&provider, &ModelRequest::new("m", vec![Message::user("go")])).await.0.unwrap();
            let calls: Vec<_> = reply.calls().collect();
            assert_eq!(calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), [first, second, "{oops"]);
            assert!(calls[2].json().is_err()); // LM1
            let mut ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
            ids.dedup();
            assert!(ids.len() == 3 && ids.iter().all(|id| !id.is_empty()), "{ids:?}");
        }
    }
}

#[tokio::test]
async fn refusals_and_cut_answers_are_answers() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        let request = ModelRequest::new("m", vec![Message::user("go")]);
        model.next(ScriptedReply::refusal("I will not."));
        let refused = call(&provider, &request).await.0.unwrap();
        assert!(refused.refusal().is_some(), "{refused:?}");
        model.next(ScriptedReply { cut: true, ..ScriptedReply::text("On the one") });
        let cut = call(&provider, &request).await.0.unwrap();
        assert_eq!((cut.text().as_str(), cut.stop), ("On the one", Some(StopReason::MaxTokens)));
        assert_eq!(model.request_count(), 2);
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        model.next(ScriptedReply::reasoning("hm").and(ReplyPart::Text("ok".into())).and_call("f", r#"{"x":1}"#));
        let mut request = ModelRequest::new("m", vec![Message::user("go")]);
        request.extras.insert("stream".into(), JsonText::parse("false").unwrap());
        request.extras.insert("stream_options".into(), JsonText::parse("null").unwrap());
        let (reply, deltas) = call(&provider, &request).await;
        let reply = reply.unwrap();
        assert_eq!((reply.text().as_str(), reply.calls().next().unwrap().arguments.as_str()), ("ok", r#"{"x":1}"#));
        assert!(reply.usage.is_some() && matches!(reply.blocks[0], Block::Reasoning(_)));
        assert!(deltas.contains(&Delta::Text { text: "ok".into() }));
        model.next(ScriptedReply::fault(Fault::Empty));
        assert_eq!(call(&provider, &request).await.0.unwrap_err().code(), "empty_model_response");
        model.next(ScriptedReply::fault(Fault::ErrorInside));
        assert_eq!(call(&provider, &request).await.0.unwrap_err().code(), "empty_model_response");
    }
}

#[tokio::test]
async fn the_same_conversation_has_the_same_answer() {
    for api_format in DIALECTS {
        let mut request = ModelRequest::new("m", vec![Message::user("weather")]);
        request.tools = vec![weather()];
        let (_one, first) = scripted(api_format).await;
        let (_two, second) = scripted(api_format).await;
        assert_eq!(call(&first, &request).await, call(&second, &request).await); // SM1, ids and tokens included
    }
}

#[tokio::test]
async fn an_empty_answer_is_retried_as_often_as_the_policy_allows() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        model.rule(Rule::always(ScriptedReply::fault(Fault::Empty)));
        let (request, mut failures) = (ModelRequest::new("m", vec![Message::user("go")]), Failures::default());
        let last = loop {
            let error = call(&provider, &request).await.0.unwrap_err();
            match provider.retries().after(&mut failures, &error) {
                Next::Again { .. } => {} // the engine would wait
                Next::GiveUp => break error,
            }
        };
        let ended = EmptyModelResponse::after(&failures, &last).unwrap();
        assert_eq!((ended.attempts, model.request_count()), (3, 3));
        assert_eq!(ended.last_response.usage, Some(Usage::default()));
    }
}

#[tokio::test]
async fn a_model_may_repeat_one_call_for_ever() {
    let (model, provider) = scripted(ApiFormat::OpenAi).await;
    model.rule(Rule::always(ScriptedReply::call("f", "{}")));
    let mut request = ModelRequest::new("m", vec![Message::user("go")]);
    for turn in 1..=20 {
        let reply = call(&provider, &request).await.0.unwrap();
        let id = reply.calls().next().unwrap().id.clone();
        request.messages.extend([reply.into_message(), Message::tool_result(id, "done")]);
        assert_eq!(model.request_count(), turn);
    }
}
