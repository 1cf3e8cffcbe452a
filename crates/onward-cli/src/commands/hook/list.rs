//! `onward hook list`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::HooksArgs;
use super::shown::Shown;
use crate::args::Global;
use crate::output::{Table, print, print_json, say, time};

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    hooks: HooksArgs,
}

pub fn execute(args: &ListArgs, global: &Global) -> Result<ExitCode> {
    let hooks = match args.hooks.file(global).read() {
        Err(error) if error.is_missing() => Vec::new(),
        read => read?,
    };
    let now = time::now();
    let shown: Vec<Shown> = hooks.iter().map(|hook| Shown::new(hook, now)).collect();
    if global.json {
        print_json(&serde_json::json!({"hooks": shown}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if shown.is_empty() {
        say("no hooks");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["NAME", "FORMAT", "NAMESPACE", "CREATED", "SECRETS", "TARGET"]);
    for hook in &shown {
        table.row(vec![
            hook.name.into(),
            hook.format.into(),
            hook.namespace.into(),
            time::ago(hook.created_at, now).into(),
            hook.secrets.to_string().into(),
            hook.sentence().into(),
        ]);
    }
    print(&table.take())?;
    Ok(ExitCode::SUCCESS)
}
