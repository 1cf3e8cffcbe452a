//! `onward completions`: completion scripts for shells.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::print;

#[derive(Debug, Args)]
#[command(after_help = "\
bash  onward completions bash > ~/.local/share/bash-completion/completions/onward
zsh   onward completions zsh > ~/.zfunc/_onward      # a directory in $fpath
fish  onward completions fish > ~/.config/fish/completions/onward.fish")]
pub struct CompletionsArgs {
    /// Shell to generate the script for
    shell: KnownShell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

pub fn execute(args: &CompletionsArgs) -> Result<ExitCode> {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onward", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
