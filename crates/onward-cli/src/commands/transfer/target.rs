//! The target of an import: a directory, databases, or a server in batches that it accepts.

use anyhow::{Context, Result};
use onward::HttpClient;
use onward_core::api::RefusedRun;
use onward_core::transfer::{self, ExportedRun, FlowRef};
use onward_core::{ErrorCode, Namespace, RunId};
use onward_runtime::{Runtime, check_flows};
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::connection::Endpoint;
use crate::directory;

/// Maximum number of runs per batch; messages among them are delivered after the batch.
const RUNS_MAX: usize = 10_000;

/// Maximum size of a batch in bytes, unless one run is larger.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Result of an import.
#[derive(Default, Serialize, Deserialize)]
pub struct ImportResult {
    pub created: Vec<RunId>,
    pub unchanged: Vec<RunId>,
    pub refused: Vec<RefusedRun>,
    /// Definitions of flows that were stored.
    #[serde(default)]
    pub flows: Vec<FlowRef>,
}

/// The target; opened with the first runs, so that an invalid file creates nothing.
enum TargetApi {
    Unopened(Endpoint),
    Store(Runtime),
    Server(Box<HttpClient>),
}

pub struct ImportTarget {
    namespace: Namespace,
    client: TargetApi,
    batch: Vec<ExportedRun>,
    bytes: usize,
    taken: ImportResult,
}

impl ImportTarget {
    /// Creates a target for the opened store, or for the directory or server of the global options.
    pub async fn new(global: &Global, opened: Option<Runtime>) -> Result<ImportTarget> {
        let (client, namespace) = match opened {
            Some(runtime) => (TargetApi::Store(runtime), global.namespace()?),
            None => {
                let endpoint = Endpoint::of(global)?;
                let namespace = endpoint.namespace(global).await?;
                (TargetApi::Unopened(endpoint), namespace)
            }
        };
        Ok(ImportTarget { namespace, client, batch: Vec::new(), bytes: 0, taken: ImportResult::default() })
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Adds a run whose lines have `bytes` bytes.
    pub async fn add(&mut self, run: ExportedRun, bytes: usize) -> Result<()> {
        if self.batch.len() == RUNS_MAX || self.bytes + bytes > BYTES_MAX {
            self.flush().await?;
        }
        self.batch.push(run);
        self.bytes += bytes;
        Ok(())
    }

    pub async fn finish(mut self) -> Result<ImportResult> {
        self.flush().await?;
        Ok(self.taken)
    }

    async fn flush(&mut self) -> Result<()> {
        check_flows(&self.batch).await?;
        if let TargetApi::Unopened(endpoint) = &self.client {
            self.client = match endpoint {
                Endpoint::Directory(path) => TargetApi::Store(directory::open_or_make(path)?),
                Endpoint::Server { url, key } => {
                    TargetApi::Server(Box::new(onward::connect_http(url, Some(&self.namespace), key.as_deref())?))
                }
            };
        }
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        match &self.client {
            _ if batch.is_empty() => {}
            TargetApi::Store(runtime) => {
                let imported = runtime.import_runs(batch).await?;
                let refused = imported.refused.into_iter().map(|(run, code)| RefusedRun { run, code: code.to_owned() });
                self.taken.add(ImportResult {
                    created: imported.created,
                    unchanged: imported.unchanged,
                    refused: refused.collect(),
                    flows: imported.flows,
                });
            }
            TargetApi::Server(http) => self.taken.add(post(http, batch).await?),
            TargetApi::Unopened(_) => unreachable!("it was opened above"),
        }
        Ok(())
    }
}

impl ImportResult {
    fn add(&mut self, more: ImportResult) {
        self.created.extend(more.created);
        self.unchanged.extend(more.unchanged);
        self.refused.extend(more.refused);
        self.flows.extend(more.flows);
    }
}

/// Sends runs. Halves a batch that is too large for the server; a single run that is too large counts as refused.
async fn post(http: &HttpClient, runs: Vec<ExportedRun>) -> Result<ImportResult> {
    let (mut taken, mut pieces) = (ImportResult::default(), vec![runs]);
    while let Some(mut piece) = pieces.pop() {
        let body = ("application/x-ndjson", transfer::write(&piece));
        let answer = http.request_with("POST", "/v1/import", Some(body)).await?;
        match answer.status {
            413 if piece.len() > 1 => {
                let rest = piece.split_off(piece.len() / 2);
                pieces.extend([rest, piece]); // `pop` takes the first half next
            }
            413 => taken.refused.push(RefusedRun { run: piece.remove(0).key.id, code: ErrorCode::BodyTooLarge.into() }),
            status if status >= 400 => return Err(answer.problem().await.into()),
            _ => {
                let text = answer.text().await?;
                taken
                    .add(serde_json::from_str(&text).context("the server sent an unexpected response; is it an Onward server?")?);
            }
        }
    }
    Ok(taken)
}
