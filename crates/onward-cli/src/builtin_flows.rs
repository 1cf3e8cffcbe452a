//! The built-in worker of flows: runs the definitions that the store has, and stores the documents of a directory.
//!
//! A changed definition replaces the worker: the new one starts before the old one stops, and versions stay registered while
//! open runs need them. Must never store a document that has errors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use onward::{Builder, Onward};
use onward_core::api::{FlowVersion, PutFlowRequest};
use onward_core::{ErrorCode, Name, Namespace};
use onward_flow::document::{self, Flow};
use onward_flow::machine::Plan;
use onward_runtime::{Runtime, RuntimeError};
use onward_server::trace::{Level, Trace};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::error::Mistake;

/// Interval between two reads of the definitions, and of the directory.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest time for which a replaced worker executes the steps that it has begun.
const DRAIN_MAX: Duration = Duration::from_secs(600);

/// The time for running steps when the server stops.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The settings of flows.
#[derive(Debug, Clone, Default)]
pub struct FlowSettings {
    /// A directory whose documents are stored when they change.
    pub folder: Option<PathBuf>,
    http: Vec<String>,
    documents: Option<PathBuf>,
    model: Option<String>,
    namespaces: Vec<Namespace>,
}

impl FlowSettings {
    /// Reads the settings; `folder` is an option of the command line.
    pub fn open(config: &Config, folder: Option<PathBuf>, namespaces: Vec<Namespace>) -> Result<FlowSettings, Mistake> {
        let folder = folder.or_else(|| config.text("flows.dir").map(PathBuf::from));
        if let Some(folder) = folder.as_deref().filter(|folder| !folder.is_dir()) {
            let message = format!("{} is not a directory", folder.display());
            return Err(Mistake::usage(ErrorCode::ConfigInvalid, message, "name a directory with flows (*.yaml, *.yml, *.json)"));
        }
        let http = config.text("flows.http").unwrap_or_default();
        let http = http.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let documents = config.text("flows.documents").map(PathBuf::from);
        if documents.is_some() && namespaces.len() > 1 {
            let message = "`flows.documents` is one directory, which the flows of several namespaces would share".to_owned();
            let hint = "set `server.namespaces` to one namespace, or omit `flows.documents`";
            return Err(Mistake::usage(ErrorCode::ConfigInvalid, message, hint)); // S6
        }
        Ok(FlowSettings { folder, http, documents, model: config.text("flows.model"), namespaces })
    }

    /// Sets what the actions of flows may use, and the default model.
    pub fn equip(&self, builder: Builder) -> Builder {
        let builder = builder.flow_http(&self.http);
        let builder = self.documents.iter().fold(builder, Builder::flow_documents);
        self.model.iter().fold(builder, |builder, model| builder.flow_model(model))
    }
}

/// The tasks that run flows, until they are stopped.
#[derive(Default)]
pub struct FlowWorkers {
    tasks: Vec<JoinHandle<()>>,
    stopping: watch::Sender<bool>,
}

impl FlowWorkers {
    /// Starts a task for each namespace, and one for the directory, whose documents are stored in the first namespace.
    pub fn start(settings: FlowSettings, runtime: &Runtime, trace: &Trace) -> FlowWorkers {
        let (settings, mut workers) = (Arc::new(settings), FlowWorkers::default());
        if let (Some(folder), Some(namespace)) = (settings.folder.clone(), settings.namespaces.first().cloned()) {
            let folder = FlowFolder { folder, namespace, seen: BTreeMap::new() };
            let (runtime, trace, stopping) = (runtime.clone(), trace.clone(), workers.stopping.subscribe());
            workers.tasks.push(tokio::spawn(folder.follow(runtime, trace, stopping)));
        }
        for namespace in &settings.namespaces {
            let (settings, namespace, trace) = (settings.clone(), namespace.clone(), trace.clone());
            let worker = NamespaceWorker {
                settings,
                namespace,
                trace,
                running: None,
                draining: JoinSet::new(),
                current: Vec::new(),
                known: BTreeSet::new(),
            };
            workers.tasks.push(tokio::spawn(worker.follow(runtime.clone(), workers.stopping.subscribe())));
        }
        workers
    }

    /// Shuts the workers down and releases their runs.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        for task in self.tasks {
            drop(task.await);
        }
    }
}

/// Waits for the next interval; returns false if the workers stop.
async fn next(stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(INTERVAL) => true,
        _ = stopping.wait_for(|stopping| *stopping) => false,
    }
}

type Key = (Name, Name);

/// Runs the flows of one namespace.
struct NamespaceWorker {
    settings: Arc<FlowSettings>,
    namespace: Namespace,
    trace: Trace,
    running: Option<Onward>,
    /// Replaced workers whose steps are still running.
    draining: JoinSet<()>,
    /// The current versions with which the worker runs.
    current: Vec<Key>,
    /// All versions that it has.
    known: BTreeSet<Key>,
}

impl NamespaceWorker {
    async fn follow(mut self, runtime: Runtime, mut stopping: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.update(&runtime).await {
                self.trace.log(Level::Warn, "flows cannot be updated", &[("why", &format!("{error:#}"))]);
            }
            if !next(&mut stopping).await {
                break;
            }
        }
        self.draining.spawn(async move {
            if let Some(worker) = self.running {
                worker.shutdown().await;
            }
        });
        // The rest is interrupted, as if the process had ended.
        drop(tokio::time::timeout(STOP_MAX, self.draining.join_all()).await);
    }

    /// Replaces the worker if a version is missing or another one is current.
    async fn update(&mut self, runtime: &Runtime) -> Result<()> {
        let needed = runtime.needed_flows(&self.namespace).await?;
        let key = |flow: &FlowVersion| (flow.flow.clone(), flow.version.clone());
        let current: Vec<Key> = needed.iter().filter(|flow| flow.is_current).map(key).collect();
        if current == self.current && needed.iter().all(|flow| self.known.contains(&key(flow))) {
            return Ok(());
        }
        let known = needed.iter().map(key).collect();
        let started = match needed.is_empty() {
            true => None,
            false => Some(self.builder(runtime, &needed).start().await?),
        };
        (self.current, self.known) = (current, known);
        if let Some(old) = std::mem::replace(&mut self.running, started) {
            // It claims nothing more, and its steps end as they began.
            self.draining.spawn(old.shutdown());
        }
        while self.draining.try_join_next().is_some() {}
        self.trace.log(Level::Info, "flows are updated", &[("namespace", &self.namespace), ("flows", &self.current.len())]);
        Ok(())
    }

    fn builder(&self, runtime: &Runtime, needed: &[FlowVersion]) -> Builder {
        let within = Onward::within(runtime.clone()).namespace(self.namespace.as_str()).shutdown_timeout(DRAIN_MAX);
        let builder = self.settings.equip(within);
        let has_current = |name: &Name| needed.iter().any(|version| version.is_current && version.flow == *name);
        // By name, the current version first.
        needed.iter().fold(builder, |builder, version| match parsed(version) {
            Some(flow) if version.is_current => builder.flow(&flow),
            Some(flow) if has_current(&version.flow) => builder.previous_flow(&flow),
            Some(flow) => builder.pinned_flow(&flow),
            None => {
                self.trace.log(
                    Level::Error,
                    "a stored flow has errors",
                    &[("flow", &version.flow), ("version", &version.version)],
                );
                builder
            }
        })
    }
}

/// Parses a stored document; `None` if this program cannot run it, or would run it as another version.
fn parsed(version: &FlowVersion) -> Option<Flow> {
    let flow = document::parse(version.document.as_deref()?, version.flow.as_str()).flow?;
    (flow.version() == version.version.as_str() && Plan::new(&flow).is_ok()).then_some(flow)
}

/// Stores the documents of a directory when they change.
struct FlowFolder {
    folder: PathBuf,
    namespace: Namespace,
    /// The files with their last modification.
    seen: BTreeMap<PathBuf, Option<SystemTime>>,
}

impl FlowFolder {
    async fn follow(mut self, runtime: Runtime, trace: Trace, mut stopping: watch::Receiver<bool>) {
        loop {
            for file in self.changed() {
                if !self.store(&file, &runtime, &trace).await {
                    self.seen.remove(&file);
                }
            }
            if !next(&mut stopping).await {
                return;
            }
        }
    }

    /// Returns the documents that are new or modified since the last call.
    fn changed(&mut self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut files: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_document(path)).collect();
        files.sort();
        files.retain(|file| {
            let modified = std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
            self.seen.insert(file.clone(), modified) != Some(modified)
        });
        files
    }

    /// Stores a document, or reports its problems. Returns false if that must be tried again.
    async fn store(&self, file: &Path, runtime: &Runtime, trace: &Trace) -> bool {
        let shown = file.display();
        let Ok(document) = std::fs::read_to_string(file) else {
            trace.log(Level::Warn, "a flow cannot be read", &[("file", &shown)]);
            return true;
        };
        let named = document::parse(&document, &shown.to_string()).flow.and_then(|flow| Name::new(flow.flow).ok());
        // A document whose name cannot be read has errors, which the check reports.
        let flow = named.unwrap_or_else(|| Name::new("flow").expect("the word is a name"));
        let put =
            PutFlowRequest { namespace: self.namespace.clone(), flow: flow.clone(), document, expected: None, dry_run: false };
        match runtime.put_flow(put).await {
            Ok(reply) => {
                for warning in &reply.warnings {
                    let place = format!("{shown}:{}:{}", warning.line, warning.column);
                    trace.log(Level::Warn, "a flow has a problem", &[("file", &place), ("problem", &warning.message)]);
                }
                if reply.is_changed {
                    trace.log(
                        Level::Info,
                        "flow is stored",
                        &[("flow", &flow), ("version", &reply.flow.version), ("file", &shown)],
                    );
                }
            }
            Err(RuntimeError::FlowInvalid { violations, .. }) => {
                for violation in &violations {
                    trace.log(
                        Level::Warn,
                        "a flow has errors and is not stored",
                        &[("file", &shown), ("problem", &violation.message)],
                    );
                }
            }
            Err(error) => {
                trace.log(Level::Warn, "a flow cannot be stored", &[("file", &shown), ("why", &error)]);
                return false;
            }
        }
        true
    }
}

fn is_document(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests;
