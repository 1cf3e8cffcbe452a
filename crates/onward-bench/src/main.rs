//! Measures Onward on this machine, with the raw limits of disk and store beside each figure.
//!
//! `--server` measures a server and one remote worker instead of the embedded engine, `--store postgres` the engine on a
//! temporary PostgreSQL cluster, `--agents` conversations with a scripted model, `--flows` a flow beside the same workflow in Rust,
//! `--queues` limits of queues and schedules that are due.
//! `--json` prints one line per figure, `{"name", "value", "unit"}`. `--quick` ends within a minute. `--only PREFIX` measures a
//! part.

mod agents;
mod flows;
mod large;
mod life;
mod live;
mod machine;
mod old;
mod postgres;
mod queues;
mod raw;
mod raw_postgres;
mod server;
mod steps;
mod suspended;
mod timers;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use onward_allocator as _;

/// The measurements to run, and their length.
#[derive(Clone, Default)]
pub struct Plan {
    pub quick: bool,
    json: bool,
    only: Option<String>,
    server: bool,
    agents: bool,
    flows: bool,
    queues: bool,
    /// On PostgreSQL instead of a directory.
    postgres: bool,
    directory: PathBuf,
}

impl Plan {
    /// Returns whether figures with this prefix are wanted.
    fn wants(&self, prefix: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only.starts_with(prefix) || prefix.starts_with(only))
    }

    /// Returns whether only figures with this prefix are wanted.
    pub fn wants_only(&self, prefix: &str) -> bool {
        self.only.as_deref().is_some_and(|only| only.starts_with(prefix))
    }

    /// Creates an empty directory on the measured disk.
    pub fn fresh(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(&self.directory)?)
    }

    pub fn report(&self, name: &str, value: f64, unit: &str) {
        if self.json {
            println!("{}", serde_json::json!({ "name": name, "value": round(value), "unit": unit }));
        } else {
            println!("{name:<34} {:>14} {unit}", round(value));
        }
    }
}

/// Rounds to three significant digits or whole numbers: more would be noise.
fn round(value: f64) -> f64 {
    if value.abs() >= 1_000.0 || value == 0.0 {
        return value.round();
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

fn main() -> Result<()> {
    let mut plan = Plan { directory: std::env::temp_dir(), ..Plan::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => plan.quick = true,
            "--json" => plan.json = true,
            "--server" => plan.server = true,
            "--agents" => plan.agents = true,
            "--flows" => plan.flows = true,
            "--queues" => plan.queues = true,
            "--model" => return start()?.block_on(agents::serve_model()),
            "--cold-agent" => {
                let [directory, url] = [arguments.next(), arguments.next()].map(Option::unwrap_or_default);
                return start()?.block_on(agents::cold(Path::new(&directory), &url));
            }
            "--store" => match arguments.next().as_deref() {
                Some("postgres") => plan.postgres = true,
                Some("embedded") => plan.postgres = false,
                _ => bail!("--store is `embedded` or `postgres`"),
            },
            "--only" => plan.only = arguments.next(),
            "--dir" => plan.directory = arguments.next().map(PathBuf::from).unwrap_or_default(),
            "--cold" => return life::cold(Path::new(&arguments.next().unwrap_or_default())),
            other => bail!(
                "unknown argument `{other}`; there are --quick, --json, --server, --agents, --flows, --queues, --store NAME, --only PREFIX and --dir DIRECTORY"
            ),
        }
    }
    start()?.block_on(measure(&plan))
}

fn start() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

async fn measure(plan: &Plan) -> Result<()> {
    if plan.server {
        if plan.wants("large") {
            large::measure(plan).await?;
        }
        if !plan.wants("server") {
            return Ok(());
        }
        raw::sync(plan)?;
        raw::appends(plan).await?;
        return server::measure(plan).await;
    }
    if plan.agents {
        raw::sync(plan)?;
        return agents::measure(plan).await;
    }
    if plan.flows {
        raw::sync(plan)?;
        return flows::measure(plan).await;
    }
    if plan.queues {
        raw::sync(plan)?;
        return queues::measure(plan).await;
    }
    if plan.postgres {
        raw::sync(plan)?;
        return postgres::measure(plan).await;
    }
    if plan.wants("raw") {
        raw::sync(plan)?;
        raw::appends(plan).await?;
    }
    if plan.wants("embedded") && !plan.wants_only("embedded.timers") {
        steps::measure(plan).await?;
        life::signal(plan).await?;
    }
    if plan.wants("embedded.timers") {
        timers::embedded(plan).await?;
    }
    if plan.wants("replay") {
        life::replay(plan)?;
    }
    if plan.wants("resume") {
        life::resume(plan).await?;
    }
    if plan.wants("wake_ms") {
        life::wake(plan).await?;
    }
    if plan.wants("suspended") {
        suspended::measure(plan).await?;
    }
    if plan.wants("cold_start_ms") || plan.wants("binary_mb") {
        life::cold_start(plan)?;
    }
    Ok(())
}
