//! `onward run delete`: deletes closed runs with their logs.
//!
//! Each run is deleted separately: a refusal of one does not affect the others.

use anyhow::{Context, Result};
use clap::Args;
use onward_core::api::ReasonRequest;

use crate::args::Global;
use crate::connection::Connection;
use crate::error::{Exit, print_one};
use crate::output::document::Deleted;
use crate::output::{Progress, escape, print, print_json};

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Run ids; - reads them from stdin, one per line
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Reason, shown by `onward run deleted`
    #[arg(long, default_value = "")]
    reason: String,
}

pub async fn execute(args: DeleteArgs, global: &Global) -> Result<()> {
    let ids = read_ids(&args.ids)?;
    let connection = Connection::to_write(global).await?;
    let mut progress = Progress::new("runs deleted", !global.json);
    let (mut deleted, mut refused, mut exit) = (Vec::new(), Vec::new(), None);
    for id in &ids {
        let done = async {
            let request = ReasonRequest { run: connection.key(id)?, reason: args.reason.clone() };
            Ok(connection.delete_run(request).await.map(drop)?)
        };
        match done.await {
            Ok(()) => {
                deleted.push(id.as_str());
                if !global.json {
                    print(&format!("{}: deleted", escape::text(id)))?;
                }
            }
            Err(error) => {
                refused.push(id.as_str());
                exit.get_or_insert(print_one(&error, global.json));
            }
        }
        progress.at(deleted.len() as u64);
    }
    drop(progress);
    if global.json {
        print_json(&Deleted { deleted, refused })?;
    }
    exit.map_or(Ok(()), |code| Err(Exit(code).into()))
}

fn read_ids(ids: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for id in ids {
        if id == "-" {
            for line in std::io::stdin().lines() {
                all.push(line.context("cannot read the ids from stdin")?);
            }
        } else {
            all.push(id.clone());
        }
    }
    all.retain(|id| !id.is_empty());
    Ok(all)
}
