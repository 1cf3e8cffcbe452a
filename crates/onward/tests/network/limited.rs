//! A rate-limited key is not used by the workers of any process.

use std::time::{Duration, Instant};

use onward::agent::{Agent, AgentOutcome, Key, Provider};
use onward::{BlockReason, Builder, Event, Onward};
use onward_llm_scripted::{Fault, ScriptedModel, ScriptedReply};
use onward_testkit::Cluster;

use crate::site::{Site, eventually};

/// The time for which the provider limits the key.
const CLOSED: Duration = Duration::from_secs(5);

const RUNS: u32 = 4;

/// Creates a worker with a model and an agent of the same name.
fn worker(url: &str, model: &ScriptedModel, name: &str) -> Builder {
    // A separate provider, as in a separate process: they do not share what they know of the key.
    let provider = Provider::openai(&format!("{}/v1", model.url()), Some(Key::new("sk-secret"))).unwrap();
    Onward::connect(url).model(name, &provider).register(Agent::new(name).model(name))
}

/// The first call is rejected; later runs wait until the limit is over, whichever worker and model of that key they use, and
/// succeed with their first attempt.
async fn all_wait(here: &str, there: &str, other: &str) {
    let model = ScriptedModel::start().await.unwrap();
    let first = worker(here, &model, "a").start().await.unwrap();
    model.next(ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: Some(CLOSED.as_secs()) }));
    let refused = first.start::<AgentOutcome, _>("a", "hello").id("refused").await.unwrap();
    let begun = Instant::now();
    eventually("the provider refuses", async || (model.request_count() == 1).then_some(())).await;
    eventually("that is recorded", async || {
        let log = refused.log().await.unwrap();
        log.iter().flat_map(|record| &record.events).any(|event| matches!(event, Event::TaskAttemptEnded(_))).then_some(())
    })
    .await;
    let second = worker(there, &model, other).start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(second.start::<AgentOutcome, _>(other, "hello").id(format!("r{number}")).await.unwrap());
    }
    // This server has no worker with the model; those of the other server report which key it uses.
    let run = first.run::<AgentOutcome>("r0").unwrap();
    eventually("the reason is known", async || {
        let found = run.blocked_on().await.unwrap().pop();
        found.filter(|blocker| blocker.why == BlockReason::RateLimited)
    })
    .await;
    for run in &runs {
        assert_eq!(run.result().await.unwrap().text, "You said: hello");
        let spend = run.view().await.unwrap().head.spend.unwrap();
        assert_eq!(spend.attempts, 1, "no attempt was used up by waiting");
        let log = run.log().await.unwrap();
        let begun = log.iter().flat_map(|record| &record.events).filter(|event| matches!(event, Event::TaskAttempted(_))).count();
        assert_eq!(begun, 1, "and nothing was recorded of it");
    }
    assert!(begun.elapsed() >= CLOSED - Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(refused.result().await.unwrap().text, "You said: hello");
    assert_eq!(model.request_count(), u64::from(RUNS) + 2, "the provider refused once, and was left alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_limited_is_left_alone_by_workers_of_another_process() {
    let site = Site::memory().await;
    all_wait(&site.url(), &site.url(), "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_limited_is_left_alone_by_workers_of_another_server() {
    let database = Cluster::shared().database(None).unwrap();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    all_wait(&here.url(), &there.url(), "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_model_with_the_key_is_left_alone_too_by_workers_of_another_server() {
    let database = Cluster::shared().database(None).unwrap();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    all_wait(&here.url(), &there.url(), "b").await;
}
