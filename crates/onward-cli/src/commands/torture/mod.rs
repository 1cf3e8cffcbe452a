use crate::args::Global;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct TortureArgs {}
pub async fn work(_args: TortureArgs, _global: &Global) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
