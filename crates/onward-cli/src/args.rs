//! The command line: its grammar, and how a mistake in it is told.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser};

use crate::commands::Command;
use crate::error::{USAGE, style_of};
use crate::output::{escape, print, say};

/// The directory when nobody names one.
const DATA_DEFAULT: &str = "./onward-data";

/// Functions that survive crashes: look at runs, answer them, and see a demo.
/// The version, and in release builds the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("ONWARD_BUILT_FROM"));

#[derive(Debug, Parser)]
#[command(name = "onward", version = VERSION, after_help = "New here? `onward demo` kills its own worker and loses nothing.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Args)]
pub struct Global {
    /// The directory with the runs [env: ONWARD_DATA] [default: ./onward-data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

impl Global {
    /// The directory by flag, environment or default, in this order.
    pub fn directory(&self) -> PathBuf {
        let named =
            self.data.clone().or_else(|| std::env::var_os("ONWARD_DATA").filter(|text| !text.is_empty()).map(PathBuf::from));
        named.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT))
    }
}

/// The parsed command line, or the code to end with after help or a mistake was told.
pub fn parse() -> Result<Cli, ExitCode> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let text = escape::lines(&error.render().to_string());
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        drop(print(&text)); // nobody reads it: that is no error
        return Err(ExitCode::SUCCESS);
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    say(&format!("{} {}", style_of("usage"), text.trim_end()));
    Err(ExitCode::from(USAGE))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_grammar_has_no_contradictions() {
        super::Cli::command().debug_assert();
    }
}
