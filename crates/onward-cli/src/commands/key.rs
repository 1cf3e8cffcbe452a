//! `onward key …`: manages the API keys of a server. Edits the key file; a running server applies changes.
//!
//! Must never print a secret except once, on stdout, when its key is created.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::budget::Budget;
use onward_core::{Name, Timestamp};
use onward_server::keys::{CreatedKey, KEYS_FILE, KeyEntry, KeyFile, NewKey, Reach};
use onward_server::{Bounds, Scope};
use serde::Serialize;

use crate::args::Global;
use crate::output::{TextTable, cells, escape, print, print_json, print_stderr, time};
use crate::serving::KeysArgs;
use crate::{budget, span};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it once
    Create(CreateArgs),
    /// List keys without their secrets
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        keys: KeysArgs,
    },
    /// Revoke a key; a running server applies this within seconds
    Revoke {
        /// Key id, as shown by `onward key list`
        id: String,
        #[command(flatten)]
        keys: KeysArgs,
    },
    /// Create a successor of a key; the old key stays valid for a while
    Rotate {
        /// Key id, as shown by `onward key list`
        id: String,
        /// Remaining lifetime of the old key, like 24h; 0s ends it at once
        #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = span::parse)]
        overlap: Duration,
        #[command(flatten)]
        keys: KeysArgs,
    },
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the holder, under which approvals are decided
    #[arg(long, value_parser = |text: &str| Name::new(text))]
    name: Name,
    /// Permissions: read, start, signal, approve, operate, work, admin, or all
    #[arg(long = "scope", value_name = "SCOPE,…", required = true, value_delimiter = ',', value_parser = parse_scopes)]
    scopes: Vec<Scopes>,
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

/// The scopes of one word of `--scope`.
type Scopes = BTreeSet<Scope>;

pub fn execute(command: KeyCommand, global: &Global) -> Result<()> {
    global.without_server("key")?;
    let now = time::now();
    match command {
        KeyCommand::Create(args) => create(args, global),
        KeyCommand::List { keys } => list(&file(&keys, global), global),
        KeyCommand::Revoke { id, keys } => {
            let file = file(&keys, global);
            let entry = file.revoke(&id, now)?;
            let document = KeyDocument::new(&entry, file.last_used().get(&entry.id).copied(), now);
            global.show(&document, || format!("{}: revoked", entry.id))
        }
        KeyCommand::Rotate { id, overlap, keys } => {
            let (made, old) = file(&keys, global).rotate(&id, overlap, now)?;
            show_made(&made, global.json)?;
            if let Some(at) = old.expires_at.filter(|_| !global.json) {
                print_stderr(&format!("key {} expires {}", old.id, time::until(at, now)));
            }
            Ok(())
        }
    }
}

fn file(keys: &KeysArgs, global: &Global) -> KeyFile {
    KeyFile::at(keys.named(&global.config).unwrap_or_else(|| global.directory().join(KEYS_FILE)))
}

/// Creates an API key for the namespace of `--namespace`; `*` means all.
fn create(args: CreateArgs, global: &Global) -> Result<()> {
    let (scopes, namespace) = (args.scopes.into_iter().flatten().collect(), Reach::from(global.namespace()?));
    let budget_max = budget::parse(&args.budget_max)?;
    let bounds = Bounds {
        kinds: (!args.kinds.is_empty()).then(|| args.kinds.into_iter().collect()),
        queues: (!args.queues.is_empty()).then(|| args.queues.into_iter().collect()),
    };
    let wanted = NewKey { name: args.name, namespace, scopes, lifetime: args.expires, budget_max, bounds };
    show_made(&file(&args.keys, global).create(wanted, time::now())?, global.json)
}

fn parse_queue(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    Name::new(text).map(|name| name.to_string()).map_err(|error| error.to_string())
}

fn parse_scopes(text: &str) -> Result<Scopes, String> {
    let named: Scopes = Scope::ALL.into_iter().filter(|scope| text == "all" || scope.to_string() == text).collect();
    if named.is_empty() {
        let known: Vec<String> = Scope::ALL.iter().map(Scope::to_string).collect();
        return Err(format!("must be one of {} or all", known.join(", ")));
    }
    Ok(named)
}

fn list(file: &KeyFile, global: &Global) -> Result<()> {
    let entries = match file.read() {
        Err(error) if error.is_missing() => Vec::new(),
        read => read?,
    };
    let (used, now) = (file.last_used(), time::now());
    let keys: Vec<KeyDocument> = entries.iter().map(|entry| KeyDocument::new(entry, used.get(&entry.id).copied(), now)).collect();
    let mut table = TextTable::new(&["ID", "NAME", "STATE", "NAMESPACE", "CREATED", "EXPIRES", "LAST USED", "SCOPES"]);
    for key in &keys {
        let expires = key.expires_at.map_or("never".to_owned(), |at| time::until(at, now));
        let last_used = key.last_used_at.map_or("never".to_owned(), |at| time::ago(at, now));
        let (created, scopes) = (time::ago(key.created_at, now), scopes(key.scopes));
        table.row(cells![key.id, key.name, key.state, key.namespace, created, expires, last_used, scopes]);
    }
    global.show_table(&serde_json::json!({"keys": keys}), table, "no keys")
}

/// A key without its secret.
#[derive(Serialize)]
struct KeyDocument<'a> {
    id: &'a str,
    name: &'a str,
    namespace: String,
    scopes: &'a BTreeSet<Scope>,
    state: &'static str,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_max: Option<Budget>,
    #[serde(skip_serializing_if = "Bounds::is_none")]
    bounds: &'a Bounds,
    /// The complete key, only after its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyDocument<'a> {
    fn new(entry: &'a KeyEntry, last_used_at: Option<Timestamp>, now: Timestamp) -> KeyDocument<'a> {
        KeyDocument {
            id: &entry.id,
            name: entry.name.as_str(),
            namespace: entry.namespace.to_string(),
            scopes: &entry.scopes,
            state: entry.state(now),
            created_at: entry.created_at,
            expires_at: entry.expires_at,
            revoked_at: entry.revoked_at,
            last_used_at,
            budget_max: entry.budget_max,
            bounds: &entry.bounds,
            key: None,
        }
    }
}

fn scopes(scopes: &BTreeSet<Scope>) -> String {
    scopes.iter().map(Scope::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the kinds and queues of a key as a suffix for its namespace.
fn bounds(bounds: &Bounds) -> String {
    let kinds = bounds.kinds.iter().flatten().map(|kind| format!(", kind {}", escape::text(kind.as_str())));
    let queues = bounds.queues.iter().flatten().map(|queue| match queue.as_str() {
        "" => ", the default queue".to_owned(),
        queue => format!(", queue {}", escape::text(queue)),
    });
    kinds.chain(queues).collect()
}

/// Prints the key alone on stdout, so that it can be redirected, and everything else on stderr.
fn show_made(made: &CreatedKey, json: bool) -> Result<()> {
    let CreatedKey { key, entry } = made;
    if json {
        return print_json(&KeyDocument { key: Some(key.reveal()), ..KeyDocument::new(entry, None, time::now()) });
    }
    print(key.reveal())?;
    let expires = entry.expires_at.map_or("never".to_owned(), |at| time::moment(at, time::now()));
    let (name, namespace) = (escape::text(entry.name.as_str()), entry.namespace.to_string());
    let (namespace, scopes) = (escape::text(&namespace), scopes(&entry.scopes));
    let most = entry.budget_max.map(|budget| format!(", maximum budget {budget}")).unwrap_or_default();
    let bounds = bounds(&entry.bounds);
    print_stderr(&format!("key {} of {name} for {scopes} in namespace {namespace}{bounds}, expires {expires}{most}", entry.id));
    print_stderr("store it now; it cannot be shown again");
    Ok(())
}
