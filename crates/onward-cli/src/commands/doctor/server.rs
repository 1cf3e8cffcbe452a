//! Checks of a server: reachability, readiness, version, key, clock and workers.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use onward::HttpClient;
use onward_core::api::{RunQuery, WorkerInfo};

use super::finding::Findings;
use super::work;
use crate::args::Global;
use crate::connection::Connection;
use crate::output::{count, time};

/// Tolerated clock difference; the Date header has whole seconds.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(3);

pub async fn check(url: &str, key: Option<&str>, global: &Global, findings: &mut Findings) -> Result<()> {
    let http = match onward::connect_http(url, global.named_namespace()?.as_ref(), key) {
        Ok(http) => http,
        Err(error) => {
            findings.fail_with("server", &error.into());
            return Ok(());
        }
    };
    if !reachable(url, &http, findings).await {
        return Ok(());
    }
    ready(&http, findings).await;
    version(&http, findings).await;
    let connection = Connection::to_read(global).await?;
    // A database that is down must not fail the check of the key; `ready` reports it.
    let namespace = connection.namespace.clone();
    let reply = connection.list_runs(RunQuery { namespace, limit: 1, partly: true, ..RunQuery::default() }).await;
    match reply {
        Ok(_) if key.is_some() => findings.ok("key", format!("accepted for namespace {}", connection.namespace)),
        Ok(_) => findings.ok("key", "none, and the server requires none"),
        Err(error) => {
            findings.fail_with("key", &error.into());
            return Ok(());
        }
    }
    let workers = workers(&connection, findings).await;
    work::check(&connection, workers.as_deref(), findings).await;
    Ok(())
}

/// Lists the connected workers; `None` after an error.
async fn workers(connection: &Connection, findings: &mut Findings) -> Option<Vec<WorkerInfo>> {
    let workers = match connection.list_workers(connection.namespace.clone()).await {
        Ok(reply) => reply.workers,
        Err(error) => {
            findings.fail_with("workers", &error.into());
            return None;
        }
    };
    match workers.len() as u64 {
        0 => {
            findings.warn("workers", format!("none in namespace {}", connection.namespace), "start a worker with ONWARD_URL set")
        }
        number => {
            let runs: u64 = workers.iter().map(|worker| worker.runs).sum();
            findings.ok("workers", format!("{}, holding {}", count(number, "worker"), count(runs, "run")));
        }
    }
    Some(workers)
}

async fn reachable(url: &str, http: &HttpClient, findings: &mut Findings) -> bool {
    let begun = Instant::now();
    match http.request("GET", "/healthz", None).await {
        Ok(answer) if answer.status == 200 => {
            findings.ok("server", format!("{url} responded in {}", time::span(begun.elapsed())));
            clock(answer.headers.get("date").and_then(|date| date.to_str().ok()), findings);
            true
        }
        Ok(answer) => {
            let advice = "check that the URL is that of an Onward server";
            findings.fail("server", format!("{url} returned status {} for /healthz", answer.status), advice);
            false
        }
        Err(error) => {
            findings.fail_with("server", &error.into());
            false
        }
    }
}

fn clock(date: Option<&str>, findings: &mut Findings) {
    let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else { return };
    let ours = SystemTime::now();
    let off = ours.duration_since(theirs).unwrap_or_else(|error| error.duration());
    if off <= CLOCK_OFF_MAX {
        findings.ok("clock", "the clocks of server and client agree");
    } else {
        let detail = format!("the clocks of server and client differ by {}", time::span(off));
        findings.warn(
            "clock",
            detail,
            "use NTP: timers follow one clock, the server's for a directory and the database's for PostgreSQL",
        );
    }
}

async fn ready(http: &HttpClient, findings: &mut Findings) {
    match http.request("GET", "/readyz", None).await {
        Ok(answer) if answer.status == 200 => {
            let text = answer.text().await.unwrap_or_default();
            let down: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("degraded: ")).collect();
            if down.is_empty() {
                return findings.ok("ready", "the store accepts writes");
            }
            let advice = "restore the database: until then its runs are blocked and missing from lists";
            down.iter().for_each(|line| findings.warn("ready", *line, advice));
        }
        Ok(answer) => {
            let text = answer.text().await.unwrap_or_default();
            let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let detail = problem["detail"].as_str().unwrap_or("no details").to_owned();
            findings.fail("ready", detail, "see the log of the server");
        }
        Err(error) => findings.fail_with("ready", &error.into()),
    }
}

async fn version(http: &HttpClient, findings: &mut Findings) {
    let text = match http.request("GET", "/openapi.json", None).await {
        Ok(answer) => answer.text().await.unwrap_or_default(),
        Err(error) => return findings.fail_with("version", &error.into()),
    };
    let document: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let ours = env!("CARGO_PKG_VERSION");
    match document["info"]["version"].as_str() {
        Some(theirs) if theirs == ours => findings.ok("version", format!("{theirs}, same as this program")),
        Some(theirs) => {
            let detail = format!("server {theirs}, this program {ours}");
            findings.warn("version", detail, "use the same version of both");
        }
        None => findings.warn("version", "the server reports none", "check that it is an Onward server"),
    }
}

#[cfg(test)]
mod tests;
