//! `onward completions`: completion scripts for shells.

use anyhow::Result;
use clap::{Args, CommandFactory};
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
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub fn execute(args: &CompletionsArgs) -> Result<()> {
    let shell: Shell = args.shell.parse().map_err(anyhow::Error::msg)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onward", &mut script);
    Ok(print(&String::from_utf8(script)?)?)
}
