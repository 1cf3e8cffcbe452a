//! `onward demo-worker`: the worker process that the demo kills, and the side effects of the order.
//!
//! It starts the order or continues it, and exits when the run has ended or waits for its approval. Each execution of a step
//! appends a line to a file, which the demo counts. The engine does not read it.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward::{Failure, Onward, RunHandle};
use onward_core::view::AwaitedKind;
use onward_core::{Index, Timestamp};

use super::order::{ORDER, Order, order, print_label};
use crate::args::Global;
use crate::error::INTERRUPTED;
use crate::output::time;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[arg(long)]
    run: String,
    /// Order as JSON
    #[arg(long)]
    order: String,
    #[arg(long)]
    unit_ms: u64,
    #[arg(long)]
    effects: PathBuf,
}

pub async fn work(args: WorkerArgs, global: &Global) -> Result<()> {
    end_with_parent();
    let input: Order = serde_json::from_str(&args.order).context("invalid order")?;
    let onward = Onward::embedded(global.directory())
        .dep(World { effects: args.effects, unit: Duration::from_millis(args.unit_ms) })
        .workflow(&ORDER, order)
        .task("print-label", print_label)
        .start()
        .await?;
    let run = onward.start(&ORDER, &input).id(args.run).await?;
    nothing_to_do(&run).await?;
    onward.shutdown().await;
    Ok(())
}

/// Ends this process when its parent has exited in any way: the parent holds the other end of stdin.
fn end_with_parent() {
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(i32::from(INTERRUPTED));
    });
}

async fn nothing_to_do(run: &RunHandle<String>) -> Result<()> {
    let mut log = run.attach(Index(0)).await?;
    while log.next().await?.is_some() {
        let view = run.view().await?;
        if view.awaits(AwaitedKind::Approval) {
            break;
        }
    }
    Ok(())
}

pub struct World {
    pub effects: PathBuf,
    /// Duration of one unit of work.
    pub unit: Duration,
}

/// An execution that was started.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    pub at: Timestamp,
    pub name: String,
    /// Its idempotency key.
    pub key: String,
}

impl World {
    pub async fn charge(&self, order: &Order, key: &str) -> Result<String, Failure> {
        self.act("charge", key, 1).await?;
        Ok(format!("paid {}.{:02}", order.cents / 100, order.cents % 100))
    }

    pub async fn reserve(&self, order: &Order, key: &str) -> Result<String, Failure> {
        self.act("reserve", key, 3).await?;
        Ok(format!("{} from shelf 7", order.item))
    }

    pub async fn print_label(&self, _shelf: &str, key: &str) -> Result<String, Failure> {
        self.act("print-label", key, 1).await?;
        Ok("label 1729".to_owned())
    }

    pub async fn refund(&self, payment: &str, key: &str) -> Result<String, Failure> {
        self.act("refund", key, 1).await?;
        Ok(format!("refunded what was {payment}"))
    }

    pub async fn ship(&self, label: &str, key: &str) -> Result<String, Failure> {
        self.act("ship", key, 1).await?;
        Ok(format!("shipped with {label}"))
    }

    /// Appends a line, then sleeps for the given units.
    async fn act(&self, name: &str, key: &str, units: u32) -> Result<(), Failure> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.effects)?;
        file.write_all(format!("{}\t{name}\t{key}\n", time::now().0).as_bytes())?;
        tokio::time::sleep(self.unit * units).await;
        Ok(())
    }
}

/// Reads all effects so far, in order. Ignores an incomplete last line.
pub fn read_effects(path: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Effect> {
    let mut parts = line.split('\t');
    let at = Timestamp(parts.next()?.parse().ok()?);
    Some(Effect { at, name: parts.next()?.to_owned(), key: parts.next()?.to_owned() })
}
