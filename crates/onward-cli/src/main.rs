//! The `onward` command.
//!
//! Data goes to stdout, everything else to stderr. Every verb goes through one door, to a server or to a directory: there, reading
//! verbs open it read-only and work beside a running worker, writing verbs take its lock. No verb starts a worker; `dev` and `server`,
//! which open the doors of `onward-server` over a store, do for the models and agents of the settings.

#![forbid(unsafe_code)]

mod args;
mod blockers;
mod builtin_agents;
mod commands;
mod config;
mod connection;
mod directory;
mod error;
mod interrupt;
mod modes;
mod new_id;
mod output;
mod serving;
mod span;
mod stopping;

use std::process::ExitCode;

/// Commits are made on one thread and dropped on another, which the system's allocator is slow at (ADR 0028).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let json = cli.global.json;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return error::tell(&error.into(), json),
    };
    let done = runtime.block_on(async {
        if cli.command.ends_by_itself() { commands::execute(cli).await } else { interrupt::or(commands::execute(cli)).await }
    });
    // A thread that reads the terminal must not keep the process.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) => error::tell(&error, json),
    }
}
