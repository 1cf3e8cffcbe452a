//! `onward doctor`: checks the machine and a directory or server, and suggests fixes.
//!
//! Must never change a directory without `--repair`: it opens directories read-only, and deletes the file with which it measures
//! syncs.

mod directory;
mod finding;
mod server;
mod work;

use anyhow::Result;
use clap::Args;
use onward_core::ErrorCode;
use rustix::process::{Resource, getrlimit};

use crate::args::Global;
use crate::connection::Endpoint;
use crate::error::{Exit, FAILURE, Mistake};
use crate::output::print_json;
use finding::Findings;

/// Recommended limit of open files: each connection is one.
const FILES_WANTED: u64 = 8_192;

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
pub async fn execute(args: DoctorArgs, global: &Global) -> Result<()> {
    let mut findings = Findings::new(!global.json);
    check_machine(&mut findings);
    match Endpoint::of(global)? {
        Endpoint::Directory(path) if args.repair => directory::repair(&path, &mut findings),
        Endpoint::Server { .. } if args.repair => {
            let message = "`--repair` works on a local directory and takes no server".to_owned();
            return Err(
                Mistake::usage(ErrorCode::Usage, message, "stop the server and name its directory with `--data DIR`").into()
            );
        }
        Endpoint::Directory(path) => directory::check(&path, args.quick, global, &mut findings).await,
        Endpoint::Server { url, key } => server::check(&url, key.as_deref(), global, &mut findings).await?,
    }
    if global.json {
        print_json(&findings.document())?;
    } else {
        findings.sum_up();
    }
    if findings.failed() { Err(Exit(FAILURE).into()) } else { Ok(()) }
}

/// Checks the limits that a server would have on this machine.
fn check_machine(findings: &mut Findings) {
    findings.ok("program", format!("onward {}", env!("CARGO_PKG_VERSION")));
    let limit = getrlimit(Resource::Nofile);
    // A server raises its soft limit, at most to the hard limit.
    match limit.maximum {
        Some(maximum) if maximum < FILES_WANTED => findings.warn(
            "open files",
            format!("limit {maximum}: a server can have about as many connections"),
            "raise the hard limit: LimitNOFILE= in a systemd unit, `nofile` in /etc/security/limits.conf",
        ),
        Some(maximum) => findings.ok("open files", format!("limit {maximum}")),
        None => findings.ok("open files", "no limit"),
    }
}
