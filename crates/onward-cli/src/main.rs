//! The `onward` command.
//!
//! Data goes to stdout, everything else to stderr. Commands use one client API for a server and for a directory. On a directory,
//! commands that read open it read-only beside a running worker, and commands that write take its lock. Only `dev`, `server` and
//! `chat` start workers, for the models and agents of the settings.

#![forbid(unsafe_code)]

mod args;
mod blocked_on;
mod budget;
mod builtin_agents;
mod builtin_flows;
mod commands;
mod config;
mod connection;
mod directory;
mod error;
mod modes;
mod new_id;
mod output;
mod serving;
mod span;

use std::process::ExitCode;

use error::{Exit, INTERRUPTED};
use onward_allocator as _;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let json = cli.global.json;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return error::print_error(&error.into(), json),
    };
    let done = runtime.block_on(async {
        if cli.command.ends_by_itself() {
            return commands::execute(cli).await;
        }
        tokio::select! {
            biased; // registers the signal handler before the command starts, so that an early Ctrl-C counts
            Ok(()) = tokio::signal::ctrl_c() => Err(Exit(INTERRUPTED).into()),
            done = commands::execute(cli) => done,
        }
    });
    // A thread that reads the terminal must not delay the exit.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::print_error(&error, json),
    }
}
