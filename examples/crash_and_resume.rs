//! A process is killed with SIGKILL in the middle of its second step; the next process resumes the run.
//!
//! `cargo run --example crash-and-resume` starts itself twice over one directory and kills the first process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use onward::prelude::*;

const TRIP: Workflow<String, String> = Workflow::new("trip");

async fn trip(ctx: Ctx, city: String) -> Result<String> {
    let flight = ctx.step("flight", async || book("flight", &city, false).await).await?;
    let hotel = ctx.step_with("hotel", async |attempt: Attempt| {
        println!("key of the hotel booking: {}", attempt.idempotency_key());
        book("hotel", &city, true).await
    });
    let hotel = hotel.await?;
    let train = ctx.step("train", async || book("train", &city, false).await).await?;
    Ok(format!("{flight}, {hotel}, {train}"))
}

async fn book(what: &str, city: &str, slowly: bool) -> Result<String> {
    println!("booking a {what} to {city}");
    if slowly {
        tokio::time::sleep(Duration::from_millis(500)).await; // the first process dies here
    }
    Ok(format!("{what} to {city}"))
}

/// Opens the directory, starts or finds the run, and waits for its result; both processes do the same.
#[tokio::main]
async fn work(directory: &Path) -> anyhow::Result<()> {
    let onward = Onward::embedded(directory).workflow(&TRIP, trip).start().await?;
    let run = onward.start(&TRIP, "Lisbon").id("trip-7").await?;
    println!("result: {}", run.result().await?);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    if let Some(directory) = std::env::args_os().nth(1) {
        return work(Path::new(&directory));
    }
    let directory = tempfile::tempdir()?;
    for process in 1..=2 {
        let mut child = Command::new(std::env::current_exe()?).arg(directory.path()).stdout(Stdio::piped()).spawn()?;
        let Some(stdout) = child.stdout.take() else { anyhow::bail!("the process has no stdout") };
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            println!("process {process}: {line}");
            if process == 1 && line.starts_with("booking a hotel") {
                child.kill()?; // SIGKILL: no handler, no destructor
            }
        }
        println!("process {process} ended: {}", child.wait()?);
    }
    Ok(())
}
