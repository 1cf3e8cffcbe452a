//! Small starts of one tenant while another one starts runs with large inputs, over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Plan;
use crate::machine::percentile;
use crate::server::ServerProcess;

/// Size of the large inputs, and number of concurrent ones.
const LARGE_BYTES: usize = 10_000_000;
const LARGE_AT_A_TIME: usize = 4;
/// Number of clients that start small runs, and the pause of each between two.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);

pub async fn measure(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let server = ServerProcess::start(directory.path())?;
    let address = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let span = Duration::from_secs(if plan.quick { 5 } else { 15 });
    let alone = small_starts(&address, span).await?;
    plan.report("large.small_start_ms.alone.p50", percentile(&alone, 0.5), "ms");
    plan.report("large.small_start_ms.alone.p99", percentile(&alone, 0.99), "ms");
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let large: Vec<_> = (0..LARGE_AT_A_TIME)
        .map(|client| tokio::spawn(large_starts(address.clone(), client, over.clone(), count.clone())))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = count.load(Ordering::Relaxed);
    let beside = small_starts(&address, span).await?;
    let during = count.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    for client in large {
        client.await??;
    }
    plan.report("large.small_start_ms.beside_large.p50", percentile(&beside, 0.5), "ms");
    plan.report("large.small_start_ms.beside_large.p99", percentile(&beside, 0.99), "ms");
    plan.report("large.small_start_ms.beside_large.max", percentile(&beside, 1.0), "ms");
    plan.report("large.small_starts_per_s", beside.len() as f64 / span.as_secs_f64(), "1/s");
    plan.report("large.large_starts_per_s", during as f64 / span.as_secs_f64(), "1/s");
    Ok(())
}

/// Starts small runs for a while; returns the duration of each start in milliseconds.
async fn small_starts(address: &str, span: Duration) -> Result<Vec<f64>> {
    let until = Instant::now() + span;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let address = address.to_owned();
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(&address).await?;
                let mut times = Vec::new();
                while Instant::now() < until {
                    let begun = Instant::now();
                    post(&mut stream, "small", br#"{"kind": "nothing", "input": {"some": "input"}}"#).await?;
                    times.push(begun.elapsed().as_secs_f64() * 1_000.0);
                    tokio::time::sleep(PAUSE).await;
                }
                anyhow::Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    Ok(times)
}

async fn large_starts(address: String, client: usize, over: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Result<()> {
    let mut stream = TcpStream::connect(&address).await?;
    for number in 0u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        // Each one is different, since equal payloads are stored once.
        let item = format!(r#"{{"name": "item {client} {number}", "value": 12345}},"#);
        let items = item.repeat(LARGE_BYTES / item.len());
        let body = format!(r#"{{"kind": "nothing", "input": [{}]}}"#, items.trim_end_matches(','));
        post(&mut stream, "large", body.as_bytes()).await?;
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn post(stream: &mut TcpStream, namespace: &str, body: &[u8]) -> Result<()> {
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nOnward-Namespace: {namespace}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // In one write: a small body sent after its head would wait for a delayed acknowledgment.
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    let mut answer = Vec::new();
    let end = loop {
        if let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed the connection");
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    ensure!(head.starts_with("http/1.1 201"), "the server refused a start: {}", String::from_utf8_lossy(&answer));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("an answer has a length")?;
    let length: usize = length.trim().parse()?;
    while answer.len() < end + length {
        ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed the connection");
    }
    Ok(())
}
