//! `onward quota …`: shows, changes and removes the quota of a namespace.

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{PutQuotaRequest, QuotaRequest, QuotaView};
use onward_core::queue::QueueRate;
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;
use serde_json::json;

use crate::args::Global;
use crate::commands::queue::settings::{change, number, rate};
use crate::connection::Connection;
use crate::output::{TextTable, cells, print_json, print_stderr, time};

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Show the quota of the namespace and what is used of it
    Show,
    /// Change limits of the namespace; others stay as they are
    Set(SetArgs),
    /// Remove all limits of the namespace
    Reset,
}

/// Limits to change. A limit of `none` is removed.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Number of open runs at which callers and schedules start no further one, or `none`; 0 stops starts
    #[arg(long, value_name = "N")]
    pub runs_open: Option<String>,
    /// Runs that callers and schedules may start in a period, as `100/1s`, or `none`
    #[arg(long, value_name = "N/PERIOD")]
    pub start_rate: Option<String>,
    /// Maximum number of tasks that run at a time, over all queues, or `none`; 0 stops tasks
    #[arg(long, value_name = "N")]
    pub tasks_running: Option<String>,
    /// Maximum size of a payload in bytes, or `none`
    #[arg(long, value_name = "BYTES")]
    pub payload_bytes: Option<String>,
    /// Cost of a UTC day in dollars at which no further attempt with a cost begins, or `none`
    #[arg(long, value_name = "DOLLARS")]
    pub spend_per_day: Option<String>,
}

pub async fn execute(command: QuotaCommand, global: &Global) -> Result<()> {
    match command {
        QuotaCommand::Show => {
            let connection = Connection::to_read(global).await?;
            print(&connection.read_quota(request(&connection)).await?, global)
        }
        QuotaCommand::Set(args) => {
            let connection = Connection::to_write(global).await?;
            let known = connection.read_quota(request(&connection)).await?.settings.unwrap_or_default();
            let settings = changed(known, &args)?;
            let put = PutQuotaRequest { namespace: connection.namespace.clone(), settings };
            print(&connection.put_quota(put).await?, global)
        }
        QuotaCommand::Reset => {
            let connection = Connection::to_write(global).await?;
            connection.delete_quota(request(&connection)).await?;
            match global.json {
                true => print_json(&json!({"reset": connection.namespace})),
                false => {
                    print_stderr(&format!("namespace {} has no quota any more", connection.namespace));
                    Ok(())
                }
            }
        }
    }
}

fn request(connection: &Connection) -> QuotaRequest {
    QuotaRequest { namespace: connection.namespace.clone() }
}

fn changed(known: QuotaSettings, args: &SetArgs) -> Result<QuotaSettings> {
    const HELP: &str = "see `onward quota set --help`";
    let mut settings = known;
    change(&mut settings.runs_open_max, "--runs-open", args.runs_open.as_deref(), number, HELP)?;
    change(&mut settings.start_rate, "--start-rate", args.start_rate.as_deref(), rate, HELP)?;
    change(&mut settings.tasks_running_max, "--tasks-running", args.tasks_running.as_deref(), number, HELP)?;
    change(&mut settings.payload_bytes_max, "--payload-bytes", args.payload_bytes.as_deref(), number, HELP)?;
    change(&mut settings.spend_per_day_max, "--spend-per-day", args.spend_per_day.as_deref(), PicoDollars::parse, HELP)?;
    Ok(settings)
}

fn print(view: &QuotaView, global: &Global) -> Result<()> {
    let none = QuotaSettings::default();
    let (limits, used, now) = (view.settings.as_ref().unwrap_or(&none), &view.usage, time::now());
    let text = |limit: Option<String>| limit.unwrap_or_else(|| "-".to_owned());
    let rate = |rate: &QueueRate| format!("{} per {} ms", rate.starts_max, rate.period_ms);
    let starts = match used.starts_open_at {
        Some(at) => format!("{} (the next {})", used.starts, time::until(at, now)),
        None => used.starts.to_string(),
    };
    let mut table = TextTable::new(&["LIMIT", "MAXIMUM", "USED"]);
    table.row(cells!["open runs", text(limits.runs_open_max.map(|max| max.to_string())), used.runs_open]);
    table.row(cells!["starts", text(limits.start_rate.as_ref().map(rate)), starts]);
    table.row(cells!["running tasks", text(limits.tasks_running_max.map(|max| max.to_string())), used.tasks_running]);
    table.row(cells!["bytes of a payload", text(limits.payload_bytes_max.map(|max| max.to_string())), "-"]);
    let ends = time::until(used.day_ends_at, now);
    let spent = format!("{} (the day ends {ends})", used.spent_today);
    table.row(cells!["dollars per day", text(limits.spend_per_day_max.map(|max| max.to_string())), spent]);
    global.show_table(view, table, "no limits")
}
