//! `onward doctor`: looks at everything that is between a verb and its answer, and says what to do about what it finds.
//!
//! Must never change anything unless it is asked to repair: it opens directories for reading, and what it writes to try the disk is gone
//! when it ends.

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
use crate::connection::Place;
use crate::error::{FAILURE, Mistake};
use crate::output::print_json;
use finding::Findings;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Leave out what takes long: reading every log of a directory
    #[arg(long)]
    quick: bool,
    /// Take all that verifies of a damaged directory into a new database, list what is lost, and keep the damaged files beside it
    #[arg(long, conflicts_with = "quick")]
    repair: bool,
}

/// Ends with 1 when something fails; a warning is none.
pub async fn execute(args: DoctorArgs, global: &Global) -> Result<ExitCode> {
    let mut findings = Findings::new(!global.json);
    machine::check(&mut findings);
    match Place::of(global)? {
        Place::Directory(path) if args.repair => repair::repair(&path, &mut findings),
        Place::Server { .. } if args.repair => {
            let message = "a directory is repaired where it is, with no server over it".to_owned();
            return Err(Mistake::usage("usage", message, "stop the server, and name the directory with `--data DIR`").into());
        }
        Place::Directory(path) => directory::check(&path, args.quick, global, &mut findings).await,
        Place::Server { url, key } => server::check(&url, key.as_deref(), global, &mut findings).await?,
    }
    if global.json {
        print_json(&findings.document())?;
    } else {
        findings.sum_up();
    }
    Ok(ExitCode::from(if findings.failed() { FAILURE } else { 0 }))
}
