//! F25: long logs, deep trees, wide fans and large payloads over a server. Their costs are measured in the `sizes` tests.

use onward::Onward;
use onward::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::{DEADLINE, Site, eventually};

/// Size of a large payload: unexpected limits of libraries are often at four megabytes.
const LARGE: usize = 5_000_000;

async fn long(ctx: Ctx, steps: u32) -> Result<u32> {
    let mut sum = 0;
    for n in 0..steps {
        sum += ctx.step("one", async || Ok::<_, Failure>(n % 2)).await?;
    }
    ctx.signal("end").recv::<()>().await?;
    Ok(sum)
}

async fn deep(ctx: Ctx, depth: u32) -> Result<u32> {
    match depth {
        0 => Ok(0),
        _ => Ok(ctx.child::<u32>("deep", &(depth - 1)).await? + 1),
    }
}

async fn wide(ctx: Ctx, tasks: u32) -> Result<u32> {
    Ok(join_all((0..tasks).map(|n| ctx.task::<u32>("same", &n))).await?.into_iter().sum())
}

fn worker(url: &str) -> onward::Builder {
    let same = async |n: u32| Ok::<_, Failure>(n);
    Onward::connect(url).workflow("long", long).workflow("deep", deep).workflow("wide", wide).task("same", same)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_is_made_and_replayed_over_a_server() {
    let site = Site::directory().await;
    let url = format!("http://{}", site.address);
    let steps = 2_000;
    let first = worker(&url).start().await.unwrap();
    let run = first.start::<u32, _>("long", &steps).id("r").await.unwrap();
    let waits = |view: &onward::RunView| view.head.status == onward::Status::Waiting;
    tokio::time::timeout(DEADLINE, run.until(waits)).await.expect("it gets there").unwrap();
    drop(run);
    first.shutdown().await;
    let second = worker(&url).start().await.unwrap();
    let run = second.run::<u32>("r").unwrap();
    run.signal("end", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), steps / 2);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_tree_and_a_wide_fan_come_to_their_ends() {
    let site = Site::memory().await;
    let worker = worker(&format!("http://{}", site.address)).start().await.unwrap();
    let deep = worker.start::<u32, _>("deep", &300).id("d").await.unwrap();
    let wide = worker.start::<u32, _>("wide", &3_000).id("w").await.unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, deep.result()).await.expect("the tree ends").unwrap(), 300);
    assert_eq!(tokio::time::timeout(DEADLINE, wide.result()).await.expect("the fan ends").unwrap(), 2_999 * 1_500);
}

/// Returns a large text that differs for each name.
fn load(name: &str) -> String {
    name.repeat(LARGE / name.len() + 1)[..LARGE].to_owned()
}

/// Receives a large payload in every possible way, and ends with one.
async fn heavy(ctx: Ctx, input: String) -> Result<String> {
    let made: String = ctx.step("make", async || Ok::<_, Failure>(load("made "))).await?;
    let back: String = ctx.task("back", &input).await?;
    let sent: String = ctx.signal("text").recv().await?;
    let born: String = ctx.child("born", &sent).await?;
    let are_whole = [("made ", made), ("input ", back), ("sent ", sent), ("born ", born)].map(|(name, got)| got == load(name));
    if are_whole == [true; 4] { Ok(load("done ")) } else { Err(Failure::fatal(format!("{are_whole:?}"))) }
}

async fn born(ctx: Ctx, sent: String) -> Result<String> {
    let word: String = ctx.signal("word").recv().await?;
    if sent == load("sent ") && word == load("word ") { Ok(load("born ")) } else { Err(Failure::fatal("something is missing")) }
}

async fn porter(url: &str) -> Onward {
    let back = async |input: String| Ok::<_, Failure>(input);
    Onward::connect(url).workflow("heavy", heavy).workflow("born", born).task("back", back).start().await.unwrap()
}

/// Sends one HTTP request; the response must be a success.
async fn request(site: &Site, method: &str, path: &str, body: &Value) -> Value {
    let (address, body) = (site.address, if body.is_null() { String::new() } else { body.to_string() });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.split(' ').nth(1).is_some_and(|status| status.starts_with('2')), "{head}\n{}", &body[..body.len().min(500)]);
    serde_json::from_str(body).unwrap_or_default()
}

/// Scenario 55: every payload is larger than four megabytes, and comes through another API; the worker that continues is not the
/// first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_five_megabytes_pass_every_api_and_are_replayed() {
    let site = Site::directory().await;
    let worker = porter(&site.url()).await;
    request(&site, "POST", "/v1/runs", &json!({ "kind": "heavy", "id": "h", "input": load("input ") })).await;
    site.until_logged("h", "signal_awaited", 1).await;
    worker.shutdown().await;
    let worker = porter(&site.url()).await;
    worker.run::<String>("h").unwrap().signal("text", &load("sent ")).await.unwrap();
    site.until_logged("h", "child_started", 1).await;
    let child = site.log("h").await.into_iter().flat_map(|record| record.events).find_map(|event| match event {
        onward::Event::ChildStarted(event) => Some(event.child),
        _ => None,
    });
    let child = child.unwrap().to_string();
    eventually("the child is there", async || site.head(&child).await).await;
    site.until_logged(&child, "signal_awaited", 1).await;
    worker.shutdown().await;
    let path = format!("/v1/runs/{}/signals", child.replace('/', "%2F"));
    request(&site, "POST", &path, &json!({ "name": "word", "payload": load("word ") })).await;
    let worker = porter(&site.url()).await;
    let run = worker.run::<String>("h").unwrap();
    let result = tokio::time::timeout(DEADLINE, run.result()).await.expect("it ends").unwrap();
    assert!(result == load("done "));
    let response = request(&site, "GET", "/v1/runs/h/result", &Value::Null).await;
    assert!(response.to_string().contains(&result), "the other API returns the same");
    worker.shutdown().await;
}
