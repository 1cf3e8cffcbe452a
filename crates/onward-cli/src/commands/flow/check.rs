//! `onward flow check`: replays the open runs of a flow with another document.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use onward::flow::FlowShell;
use onward::testing::Replay;
use onward_core::api::RunQuery;
use onward_core::{Log, Name, RunHead};
use onward_runtime::read_records;
use serde_json::json;

use super::document::Document;
use crate::args::Global;
use crate::commands::check::collect::OPEN;
use crate::commands::run::Pages;
use crate::connection::Connection;
use crate::error::{Exit, FAILURE, Mistake};
use crate::output::{Progress, Style, TextTable, cells, count, print_stderr};

/// Page size of run lists.
const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Flow file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The outcome of the replay of one run.
struct Replayed {
    head: RunHead,
    /// What the document does in another way; `None` if the run would continue.
    divergence: Option<String>,
}

/// Lists which open runs would continue with the document. Fails if one would not.
pub async fn execute(args: &CheckArgs, global: &Global) -> Result<()> {
    let flow = Document::read(&args.file, global)?.into_flow()?;
    let shell = FlowShell::new(&flow).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Mistake::new(onward_core::ErrorCode::FlowInvalid, problems.join("; "), None)
    })?;
    let shell = Arc::new(shell);
    let connection = Connection::to_read(global).await?;
    let (namespace, kind) = (connection.namespace.clone(), Some(Name::new(flow.flow.as_str())?));
    let query = RunQuery { namespace, kind, statuses: OPEN.to_vec(), limit: PAGE, ..RunQuery::default() };
    let (mut pages, mut replayed) = (Pages::new(query), Vec::new());
    let mut progress = Progress::new("runs", false);
    while let Some(runs) = pages.next(&connection).await? {
        for head in runs {
            replayed.push(replay(&connection, head, shell.clone()).await?);
            progress.at(replayed.len() as u64);
        }
    }
    drop(progress);
    report(&flow.version(), &replayed, global)
}

async fn replay(connection: &Connection, head: RunHead, shell: Arc<FlowShell>) -> Result<Replayed> {
    let records = read_records(&**connection, &head).await;
    let records = records.with_context(|| format!("cannot read the log of run {}", head.key.id))?;
    let log = Log::load(records).with_context(|| format!("the log of run {} is damaged", head.key.id))?;
    let (id, namespace) = (head.key.id.to_string(), head.key.namespace.to_string());
    // A replay waits for the code on its own thread.
    let outcome = tokio::task::spawn_blocking(move || Replay::new(&id, &log).namespace(&namespace).against_foreign(shell, false));
    let divergence = outcome.await?.err().map(|pause| pause.message.clone());
    Ok(Replayed { head, divergence })
}

fn report(version: &str, replayed: &[Replayed], global: &Global) -> Result<()> {
    let runs = replayed.iter().map(|run| {
        json!({"run": run.head.key.id, "version": run.head.version, "continues": run.divergence.is_none(), "divergence": run.divergence})
    });
    let document = json!({"version": version, "runs": runs.collect::<Vec<_>>()});
    let mut table = TextTable::new(&["RUN", "VERSION", "STATUS", "WITH THE DOCUMENT"]);
    for Replayed { head, divergence } in replayed {
        let outcome = divergence.as_deref().unwrap_or("continues");
        table.row(cells![
            &head.key.id,
            head.version.as_ref().map(Name::as_str).unwrap_or_default(),
            head.status.as_str(),
            outcome
        ]);
    }
    global.show_table(&document, table, "no run of the flow is open")?;
    let diverging = replayed.iter().filter(|run| run.divergence.is_some()).count() as u64;
    if diverging == 0 {
        return Ok(());
    }
    if !global.json {
        let style = Style::stderr();
        print_stderr(&style.yellow(&format!("{} would not continue with this document", count(diverging, "run"))));
        print_stderr("open runs keep the version that they began with, so applying the document does not affect them");
    }
    Err(Exit(FAILURE).into())
}
