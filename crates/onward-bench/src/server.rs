//! A server and one remote worker: two processes, every write synced before it is acknowledged.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onward::prelude::*;

use crate::machine::{cpu_of, median, resident_of};
use crate::{Plan, life, live, steps};

/// Time for which an idle server is observed.
const IDLE: Duration = Duration::from_secs(5);

/// `onward dev` or `onward server`, killed on drop.
pub struct ServerProcess {
    process: Child,
    url: String,
    ready_ms: f64,
}

impl ServerProcess {
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn start(data: &Path) -> Result<ServerProcess> {
        ServerProcess::run(&["dev", "--port", "0", "--data", &data.to_string_lossy()])
    }

    /// Starts `onward server` on a store.
    pub fn on_store(store: &str) -> Result<ServerProcess> {
        ServerProcess::run(&["server", "--listen", "127.0.0.1:0", "--store", store])
    }

    fn run(arguments: &[&str]) -> Result<ServerProcess> {
        let binary = std::env::current_exe()?.with_file_name("onward");
        let begun = Instant::now();
        let mut process = Command::new(&binary)
            .arg("--json")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} cannot be started; build it with --release first", binary.display()))?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("it has an output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let ready_ms = begun.elapsed().as_secs_f64() * 1_000.0;
        let printed: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("unexpected output of the server: {line:?}"))?;
        let url = printed["url"].as_str().context("the server printed no URL")?.to_owned();
        Ok(ServerProcess { process, url, ready_ms })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub async fn measure(plan: &Plan) -> Result<()> {
    if plan.wants_only("server.live") {
        live::visible(plan).await?;
        return live::readers(plan).await;
    }
    let mut ready = Vec::new();
    for _ in 0..if plan.quick { 3 } else { 11 } {
        ready.push(ServerProcess::start(plan.fresh()?.path())?.ready_ms);
    }
    plan.report("server.ready_ms", median(ready), "ms");
    for concurrency in [64, 512] {
        let directory = plan.fresh()?;
        let server = ServerProcess::start(directory.path())?;
        let onward = steps::with_ten_steps(Onward::connect(&server.url)).start().await?;
        let measured = steps::load(plan, &onward, concurrency, Some(server.process.id())).await?;
        plan.report(&format!("server.steps_per_s.c{concurrency}"), measured.steps_per_s, "1/s");
        plan.report(&format!("server.cpu_us_per_step.c{concurrency}"), measured.other_cpu_us_per_step, "us");
        plan.report(&format!("server.worker_cpu_us_per_step.c{concurrency}"), measured.cpu_us_per_step, "us");
        onward.shutdown().await;
    }
    let directory = plan.fresh()?;
    let server = ServerProcess::start(directory.path())?;
    let rounds = if plan.quick { 200 } else { 1_000 };
    plan.report("server.signal_ms.p50", life::pokes(Onward::connect(&server.url), 0, rounds).await?, "ms");
    live::visible(plan).await?;
    live::readers(plan).await?;
    idle(plan).await
}

async fn idle(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let server = ServerProcess::start(directory.path())?;
    let process = server.process.id();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_of(process);
    tokio::time::sleep(IDLE).await;
    let spent = (cpu_of(process) - before).as_secs_f64() * 1_000.0 / IDLE.as_secs_f64();
    plan.report("server.idle_rss_mb", resident_of(process) as f64 / (1_024.0 * 1_024.0), "MB");
    plan.report("server.idle_cpu_ms_per_s", spent, "ms/s");
    Ok(())
}
