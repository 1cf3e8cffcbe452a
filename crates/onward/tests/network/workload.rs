//! A run that uses a little of everything, and the checks of its log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, Onward};
use onward_core::{Event, Log, Status};

use crate::site::{Site, insist};

/// How often each step and task of each run began, in all processes together.
#[derive(Default, Clone)]
pub struct Ran(Arc<Mutex<BTreeMap<(u64, &'static str), u32>>>);

impl Ran {
    fn note(&self, n: u64, what: &'static str) {
        *self.0.lock().unwrap().entry((n, what)).or_default() += 1;
    }

    fn times(&self, n: u64, what: &'static str) -> u32 {
        self.0.lock().unwrap().get(&(n, what)).copied().unwrap_or(0)
    }
}

/// Number of signals that each run waits for.
pub const SIGNALS: u64 = 3;

async fn workload(ctx: Ctx, n: u64) -> Result<u64> {
    let ran = ctx.dep::<Ran>();
    let first = ctx
        .step("first", async || {
            ran.note(n, "first");
            Ok::<_, Failure>(n)
        })
        .await?;
    let doubled: u64 = ctx.task("double", &n).await?;
    let mut sum = 0;
    for _ in 0..SIGNALS {
        sum += ctx.signal("go").recv::<u64>().await?;
    }
    ctx.sleep(Duration::from_millis(20)).await?;
    let squared: u64 = ctx.child("square", &n).id(&format!("child-{n}")).await?;
    let last = ctx
        .step("last", async || {
            ran.note(n, "last");
            Ok::<_, Failure>(1)
        })
        .await?;
    Ok(first + doubled + sum + squared + last)
}

async fn square(ctx: Ctx, n: u64) -> Result<u64> {
    let ran = ctx.dep::<Ran>();
    ctx.step("square", async || {
        ran.note(n, "square");
        Ok::<_, Failure>(n * n)
    })
    .await
}

async fn double(ctx: TaskCtx, n: u64) -> Result<u64> {
    ctx.dep::<Ran>().note(n, "double");
    Ok(n * 2)
}

pub fn worker(url: &str, ran: &Ran) -> Builder {
    Onward::connect(url)
        .workflow("workload", workload)
        .workflow("square", square)
        .task("double", double)
        .dep(ran.clone())
        .check_replay(onward::ReplayCheck::Every)
}

/// Starts run `n` and sends its signals, some of them twice, however bad the network is.
pub async fn perform(client: &Onward, n: u64) {
    let id = format!("run-{n}");
    let run = insist(async || client.start::<u64, _>("workload", &n).id(&id).await).await;
    for signal in 0..SIGNALS {
        let signal_id = format!("{id}-{signal}");
        insist(async || run.signal("go", &signal).id(&signal_id).await).await;
        if signal % 2 == 0 {
            insist(async || run.signal("go", &signal).id(&signal_id).await).await;
        }
    }
}

/// Waits for run `n` and checks everything it left.
pub async fn check(site: &Site, client: &Onward, ran: &Ran, n: u64) {
    let id = format!("run-{n}");
    let signals: u64 = (0..SIGNALS).sum();
    assert_eq!(client.run::<u64>(&id).unwrap().result().await.unwrap(), n + 2 * n + signals + n * n + 1, "{id}");
    check_log(site, &id, ran, n, &["first", "last"]).await;
    check_log(site, &format!("child-{n}"), ran, n, &["square"]).await;
    assert!(ran.times(n, "double") >= 1, "the task of {id} ran");
    let log = site.log(&id).await;
    let mut received: Vec<String> = Vec::new();
    for event in log.iter().flat_map(|record| &record.events) {
        if let Event::SignalReceived(signal) = event {
            received.extend(signal.signal_id.clone());
        }
    }
    received.sort();
    let sent: Vec<String> = (0..SIGNALS).map(|signal| format!("{id}-{signal}")).collect();
    assert_eq!(received, sent, "no signal of {id} is lost or doubled");
}

async fn check_log(site: &Site, id: &str, ran: &Ran, n: u64, steps: &[&'static str]) {
    let log = site.log(id).await;
    let mut call_ids = BTreeSet::new();
    let mut names = Vec::new();
    for event in log.iter().flat_map(|record| &record.events) {
        if let Event::StepCompleted(step) = event {
            assert!(call_ids.insert(step.call_id.to_string()), "{id} has two results at {}", step.call_id);
            names.push(step.name.to_string());
        }
    }
    assert_eq!(names, steps, "the steps of {id}");
    for step in steps {
        assert!(ran.times(n, step) >= 1, "step {step} of {id} has a result and ran");
    }
    assert_eq!(site.head(id).await.unwrap().status, Status::Completed);
    Log::load(log).unwrap_or_else(|error| panic!("the log of {id}: {error}"));
}
