//! Rate-limited and rejected keys of providers: which calls wait, for how long, and at what cost.

use std::time::{Duration, Instant};

use onward::agent::{Agent, AgentOutcome, Key, ModelRetries, Provider};
use onward::prelude::*;
use onward::{BlockReason, Builder, RunHandle};
use onward_core::stream::StreamContent;
use onward_llm_scripted::{Fault, Rule, ScriptedModel, ScriptedReply};
use tokio::net::TcpListener;

use crate::in_memory;
use crate::site::{Site, count, events, eventually, until_logged};

fn provider(model: &ScriptedModel, key: &str) -> Provider {
    Provider::openai(&format!("{}/v1", model.url()), Some(Key::new(key))).unwrap()
}

/// Adds two models with an agent each, of the same name.
fn with_two(builder: Builder, m: &Provider, n: &Provider) -> Builder {
    let agents = builder.register(Agent::new("m").model("m")).register(Agent::new("n").model("n"));
    agents.model("m", m).model("n", n)
}

fn limited(seconds: Option<u64>) -> ScriptedReply {
    ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: seconds })
}

async fn start_agent(onward: &Onward, agent: &str, id: &str) -> RunHandle<AgentOutcome> {
    onward.start::<AgentOutcome, _>(agent, "hello").id(id).await.unwrap()
}

async fn code_of(run: &RunHandle<AgentOutcome>) -> String {
    let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
    failure.code
}

/// Checks that the first attempt succeeded and that its start is recorded once.
async fn answered_at_once(run: &RunHandle<AgentOutcome>) {
    assert_eq!(run.result().await.unwrap().text, "You said: hello");
    assert_eq!(run.view().await.unwrap().head.spend.unwrap().attempts, 1);
    assert_eq!(count(run, "task_attempted").await, 1, "{:?}", events(run).await);
}

/// Each worker has one of the models, and the key is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_limited_key_holds_back_other_models_of_other_workers() {
    let (model, site) = (ScriptedModel::start().await.unwrap(), Site::server());
    let agent = |name: &str| Agent::new(name).model(name);
    let first = site.builder().await.register(agent("m")).model("m", &provider(&model, "sk")).start().await.unwrap();
    let second = site.builder().await.register(agent("n")).model("n", &provider(&model, "sk")).start().await.unwrap();
    model.next(limited(Some(4)));
    let begun = Instant::now();
    let refused = start_agent(&first, "m", "refused").await;
    until_logged(&refused, "task_attempt_ended", 1).await;
    let waits = start_agent(&second, "n", "waits").await;
    let blocker = eventually("the reason is known", async || {
        waits.blocked_on().await.unwrap().pop().filter(|blocker| blocker.task.is_some())
    })
    .await;
    assert_eq!((blocker.kind.as_str(), blocker.why), ("llm.n", BlockReason::RateLimited));
    let left = blocker.until.unwrap().since(site.runtime(&second).clock().now());
    assert!(left <= Duration::from_secs(4), "{left:?}");
    answered_at_once(&waits).await;
    assert!(begun.elapsed() > Duration::from_millis(3_500), "{:?}", begun.elapsed());
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_at_the_same_address_stays_open() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_two(in_memory(), &provider(&model, "sk-1"), &provider(&model, "sk-2")).start().await.unwrap();
    model.next(limited(Some(600)));
    let refused = start_agent(&onward, "m", "refused").await;
    until_logged(&refused, "task_attempt_ended", 1).await;
    let begun = Instant::now();
    answered_at_once(&start_agent(&onward, "n", "other").await).await;
    assert!(begun.elapsed() < Duration::from_secs(500), "{:?}", begun.elapsed());
    onward.shutdown().await;
}

/// The wait that readers see is the actual one.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_time_of_the_provider_all_wait_as_long_as_the_call_that_was_refused() {
    let patient = ModelRetries { first_delay: Duration::from_secs(3), ..ModelRetries::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let provider = Provider::openai(&url, Some(Key::new("sk"))).unwrap().with_retries(patient);
    let onward = with_two(in_memory(), &provider, &provider).start().await.unwrap();
    let refused = start_agent(&onward, "m", "refused").await;
    let mut stream = refused.stream(None);
    stream.next().await.unwrap();
    // The model answers only now: a stream does not contain failures from before it was opened.
    let begun = Instant::now();
    let _model = ScriptedModel::start_with(listener, [limited(None)]).unwrap();
    let failed = loop {
        if let StreamContent::AttemptFailed(failed) = stream.next().await.unwrap().unwrap().content {
            break failed;
        }
    };
    assert_eq!((failed.next_delay_ms, failed.failure.limited_ms), (Some(3_000), Some(3_000)));
    answered_at_once(&start_agent(&onward, "n", "waits").await).await;
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(refused.result().await.unwrap().text, "You said: hello");
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_gives_up_over_a_long_wait_has_closed_the_key_for_the_others() {
    let model = ScriptedModel::start().await.unwrap();
    let hurried = ModelRetries { wait_max: Duration::from_secs(1), ..ModelRetries::default() };
    let provider = provider(&model, "sk").with_retries(hurried);
    let onward = with_two(in_memory(), &provider, &provider).start().await.unwrap();
    model.next(limited(Some(2)));
    let begun = Instant::now();
    assert_eq!(code_of(&start_agent(&onward, "m", "gives-up").await).await, "model_rate_limited");
    answered_at_once(&start_agent(&onward, "n", "waits").await).await;
    assert!(begun.elapsed() > Duration::from_millis(1_500), "{:?}", begun.elapsed());
    assert_eq!(model.request_count(), 2);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_tried_by_every_run_for_itself() {
    let model = ScriptedModel::start().await.unwrap();
    let provider = provider(&model, "sk");
    let onward = with_two(in_memory(), &provider, &provider).start().await.unwrap();
    model.rule(Rule::always(ScriptedReply::fault(Fault::KeyRefused)));
    for (agent, id) in [("m", "one"), ("m", "two"), ("n", "three")] {
        assert_eq!(code_of(&start_agent(&onward, agent, id).await).await, "model_key_refused");
    }
    assert_eq!(model.request_count(), 3);
    onward.shutdown().await;
}
