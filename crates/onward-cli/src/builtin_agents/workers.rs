//! The built-in workers of a server, for the models and agents of its settings.
//!
//! An MCP server that does not answer delays only its own agents; it is retried until it answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use onward::Onward;
use onward_core::Namespace;
use onward_runtime::Runtime;
use onward_server::trace::{Level, Trace};
use tokio::task::JoinHandle;

use super::{BuiltinAgents, agent};

/// Delay between attempts to reach an MCP server.
const ASK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct BuiltinWorkers {
    started: Arc<Mutex<Vec<Onward>>>,
    starting: Vec<JoinHandle<()>>,
}

impl BuiltinWorkers {
    /// Starts the workers. Agents with MCP servers start later, when these answer.
    pub async fn start(builtin: BuiltinAgents, runtime: &Runtime, trace: &Trace) -> Result<BuiltinWorkers> {
        let (builtin, mut workers) = (Arc::new(builtin), BuiltinWorkers::default());
        for namespace in &builtin.namespaces {
            let within = || Onward::within(runtime.clone()).namespace(namespace.as_str());
            let worker = builtin.equip_plain(within()).start().await?;
            lock(&workers.started).push(worker);
            for name in builtin.agents.iter().filter(|(_, settings)| !settings.mcp.is_empty()).map(|(name, _)| name.clone()) {
                let start =
                    bring(builtin.clone(), name, runtime.clone(), namespace.clone(), trace.clone(), workers.started.clone());
                workers.starting.push(tokio::spawn(start));
            }
        }
        Ok(workers)
    }

    /// Shuts the workers down and releases their runs.
    pub async fn stop(self) {
        for starting in self.starting {
            starting.abort();
            drop(starting.await);
        }
        let started = std::mem::take(&mut *lock(&self.started));
        for worker in started {
            worker.shutdown().await;
        }
    }
}

/// Starts the worker of an agent as soon as its MCP servers answer.
async fn bring(
    builtin: Arc<BuiltinAgents>,
    name: String,
    runtime: Runtime,
    namespace: Namespace,
    trace: Trace,
    started: Arc<Mutex<Vec<Onward>>>,
) {
    let settings = &builtin.agents[&name];
    let (mut has_warned, mut connected) = (false, BTreeMap::new());
    loop {
        let begun = async {
            // A failed server is retried; the others stay connected.
            builtin.connect_all(settings, &mut connected).await?;
            let agent = agent(&name, settings).tools(&builtin.tools_of(settings, &connected)?);
            let builder = Onward::within(runtime.clone()).namespace(namespace.as_str()).register(agent);
            anyhow::Ok(builder.start().await?)
        };
        match begun.await {
            Ok(worker) => {
                trace.say(Level::Info, "agent has its tools", &[("agent", &name), ("namespace", &namespace)]);
                return lock(&started).push(worker);
            }
            Err(error) => {
                let level = if has_warned { Level::Debug } else { Level::Warn };
                trace.say(level, "agent waits for its tools", &[("agent", &name), ("why", &format!("{error:#}"))]);
                has_warned = true;
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn lock(started: &Mutex<Vec<Onward>>) -> std::sync::MutexGuard<'_, Vec<Onward>> {
    started.lock().unwrap_or_else(PoisonError::into_inner)
}
