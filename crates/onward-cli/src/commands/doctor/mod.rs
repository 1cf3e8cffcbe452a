//! `onward doctor`: checks the machine and a directory or server, and suggests fixes.
//!
//! Must never change a directory without `--repair`: it opens directories read-only, and deletes the file with which it measures
//! syncs.

mod directory;
mod finding;
mod machine;
mod repair;
mod server;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::args::Global;
use crate::connection::Endpoint;
use crate::error::{FAILURE, Mistake};
use crate::output::print_json;
use finding::Findings;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Skip the checks that read all of a directory: pages, rows and logs
    #[arg(long)]
    quick: bool,
    /// Copy all intact data of a damaged directory into a new database, list losses, and keep the damaged files
    #[arg(long, conflicts_with = "quick")]
    repair: bool,
}

/// Exits with 1 if a check fails; warnings do not count.
pub async fn execute(args: DoctorArgs, global: &Global) -> Result<ExitCode> {
    let mut findings = Findings::new(!global.json);
    machine::check(&mut findings);
    match Endpoint::of(global)? {
        Endpoint::Directory(path) if args.repair => repair::repair(&path, &mut findings),
        Endpoint::Server { .. } if args.repair => {
            let message = "`--repair` works on a local directory and takes no server".to_owned();
            return Err(Mistake::usage("usage", message, "stop the server and name its directory with `--data DIR`").into());
        }
        Endpoint::Directory(path) => directory::check(&path, args.quick, global, &mut findings).await,
        Endpoint::Server { url, key } => server::check(&url, key.as_deref(), global, &mut findings).await?,
    }
    if global.json {
        print_json(&findings.document())?;
    } else {
        findings.sum_up();
    }
    Ok(ExitCode::from(if findings.failed() { FAILURE } else { 0 }))
}
