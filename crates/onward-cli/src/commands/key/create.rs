//! `onward key create`: creates an API key for the namespace of `--namespace`; `*` means all.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::Name;
use onward_server::keys::{NewKey, Reach};
use onward_server::{Bounds, Scope};

use super::{KeysArgs, document};
use crate::args::Global;
use crate::budget;
use crate::output::time;
use crate::span;

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the holder, under which approvals are decided
    #[arg(long, value_parser = |text: &str| Name::new(text))]
    name: Name,
    /// Permissions: read, start, signal, approve, operate, work, admin, or all
    #[arg(long = "scope", value_name = "SCOPE,…", required = true, value_delimiter = ',', value_parser = parse_scope)]
    scopes: Vec<ScopeWord>,
    /// Lifetime, like 90d or 12h [default: unlimited]
    #[arg(long, value_name = "SPAN", value_parser = span::parse_positive)]
    expires: Option<Duration>,
    /// Maximum budget of runs started or resumed with the key: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget_max: Vec<String>,
    /// Restrict the key to this kind of workflow, agent or task, also for starts and signals (repeatable) [default: every kind]
    #[arg(long = "kind", value_name = "KIND", value_parser = |text: &str| Name::new(text))]
    kinds: Vec<Name>,
    /// Restrict the key to this task queue; '' is the default queue (repeatable) [default: every queue]
    #[arg(long = "queue", value_name = "QUEUE", value_parser = parse_queue)]
    queues: Vec<String>,
    #[command(flatten)]
    keys: KeysArgs,
}

#[derive(Debug, Clone)]
enum ScopeWord {
    All,
    One(Scope),
}

pub fn execute(args: CreateArgs, global: &Global) -> Result<ExitCode> {
    let scopes = args.scopes.iter().flat_map(|word| match word {
        ScopeWord::All => Scope::ALL.to_vec(),
        ScopeWord::One(scope) => vec![*scope],
    });
    let (scopes, namespace) = (scopes.collect(), Reach::from(global.namespace()?));
    let budget_max = budget::parse(&args.budget_max)?;
    let bounds = Bounds {
        kinds: (!args.kinds.is_empty()).then(|| args.kinds.into_iter().collect()),
        queues: (!args.queues.is_empty()).then(|| args.queues.into_iter().collect()),
    };
    let wanted = NewKey { name: args.name, namespace, scopes, lifetime: args.expires, budget_max, bounds };
    let made = args.keys.file(global).create(wanted, time::now())?;
    document::show_made(&made, global.json)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_queue(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    Name::new(text).map(|name| name.to_string()).map_err(|error| error.to_string())
}

fn parse_scope(text: &str) -> Result<ScopeWord, String> {
    if text == "all" {
        return Ok(ScopeWord::All);
    }
    let found = Scope::ALL.into_iter().find(|scope| scope.to_string() == text);
    found.map(ScopeWord::One).ok_or_else(|| {
        let known: Vec<String> = Scope::ALL.iter().map(Scope::to_string).collect();
        format!("must be one of {} or all", known.join(", "))
    })
}
