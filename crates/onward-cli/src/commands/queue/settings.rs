//! Settings of a queue: shown, changed one by one, removed.

use anyhow::Result;
use onward_core::api::{PutQueueRequest, QueueRequest, QueueView};
use onward_core::queue::load::{KeyLimit, KeyView};
use onward_core::queue::settings::DEFAULT_QUEUE;
use onward_core::queue::{KeyWeight, QueueRate, QueueSettings};
use onward_core::time::millis;
use onward_core::{ErrorCode, Name};
use serde_json::json;

use super::{SetArgs, confirm, queue_name};
use crate::args::Global;
use crate::connection::Connection;
use crate::error::Mistake;
use crate::output::{TextTable, cells, print_stderr, time};
use crate::span;

/// Prints a queue with its keys.
pub async fn show(queue: &str, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let view = connection.read_queue(request(&connection, queue)?).await?;
    print(&view, global)
}

/// Changes the named settings.
pub async fn set(args: SetArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let request = request(&connection, &args.queue)?;
    let known = connection.read_queue(request.clone()).await?.settings.unwrap_or_default();
    let settings = changed(known, &args)?;
    put(&connection, request, settings, global).await
}

/// Pauses a queue or resumes it.
pub async fn pause(queue: &str, paused: bool, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let request = request(&connection, queue)?;
    let known = connection.read_queue(request.clone()).await?.settings.unwrap_or_default();
    put(&connection, request, QueueSettings { paused, ..known }, global).await
}

/// Removes the settings of a queue.
pub async fn reset(queue: &str, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let request = request(&connection, queue)?;
    let name = queue_name(&request.queue).to_owned();
    connection.delete_queue(request).await?;
    confirm(global, &json!({"reset": name}), &format!("queue {name} has no settings any more"))
}

async fn put(connection: &Connection, request: QueueRequest, settings: QueueSettings, global: &Global) -> Result<()> {
    let QueueRequest { namespace, queue } = request;
    let view = connection.put_queue(PutQueueRequest { namespace, queue, settings }).await?;
    print(&view, global)
}

fn request(connection: &Connection, queue: &str) -> Result<QueueRequest> {
    let queue = Some(Name::new(queue)?).filter(|name| *name != *DEFAULT_QUEUE);
    Ok(QueueRequest { namespace: connection.namespace.clone(), queue })
}

/// Where the options are described.
const HELP: &str = "see `onward queue set --help`";

fn changed(known: QueueSettings, args: &SetArgs) -> Result<QueueSettings> {
    let mut settings = known;
    change(&mut settings.concurrency_max, "--concurrency", args.concurrency.as_deref(), number, HELP)?;
    change(&mut settings.key_concurrency_max, "--key-concurrency", args.key_concurrency.as_deref(), number, HELP)?;
    change(&mut settings.depth_max, "--depth", args.depth.as_deref(), number, HELP)?;
    change(&mut settings.rate, "--rate", args.rate.as_deref(), rate, HELP)?;
    change(&mut settings.key_rate, "--key-rate", args.key_rate.as_deref(), rate, HELP)?;
    for weight in &args.weight {
        let parts = weight.rsplit_once('=').and_then(|(key, weight)| Some((key, weight.parse::<u32>().ok()?)));
        let (key, weight) = parts.ok_or_else(|| wrong("--weight", weight, HELP))?;
        let key = Name::new(key)?;
        settings.weights.retain(|of| of.key != key);
        if weight != 1 {
            settings.weights.push(KeyWeight { key, weight });
        }
    }
    Ok(settings)
}

/// Sets a setting to the value of its option; `none` removes it.
pub fn change<T>(
    setting: &mut Option<T>,
    option: &str,
    value: Option<&str>,
    read: impl Fn(&str) -> Option<T>,
    help: &'static str,
) -> Result<()> {
    match value {
        None => {}
        Some("none") => *setting = None,
        Some(value) => *setting = Some(read(value).ok_or_else(|| wrong(option, value, help))?),
    }
    Ok(())
}

/// Reads a number.
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Reads a rate as `100/1m`.
pub fn rate(text: &str) -> Option<QueueRate> {
    let (starts, period) = text.split_once('/')?;
    let period_ms = millis(span::parse_positive(period).ok()?);
    Some(QueueRate { starts_max: starts.parse().ok()?, period_ms })
}

fn wrong(option: &str, value: &str, help: &'static str) -> Mistake {
    let message = format!("`{value}` is not a value of `{option}`");
    Mistake::usage(ErrorCode::Usage, message, help)
}

fn print(view: &QueueView, global: &Global) -> Result<()> {
    if !global.json {
        print_stderr(&format!("queue {}: {}", queue_name(&view.queue), describe(view.settings.as_ref())));
    }
    let (mut table, now) = (TextTable::new(&["KEY", "WAITING", "RUNNING", "OLDEST", "HELD BACK BY"]), time::now());
    for KeyView { key, waiting, running, oldest_at, held_back_by, .. } in &view.keys {
        let (key, oldest) =
            (key.as_ref().map_or("-", |key| key.as_str()), oldest_at.map_or("-".to_owned(), |at| time::ago(at, now)));
        let held_back_by = match held_back_by {
            None => "-",
            Some(KeyLimit::Concurrency) => "concurrency of the key",
            Some(KeyLimit::Rate) => "rate of the key",
        };
        table.row(cells![key, waiting, running, oldest, held_back_by]);
    }
    global.show_table(view, table, "no open tasks")
}

/// Describes settings in one line.
fn describe(settings: Option<&QueueSettings>) -> String {
    let Some(settings) = settings else { return "no settings".to_owned() };
    let rate = |rate: &QueueRate| format!("{} per {} ms", rate.starts_max, rate.period_ms);
    let mut parts = Vec::new();
    parts.extend(settings.paused.then(|| "paused".to_owned()));
    parts.extend(settings.concurrency_max.map(|limit| format!("{limit} at a time")));
    parts.extend(settings.key_concurrency_max.map(|limit| format!("{limit} at a time for each key")));
    parts.extend(settings.rate.as_ref().map(rate));
    parts.extend(settings.key_rate.as_ref().map(|of| format!("{} for each key", rate(of))));
    parts.extend(settings.depth_max.map(|depth| format!("up to {depth} waiting")));
    parts.extend(settings.weights.iter().map(|of| format!("weight {} for {}", of.weight, of.key)));
    if parts.is_empty() { "no limits".to_owned() } else { parts.join(", ") }
}
