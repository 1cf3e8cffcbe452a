//! `onward run start` with a policy, which combines starts of one kind and key.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::api::{StartWithPolicyReply, StartWithPolicyRequest};
use onward_core::start_policy::{Batch, Debounce, OnConflict, Singleton, StartOutcome, StartPolicy};
use onward_core::time::millis;
use onward_core::{Name, RunId, Timestamp};
use onward_runtime::RuntimeError;
use serde::Serialize;

use crate::args::{Global, one_of};
use crate::connection::Connection;
use crate::output::escape;
use crate::span;

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Allow one open run of the kind and this key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["debounce", "batch", "id", "signal", "wait"])]
    singleton: Option<String>,
    /// What happens while a run of the key is open; `cancel` replaces it
    #[arg(long, value_name = "POLICY", requires = "singleton", value_parser = one_of(OnConflict::ALL, OnConflict::as_str))]
    on_conflict: Option<OnConflict>,
    /// Start one run for starts of this key that follow each other closely, with the last input
    #[arg(long, value_name = "KEY", requires = "window", conflicts_with_all = ["batch", "id", "signal", "wait"])]
    debounce: Option<String>,
    /// Collect inputs of this key: one run starts with the list of them
    #[arg(long, value_name = "KEY", requires_all = ["window", "size_max"], conflicts_with_all = ["id", "signal", "wait"])]
    batch: Option<String>,
    /// Time from the last start to the run (`--debounce`), or from the first one (`--batch`): 500ms, 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    window: Option<Duration>,
    /// Longest time from the first start to the run [default: ten windows]
    #[arg(long, value_name = "DURATION", requires = "debounce", value_parser = span::parse_positive)]
    max_wait: Option<Duration>,
    /// Number of inputs at which the run of a batch starts
    #[arg(long, value_name = "COUNT", requires = "batch")]
    size_max: Option<u32>,
    /// Idempotency key: a repeat with the same id counts once [default: a new id]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

/// The answer to a start with a policy.
#[derive(Serialize)]
struct Started<'a> {
    id: &'a RunId,
    outcome: StartOutcome,
    due_at: Option<Timestamp>,
    repeated: bool,
}

impl PolicyArgs {
    /// Returns the policy; `None` for a start without one.
    pub fn policy(&self) -> Option<StartPolicy> {
        let window = self.window.unwrap_or_default();
        if let Some(key) = &self.singleton {
            return Some(StartPolicy::Singleton(Singleton {
                key: key.clone(),
                on_conflict: self.on_conflict.unwrap_or_default(),
            }));
        }
        if let Some(key) = &self.debounce {
            let (key, window_ms) = (key.clone(), millis(window));
            return Some(StartPolicy::Debounce(Debounce { key, window_ms, max_wait_ms: self.max_wait.map(millis) }));
        }
        let (key, size_max) = (self.batch.clone()?, self.size_max.unwrap_or_default());
        Some(StartPolicy::Batch(Batch::new(key, size_max, window)))
    }

    /// Returns the request id, or a new one.
    pub fn request_id(&self) -> Result<Option<Name>> {
        let id = self.request_id.clone().unwrap_or_else(|| format!("{:016x}", crate::new_id::random_u64()));
        Ok(Some(Name::new(id).map_err(RuntimeError::from)?))
    }

    /// Returns true if a request id was given.
    pub fn has_request_id(&self) -> bool {
        self.request_id.is_some()
    }
}

/// Sends the start and prints the answer.
pub async fn start(connection: &Connection, request: StartWithPolicyRequest, global: &Global) -> Result<()> {
    let StartWithPolicyReply { run, outcome, due_at, repeated } = connection.start_with_policy(request).await?;
    let text = || {
        let id = escape::text(run.as_str());
        let note = if repeated { " by an earlier request" } else { "" };
        match (outcome, due_at) {
            (StartOutcome::Started, _) => format!("{id}: started{note}"),
            (StartOutcome::Skipped, _) => format!("{id}: is open; the start was skipped{note}"),
            (StartOutcome::Held, Some(due_at)) => format!("{id}: starts at {due_at}{note}"),
            (StartOutcome::Held, None) => format!("{id}: starts when the canceled run has ended{note}"),
        }
    };
    global.show(&Started { id: &run, outcome, due_at, repeated }, text)
}
