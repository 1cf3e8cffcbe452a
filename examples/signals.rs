//! Signals: a mailbox per run. Wait for one, poll for one, or let the first of several win.
//!
//! `cargo run --example signals`

use onward::Attached;
use onward::prelude::*;

const WRITE: Workflow<String, Vec<String>> = Workflow::new("write");
const STEER: Signal<String> = Signal::new("steer");
const REVIEW: Signal<String> = Signal::new("review");

async fn write(ctx: Ctx, mut topic: String) -> Result<Vec<String>> {
    let mut book = Vec::new();
    loop {
        // Steering: a poll of the mailbox. Its result is recorded before the next step starts, so a replay gets the same.
        for wish in ctx.signal(&STEER).drain()? {
            topic = wish;
        }
        let chapter = ctx.step("write", async || write_chapter(book.len() + 1, &topic).await).await?;
        book.push(chapter);
        ctx.state().set("chapters", &book.len())?; // callers can read it while the run waits

        // The lower index in the log wins, now and on every replay.
        let go_on = onward::select! {
            review = ctx.signal(&REVIEW).recv() => review? != "done",
            _ = ctx.sleep(mins(10)) => false,
        };
        if !go_on {
            return Ok(book);
        }
    }
}

async fn write_chapter(number: usize, topic: &str) -> Result<String> {
    println!("writing chapter {number} about {topic}");
    Ok(format!("{number}. {topic}"))
}

/// Follows the log until the run waits for a signal.
async fn wait(log: &mut Attached) -> anyhow::Result<()> {
    while let Some(record) = log.next().await? {
        if record.events.iter().any(|event| event.name() == "signal_awaited") {
            return Ok(());
        }
    }
    anyhow::bail!("the run has ended")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let onward = Onward::embedded(directory.path()).workflow(&WRITE, write).start().await?;

    // Sent with the start, in one write: it is in the mailbox before the code runs.
    let run = onward.start(&WRITE, "cats").id("book").signal(&STEER, "dogs").await?;
    let mut log = run.attach(Default::default()).await?;
    wait(&mut log).await?;
    run.signal(&STEER, "birds").await?;
    run.signal(&REVIEW, "more").await?;
    wait(&mut log).await?;
    // A repeat with the same id is the same signal: a webhook may be delivered twice.
    let first = run.signal(&REVIEW, "done").id("webhook-1").await?;
    let again = run.signal(&REVIEW, "done").id("webhook-1").await?;
    println!("same index: {}, repeated: {}", first.index == again.index, again.repeated);

    println!("book: {:?}", run.result().await?);
    let view = run.view().await?;
    println!("chapters: {:?}, signals left: {}", view.state.values().next(), view.undelivered.len());
    onward.shutdown().await;
    Ok(())
}
