//! Output of tasks, read at another server than that of their worker, and over a network with cuts.

use std::sync::Arc;
use std::time::Duration;

use onward::prelude::*;
use onward::stream::{StreamContent, StreamFrame};
use onward::{Onward, RetryPolicy, RunHandle, TaskCtx};
use onward_testkit::Cluster;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::site::{DEADLINE, Site};

const WORDS: u32 = 60;

async fn call_answer(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.task("answer", &()).retry(RetryPolicy::attempts(3)).await
}

/// Streams as many words as the gate allows, and ends when the gate allows more than there are.
fn answer(gate: watch::Receiver<u32>) -> impl Fn(TaskCtx, ()) -> std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send>> {
    move |ctx, ()| {
        let mut gate = gate.clone();
        Box::pin(async move {
            for n in 0..WORDS {
                drop(gate.wait_for(|open| *open > n).await);
                ctx.stream(&json!({"type": "text", "text": format!("{n} ")}));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            drop(gate.wait_for(|open| *open > WORDS).await);
            Ok(WORDS)
        })
    }
}

/// Returns what a screen shows when the run is closed; counts the words on it meanwhile.
async fn shown(run: Arc<RunHandle<u32>>, received: watch::Sender<u32>) -> (String, Vec<&'static str>) {
    let (mut text, mut seen, mut stream) = (String::new(), Vec::new(), run.stream(None));
    while let Some(StreamFrame { content, .. }) = stream.next().await.unwrap() {
        match content {
            StreamContent::TaskFrame(task_frame) => {
                text.push_str(task_frame.frame.read::<Value>().unwrap()["text"].as_str().unwrap());
                seen.push("spoken");
                received.send_replace(u32::try_from(text.split_whitespace().count()).unwrap());
            }
            StreamContent::AttemptReset(_) | StreamContent::StreamReset(_) => {
                text.clear();
                seen.push("reset");
            }
            StreamContent::TaskEnd(_) => seen.push("task_end"),
            StreamContent::End(_) => seen.push("end"),
            _ => seen.push("other"),
        }
    }
    (text, seen)
}

/// Waits until all readers have so many words.
async fn until_received(readers: &mut [watch::Receiver<u32>], words: u32) {
    for reader in readers {
        tokio::time::timeout(DEADLINE, reader.wait_for(|received| *received >= words)).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_at_another_server_gets_the_answer_from_its_first_word() {
    let database = Cluster::shared().database(None).unwrap();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    let third = Site::on(vec![database.url()]).await;
    let (gate, open) = watch::channel(0);
    let worker = Onward::connect(there.url()).workflow("ask", call_answer).task("answer", answer(open));
    let _worker = worker.start().await.unwrap();
    let client = Onward::connect(here.url()).start().await.unwrap();
    let run: Arc<RunHandle<u32>> = Arc::new(client.start("ask", &()).id("r").await.unwrap());
    // The first reader begins after half of the output; others begin later, elsewhere and at the worker's own server.
    gate.send_replace(WORDS / 2);
    let (received, first_received) = watch::channel(0);
    let first = tokio::spawn(shown(run.clone(), received));
    let mut readers = vec![first_received];
    until_received(&mut readers, 1).await;
    gate.send_replace(WORDS / 4 * 3);
    let mut others = Vec::new();
    for url in [there.url(), third.url()] {
        let client = Onward::connect(&url).start().await.unwrap();
        let run = Arc::new(client.run::<u32>("r").unwrap());
        let (received, other_received) = watch::channel(0);
        others.push((client, tokio::spawn(shown(run, received))));
        readers.push(other_received);
    }
    until_received(&mut readers, 1).await;
    gate.send_replace(WORDS);
    // The end is read from the log and may overtake words that another server forwards: those are dropped (SB3).
    until_received(&mut readers, WORDS).await;
    gate.send_replace(WORDS + 1);
    assert_eq!(run.result().await.unwrap(), WORDS);
    let whole: String = (0..WORDS).map(|n| format!("{n} ")).collect();
    for reader in [first].into_iter().chain(others.into_iter().map(|(_, reader)| reader)) {
        let (text, seen) = tokio::time::timeout(DEADLINE, reader).await.unwrap().unwrap();
        assert_eq!(text, whole, "{seen:?}");
        assert_eq!(seen.iter().filter(|seen| **seen == "reset").count(), 1, "{seen:?}");
        assert_eq!(seen[seen.len() - 2..], ["task_end", "end"], "{seen:?}");
    }
}
