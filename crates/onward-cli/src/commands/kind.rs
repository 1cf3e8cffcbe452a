//! `onward kind …`: shows and changes defaults of kinds.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{DefaultsQuery, DefaultsReply, DefaultsSource, PutDefaultsRequest, SourcedDefaults};
use onward_core::task::RetryPolicy;
use onward_core::time::millis;
use onward_core::{ErrorCode, KindDefaults, Name};

use crate::args::Global;
use crate::connection::Connection;
use crate::error::Mistake;
use crate::output::{TextTable, cells, time};
use crate::span;

#[derive(Debug, Subcommand)]
pub enum KindCommand {
    /// List the defaults of kinds, in order of precedence
    Defaults {
        /// Only those of this kind
        kind: Option<String>,
    },
    /// Change live defaults of a kind, for tasks and runs that start from now on
    Set(Box<SetArgs>),
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Kind of tasks or workflows; `llm.NAME` for a model, `tool.AGENT.TOOL` for a tool
    kind: String,
    /// Queue of its tasks or runs
    #[arg(long)]
    queue: Option<String>,
    /// Priority of its tasks or runs; higher goes first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Maximum number of attempts
    #[arg(long, value_name = "ATTEMPTS")]
    retry: Option<u32>,
    /// Delay after the first attempt; later ones double it. Needs `--retry`
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive, requires = "retry")]
    retry_delay: Option<Duration>,
    /// Maximum wait for the first attempt
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    queued_timeout: Option<Duration>,
    /// Maximum duration of one attempt
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    attempt_timeout: Option<Duration>,
    /// Maximum duration of all attempts together
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    total_timeout: Option<Duration>,
    /// Maximum time between two heartbeats
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    heartbeat_timeout: Option<Duration>,
    /// Deadline of its runs
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    deadline: Option<Duration>,
    /// Key of its runs in their queue: '{{ input.tenant }}'
    #[arg(long, value_name = "TEMPLATE")]
    key: Option<String>,
    /// Remove all live defaults of the kind first
    #[arg(long)]
    clear: bool,
}

impl SetArgs {
    fn defaults(&self) -> Result<KindDefaults> {
        let ms = |time: Option<Duration>| time.map(millis);
        let retry = self.retry.map(RetryPolicy::attempts);
        Ok(KindDefaults {
            queue: self.queue.as_ref().map(Name::new).transpose()?,
            priority: self.priority,
            retry: retry.map(|policy| self.retry_delay.into_iter().fold(policy, RetryPolicy::delay)),
            queued_timeout_ms: ms(self.queued_timeout),
            attempt_timeout_ms: ms(self.attempt_timeout),
            total_timeout_ms: ms(self.total_timeout),
            heartbeat_timeout_ms: ms(self.heartbeat_timeout),
            deadline_ms: ms(self.deadline),
            key: self.key.clone(),
        })
    }
}

pub async fn execute(command: KindCommand, global: &Global) -> Result<()> {
    match command {
        KindCommand::Defaults { kind } => {
            let kind = kind.map(Name::new).transpose()?;
            let connection = Connection::to_read(global).await?;
            let namespace = connection.namespace.clone();
            show(&connection.list_defaults(DefaultsQuery { namespace, kind }).await?, global)
        }
        KindCommand::Set(args) => set(*args, global).await,
    }
}

/// Adds options to the live defaults of a kind.
async fn set(args: SetArgs, global: &Global) -> Result<()> {
    let (kind, changed) = (Name::new(&args.kind)?, args.defaults()?);
    if changed.is_empty() && !args.clear {
        let message = "no option is given".to_owned();
        return Err(
            Mistake::usage(ErrorCode::Usage, message, "see `onward kind set --help`, or remove all with `--clear`").into()
        );
    }
    let connection = Connection::to_write(global).await?;
    let namespace = connection.namespace.clone();
    let query = DefaultsQuery { namespace: namespace.clone(), kind: Some(kind.clone()) };
    let stored = connection.list_defaults(query).await?.defaults;
    let live = stored.into_iter().find(|of| of.source == DefaultsSource::Live && !args.clear);
    let defaults = changed.or(&live.map(|of| of.defaults).unwrap_or_default());
    show(&connection.put_defaults(PutDefaultsRequest { namespace, kind, defaults }).await?, global)
}

fn show(reply: &DefaultsReply, global: &Global) -> Result<()> {
    let mut table = TextTable::new(&["KIND", "SOURCE", "VERSION", "DEFAULTS"]);
    for SourcedDefaults { kind, source, version, defaults, .. } in &reply.defaults {
        let version = version.as_ref().map_or("-", Name::as_str);
        table.row(cells![kind, source.as_str(), version, options(defaults)]);
    }
    global.show_table(reply, table, "no defaults: options that a call does not set are the built-in ones")
}

/// Returns the options as text: `retry 5 attempts, queue slow`.
fn options(of: &KindDefaults) -> String {
    let wait = |ms: u64| time::span(Duration::from_millis(ms));
    let retry = |policy: &RetryPolicy| match policy.attempts_max {
        0 => "retry without limit".to_owned(),
        attempts => format!("retry {attempts} attempts, first delay {}", wait(policy.first_delay_ms)),
    };
    let texts = [
        of.queue.as_ref().map(|queue| format!("queue {queue}")),
        of.priority.map(|priority| format!("priority {priority}")),
        of.retry.as_ref().map(retry),
        of.queued_timeout_ms.map(|ms| format!("queued timeout {}", wait(ms))),
        of.attempt_timeout_ms.map(|ms| format!("attempt timeout {}", wait(ms))),
        of.total_timeout_ms.map(|ms| format!("total timeout {}", wait(ms))),
        of.heartbeat_timeout_ms.map(|ms| format!("heartbeat timeout {}", wait(ms))),
        of.deadline_ms.map(|ms| format!("deadline {}", wait(ms))),
        of.key.as_ref().map(|key| format!("key {key}")),
    ];
    texts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
