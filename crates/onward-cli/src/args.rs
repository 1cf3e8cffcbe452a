//! The command line: its grammar and its usage errors.

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

/// The version; release builds append their commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("ONWARD_BUILT_FROM"));

/// Durable execution: run servers, start and inspect runs, decide approvals
#[derive(Debug, Parser)]
#[command(name = "onward", version = VERSION, after_help = "New here? Try `onward demo`: an order survives kill -9.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: GlobalArgs,
}

#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// URL of the server [env: ONWARD_URL]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "data", help_heading = "Connection")]
    server: Option<String>,
    /// File with the API key [env: ONWARD_KEY_FILE, or the key itself in ONWARD_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    key_file: Option<PathBuf>,
    /// Data directory to use instead of a server [env: ONWARD_DATA] [default: ./onward-data]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Connection")]
    data: Option<PathBuf>,
    /// Namespace [env: ONWARD_NAMESPACE] [default: default]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Connection")]
    namespace: Option<String>,
    /// Settings file [env: ONWARD_CONFIG] [default: ./onward.toml, then onward/onward.toml in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    config: Option<PathBuf>,
    /// Print results and errors as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// Resolved global options.
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
    /// Returns the data directory from the setting with the highest precedence.
    pub fn directory(&self) -> PathBuf {
        PathBuf::from(self.config.text("data").unwrap_or_default())
    }

    /// Returns the data directory only if `--data` was given.
    pub fn named_directory(&self) -> Option<PathBuf> {
        let data = self.config.get("data")?;
        matches!(data.origin, crate::config::SettingOrigin::Flag(_)).then(|| PathBuf::from(data.text))
    }

    pub fn namespace(&self) -> Result<Namespace, RuntimeError> {
        Ok(Namespace::new(self.config.text("namespace").unwrap_or_default())?)
    }

    /// Fails if `--server` was given: `command` works on local files.
    pub fn without_server(&self, command: &str) -> Result<(), Mistake> {
        match self.config.get("url") {
            Some(url) if matches!(url.origin, crate::config::SettingOrigin::Flag(_)) => {
                let message = format!("`onward {command}` works on local files and takes no `--server`");
                Err(Mistake::usage("usage", message, "remove `--server`; name the directory with `--data DIR`"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses the command line. Returns the exit code as an error after printing help, the version or a usage error.
pub fn parse() -> Result<Cli, ExitCode> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let text = escape::lines(&error.render().to_string());
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        drop(print(&text)); // a closed stdout is not an error
        return Err(ExitCode::SUCCESS);
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    Err(error::print_usage(text, wants_json(std::env::args_os())))
}

/// Looks for `--json` in a command line that did not parse.
fn wants_json(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "--").any(|arg| arg == Path::new("--json"))
}

#[cfg(test)]
mod tests;
