use std::time::Duration;

use onward_llm::{ApiFormat, CallError, JsonText, Limits, Message, ModelRequest};
use onward_llm_scripted::{Fault, ScriptedReply};

use crate::{DIALECTS, call, scripted, short};

fn request() -> ModelRequest {
    ModelRequest::new("m", vec![Message::user("go")])
}

/// Returns the error of a call whose response has this fault.
async fn failure(api_format: ApiFormat, answer: ScriptedReply) -> CallError {
    let (model, provider) = scripted(api_format).await;
    model.next(answer);
    let error = call(&provider, &request()).await.0.unwrap_err();
    assert_eq!(model.request_count(), 1); // LP1
    error
}

#[tokio::test]
async fn a_limited_key_is_closed_for_as_long_as_the_provider_requests() {
    for api_format in DIALECTS {
        let error = failure(api_format, ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: Some(17) })).await;
        assert_eq!((error.code(), error.retry_after()), ("model_rate_limited", Some(Duration::from_secs(17))));
        assert!(error.is_retryable() && error.limits_key() && !error.may_have_cost());
        assert_eq!((error.status, error.request_id.is_some()), (Some(429), true));
        let error = failure(api_format, ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: None })).await;
        assert_eq!((error.code(), error.retry_after()), ("model_rate_limited", None));
    }
}

#[tokio::test]
async fn refusals_are_classified_as_retryable_or_final() {
    let cases = [
        (Fault::ServerError, "model_failed", true),
        (Fault::Overloaded, "model_overloaded", true),
        (Fault::KeyRefused, "model_key_refused", false),
        (Fault::ContextTooLong, "context_too_long", false),
    ];
    for api_format in DIALECTS {
        for (fault, code, retryable) in &cases {
            let error = failure(api_format, ScriptedReply::fault(fault.clone())).await;
            assert_eq!((error.code(), error.is_retryable()), (*code, *retryable), "{error}");
            assert!(!error.may_have_cost());
        }
    }
}

#[tokio::test]
async fn nothing_inside_a_success_is_an_empty_answer() {
    for api_format in DIALECTS {
        for fault in [Fault::Empty, Fault::ErrorInside] {
            let error = failure(api_format, ScriptedReply::fault(fault)).await;
            assert_eq!(error.code(), "empty_model_response");
            assert!(error.is_retryable() && error.may_have_cost());
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_kept_as_far_as_it_came() {
    for api_format in DIALECTS {
        for fault in [Fault::BreakAfter { chunks: 5 }, Fault::MalformedAfter { chunks: 5 }] {
            let error = failure(api_format, ScriptedReply::text("One two three four five six").with_fault(fault)).await;
            assert_eq!(error.code(), "model_answer_broken", "{error}");
            let text = error.arrived.text();
            assert!(!text.is_empty() && "One two three four five six".starts_with(&text), "{text}");
            assert!(error.is_retryable() && error.may_have_cost());
            assert_eq!(error.arrived.usage.is_some(), api_format == ApiFormat::Anthropic); // which reports it at the beginning
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_complete_counts_although_the_connection_breaks_after_it() {
    for (api_format, chunks) in [(ApiFormat::OpenAi, 3), (ApiFormat::Anthropic, 6)] {
        let (model, provider) = scripted(api_format).await;
        model.next(ScriptedReply::text("word").with_fault(Fault::BreakAfter { chunks })); // everything except the final events
        let reply = call(&provider, &request()).await.0.unwrap(); // LA2
        assert_eq!((reply.text().as_str(), reply.usage.is_some()), ("word", api_format == ApiFormat::Anthropic));
    }
}

#[tokio::test]
async fn silence_ends_a_call() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        model.next(ScriptedReply::text("One two three").with_fault(Fault::StallAfter { chunks: 4 }));
        let error = call(&provider.with_limits(short(60_000, 1_000)), &request()).await.0.unwrap_err();
        assert_eq!(error.code(), "model_timed_out");
        assert!(!error.arrived.text().is_empty() && error.is_retryable());
    }
}

#[tokio::test]
async fn a_call_that_goes_on_for_ever_is_ended_with_what_it_brought() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        model.next(ScriptedReply { chunk_delay_ms: 50, ..ScriptedReply::text(&"word ".repeat(1_000)) });
        let error = call(&provider.with_limits(short(1_500, 60_000)), &request()).await.0.unwrap_err();
        assert_eq!(error.code(), "model_timed_out");
        assert!(error.arrived.text().starts_with("word "));
    }
}

#[tokio::test]
async fn an_answer_has_a_limit() {
    for api_format in DIALECTS {
        let (model, provider) = scripted(api_format).await;
        model.next(ScriptedReply::text(&"word ".repeat(10_000)));
        let limits = Limits { answer_bytes_max: 10_000, ..Limits::default() };
        let error = call(&provider.with_limits(limits), &request()).await.0.unwrap_err();
        assert_eq!(error.code(), "model_answer_too_large");
        assert!(error.arrived.text().len() < 10_000 && !error.is_retryable()); // LP3
        model.next(ScriptedReply::text(&"word ".repeat(10_000)));
        let whole = ModelRequest { extras: [("stream".into(), JsonText::parse("false").unwrap())].into(), ..request() };
        let error = call(&provider.with_limits(limits), &whole).await.0.unwrap_err();
        assert_eq!(error.code(), "model_answer_too_large");
    }
}
