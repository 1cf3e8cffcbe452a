//! The command line: its grammar, and how a mistake in it is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, Parser};
use onward_core::Namespace;
use onward_runtime::RuntimeError;

use crate::commands::Command;
use crate::config::Config;
use crate::error::{self, Mistake};
use crate::output::{escape, print};

/// Functions that survive crashes: look at runs, answer them, and see a demo.
/// The version, and in release builds the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("ONWARD_BUILT_FROM"));

#[derive(Debug, Parser)]
#[command(name = "onward", version = VERSION, after_help = "New here? `onward demo` kills its own worker and loses nothing.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: GlobalArgs,
}

#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// The server to work on [env: ONWARD_URL]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "data", help_heading = "Where")]
    server: Option<String>,
    /// A file with the key that the server asks for [env: ONWARD_KEY_FILE, or the key itself in ONWARD_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Where")]
    key_file: Option<PathBuf>,
    /// The directory to work on, where there is no server [env: ONWARD_DATA] [default: ./onward-data]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Where")]
    data: Option<PathBuf>,
    /// The namespace [env: ONWARD_NAMESPACE] [default: default]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Where")]
    namespace: Option<String>,
    /// The settings [env: ONWARD_CONFIG] [default: ./onward.toml, or onward/onward.toml where your settings are]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Where")]
    config: Option<PathBuf>,
    /// Print JSON instead of text, for results and for errors
    #[arg(long, global = true)]
    pub json: bool,
}

/// What all commands share, once it is known.
#[derive(Debug)]
pub struct Global {
    pub json: bool,
    pub config: Config,
}

impl GlobalArgs {
    pub fn resolve(self) -> Result<Global> {
        let mut config = Config::load(self.config.as_deref())?;
        let path = |path: Option<PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
        config.flag("url", "--server", self.server);
        config.flag("key_file", "--key-file", path(self.key_file));
        config.flag("data", "--data", path(self.data));
        config.flag("namespace", "--namespace", self.namespace);
        Ok(Global { json: self.json, config })
    }
}

impl Global {
    /// The directory, by whatever says so first.
    pub fn directory(&self) -> PathBuf {
        PathBuf::from(self.config.text("data").unwrap_or_default())
    }

    /// The directory, if a flag names it.
    pub fn named_directory(&self) -> Option<PathBuf> {
        let data = self.config.get("data")?;
        matches!(data.origin, crate::config::Origin::Flag(_)).then(|| PathBuf::from(data.text))
    }

    pub fn namespace(&self) -> Result<Namespace, RuntimeError> {
        Ok(Namespace::new(self.config.text("namespace").unwrap_or_default())?)
    }

    /// For commands that work on files of this machine: a server that a flag names is a mistake.
    pub fn without_server(&self, command: &str) -> Result<(), Mistake> {
        match self.config.get("url") {
            Some(url) if matches!(url.origin, crate::config::Origin::Flag(_)) => {
                let message = format!("`onward {command}` works on this machine and not over a server");
                Err(Mistake::usage("usage", message, "leave `--server` out; `--data DIR` names the directory"))
            }
            _ => Ok(()),
        }
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
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    Err(error::tell_usage(text, wants_json(std::env::args_os())))
}

/// Whether a command line that could not be understood asks for JSON.
fn wants_json(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "--").any(|arg| arg == Path::new("--json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_has_no_contradictions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_comes_after_two_dashes_is_somebody_elses() {
        let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter();
        assert!(wants_json(args("onward rum --json")));
        assert!(!wants_json(args("onward dev -- x --json")));
    }
}
