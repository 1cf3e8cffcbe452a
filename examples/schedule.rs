//! A schedule: declared with the program, triggered, and backfilled for past days.
//!
//! `cargo run --example schedule`

use onward::prelude::*;
use onward::{Overlap, Schedule, Timestamp};
use serde_json::json;

#[derive(serde::Deserialize)]
struct Day {
    day: String,
}

const REPORT: Workflow<Day, String> = Workflow::new("report");

async fn report(ctx: Ctx, input: Day) -> Result<String> {
    ctx.step("count", async || Ok::<_, Failure>(format!("the orders of {}", input.day))).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?; // a real program keeps its directory
    let nightly = Schedule::cron("0 2 * * *")
        .zone("Europe/Berlin")
        .except_date("2026-12-24/2027-01-01")
        .overlap(Overlap::BufferOne)
        .of(&REPORT)
        .template(&json!({"day": "{{ slot.date }}"})); // rendered for each slot
    let builder = Onward::embedded(directory.path()).workflow(&REPORT, report);
    let onward = builder.schedule("nightly", nightly).start().await?; // stored now; an equal definition changes nothing
    let nightly = onward.schedule("nightly")?;

    // What the clock would have started, had the schedule existed.
    let time = |text| Timestamp::parse(text).expect("a constant time");
    nightly.backfill(time("2026-03-28T00:00:00Z"), time("2026-03-31T00:00:00Z")).await?;
    for slot in ["2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"] {
        let run = nightly.run_at::<String>(time(slot)); // 2:00 in Berlin; 3:00 on 29 March, which has no 2:00
        println!("{}: {}", run.id(), run.result().await?);
    }

    // One more, at once, whatever the clock.
    nightly.pause("holidays").await?;
    let triggered = nightly.trigger::<String>().id("by-hand").await?;
    triggered.run.result().await?;
    println!("triggered {}", triggered.run.id());

    let view = nightly.read().await?;
    println!("started {}, next: {:?}", view.totals.started, view.next); // none while it is paused
    println!("next after the holidays: {}", nightly.resume("").await?.next.len());
    onward.shutdown().await;
    Ok(())
}
