//! Raw limits of disk and store without an engine.

use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use onward_core::event::{RunStarted, StepCompleted};
use onward_core::run::{Commit, NewRun};
use onward_core::{CallId, CommitId, Epoch, Index, Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_store::{Store, SystemClock};
use onward_store_embedded::{EmbeddedStore, Options};

use crate::Plan;
use crate::machine::median;

/// Measures one write of 4 KiB with its sync, into a file that already has its size.
pub fn sync(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let mut file = std::fs::File::create(directory.path().join("sync"))?;
    let block = [7u8; 4096];
    for _ in 0..256 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for round in 0..if plan.quick { 300 } else { 2_000 } {
        file.seek(SeekFrom::Start(round % 256 * 4096))?;
        let start = Instant::now();
        file.write_all(&block)?;
        // SAFETY: the descriptor belongs to `file`, which is open.
        #[expect(unsafe_code, reason = "fdatasync has no safe wrapper for a file that keeps its size")]
        let failed = unsafe { libc::fdatasync(file.as_raw_fd()) };
        anyhow::ensure!(failed == 0, "fdatasync failed");
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    plan.report("raw.sync_ms.p50", median(times), "ms");
    Ok(())
}

/// Appends step results with 512 concurrent committers, each to its own run.
pub async fn appends(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let options = Options { clock: Arc::new(SystemClock), ..Options::default() };
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(directory.path(), options)?);
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let committers: Vec<_> =
        (0..512).map(|number| tokio::spawn(commits(store.clone(), number, stop.clone(), count.clone()))).collect();
    let warm_up = Duration::from_millis(300);
    tokio::time::sleep(warm_up).await;
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs(if plan.quick { 2 } else { 5 })).await;
    let done = count.load(Ordering::Relaxed) - before;
    let rate = done as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for committer in committers {
        committer.await??;
    }
    plan.report("raw.store_appends_per_s.c512", rate, "1/s");
    Ok(())
}

async fn commits(store: Arc<dyn Store>, number: u32, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Result<()> {
    let kind = Name::new("bench")?;
    for round in 0u64.. {
        let key = RunKey::new(Namespace::default(), RunId::new(format!("raw-{number}-{round}"))?);
        let started = RunStarted::new(kind.clone(), Payload::null(), 1);
        let run = NewRun { key: key.clone(), started, signal: None };
        let claimed = store.start_run(run, Some(WorkerId::new("bench")?)).await?.claimed;
        let epoch = claimed.map(|claimed| claimed.head.epoch).unwrap_or_default();
        let mut horizon = Index(0);
        for n in 0..100 {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            horizon = store.commit(step(&key, epoch, n, horizon)?).await?.index;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Returns the commit of one step with a result of 200 bytes.
pub fn step(key: &RunKey, epoch: Epoch, n: u64, horizon: Index) -> Result<Commit> {
    let step = StepCompleted {
        call_id: CallId::root(n as u32),
        name: Name::new("step")?,
        input_hash: None,
        output: Payload::json(&"x".repeat(198))?,
        attempt: 1,
        took_ms: 0,
        input: None,
    };
    Ok(Commit {
        key: key.clone(),
        generation: 0,
        epoch,
        n,
        commit_id: CommitId(n),
        horizon,
        events: vec![step.into()],
        waits: false,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    })
}
