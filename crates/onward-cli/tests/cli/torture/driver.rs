//! The client of the torture worker: starts the runs, signals them, decides their approvals, and waits for them.
//!
//! Each process repeats all requests with the same ids, like a client that does not know the outcome of its requests.

use std::time::Duration;

use anyhow::{Result, bail};
use onward::{Decide, Onward, RunHandle};
use onward_runtime::CallRef;

use super::load::Load;
use super::side::Side;

/// Number of parts of a load; each returns the run's number.
const PARTS: u64 = 13;

/// Polling interval of open approvals.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

pub async fn drive(onward: &Onward, side: &Side, runs: u64, large: usize) -> Result<()> {
    let mut handles = Vec::new();
    for n in 1..=runs {
        handles.push((n, start(onward, side, n, large).await?));
    }
    tokio::select! {
        done = wait_for_all(handles) => done,
        failed = decide_all(onward, side) => failed,
    }
}

async fn start(onward: &Onward, side: &Side, n: u64, large: usize) -> Result<RunHandle<u64>> {
    let id = format!("load-{n}");
    let run: RunHandle<u64> = onward.start("load", &Load { n, large }).id(&id).await?;
    side.ack("start", &id)?;
    let (run_too, side, delay) = (run.clone(), side.clone(), Duration::from_millis(n * 37 % 160));
    tokio::spawn(async move {
        // The delay varies, so that the signal arrives before some mailbox polls and after others.
        tokio::time::sleep(delay).await;
        if run_too.signal("outside", &n).id("outside-1").await.is_ok() {
            drop(side.ack("signal", run_too.id()));
        }
    });
    Ok(run)
}

async fn wait_for_all(runs: Vec<(u64, RunHandle<u64>)>) -> Result<()> {
    for (n, run) in runs {
        let result = run.result().await?;
        if result != n * PARTS {
            bail!("run {} returned {result} instead of {}", run.id(), n * PARTS);
        }
    }
    Ok(())
}

async fn decide_all(onward: &Onward, side: &Side) -> Result<()> {
    loop {
        for wait in onward.list_approvals().await? {
            let decide =
                Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "torture".to_owned() };
            onward.decide_approval(&CallRef::from(&wait).to_string(), decide).await?;
            side.ack("decide", wait.run.id.as_str())?;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
