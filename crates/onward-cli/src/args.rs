//! The command line: its grammar, its usage errors, values of arguments, and the choice between text and JSON.

use std::ffi::OsString;
use std::io::read_to_string;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser};
use onward_core::{ErrorCode, Namespace, Payload};
use onward_runtime::RuntimeError;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::commands::Command;
use crate::config::{Config, SettingOrigin};
use crate::error::{self, Mistake};
use crate::output::{TextTable, escape, print, print_json, print_stderr};

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
    /// Namespace [env: ONWARD_NAMESPACE] [default: the one of the API key, or `default`]
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
        matches!(data.origin, SettingOrigin::Flag(_)).then(|| PathBuf::from(data.text))
    }

    pub fn namespace(&self) -> Result<Namespace, RuntimeError> {
        Ok(Namespace::new(self.config.text("namespace").unwrap_or_default())?)
    }

    /// Returns the namespace only if one was set; otherwise a server uses that of the key.
    pub fn named_namespace(&self) -> Result<Option<Namespace>, RuntimeError> {
        let set = self.config.get("namespace").filter(|set| !matches!(set.origin, SettingOrigin::Default));
        Ok(set.map(|set| Namespace::new(set.text)).transpose()?)
    }

    /// Fails if `--server` was given: `command` works on local files.
    pub fn without_server(&self, command: &str) -> Result<(), Mistake> {
        match self.config.get("url") {
            Some(url) if matches!(url.origin, SettingOrigin::Flag(_)) => {
                let message = format!("`onward {command}` works on local files and takes no `--server`");
                Err(Mistake::usage(ErrorCode::Usage, message, "remove `--server`; name the directory with `--data DIR`"))
            }
            _ => Ok(()),
        }
    }

    /// Prints a document with `--json`, otherwise a text.
    pub fn show(&self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.json { print_json(document) } else { Ok(print(&text())?) }
    }

    /// Prints a document with `--json`, otherwise a table, or `none` on stderr if the table is empty.
    pub fn show_table(&self, document: &impl Serialize, mut table: TextTable, none: &str) -> Result<()> {
        if !self.json && table.is_empty() {
            print_stderr(none);
            return Ok(());
        }
        self.show(document, || table.take())
    }
}

/// Parses one of the words of a type.
pub fn parse_word<T: Copy>(all: &[T], word: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let words = || all.iter().map(|value| word(*value)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|value| word(*value) == text).ok_or_else(|| format!("must be one of {}", words()))
}

/// Returns the parser of an option whose values are the words of a type.
pub fn one_of<T>(all: &'static [T], word: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = PossibleValuesParser::new(all.iter().map(|value| word(*value)));
    words.map(move |text| parse_word(all, word, &text).expect("clap accepts only these words"))
}

/// Reads a file, or stdin if the path is `-`. `what` names the content in an error.
pub fn read_file(path: &Path, what: &str) -> Result<String> {
    if path == Path::new("-") {
        return read_to_string(std::io::stdin()).with_context(|| format!("cannot read {what} from stdin"));
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {what} from {}", path.display()))
}

/// Reads an argument: `@FILE`, `-` for stdin, or the text itself.
pub fn read_argument(text: &str, what: &str) -> Result<String> {
    match text.strip_prefix('@') {
        Some(path) => read_file(Path::new(path), what),
        None if text == "-" => read_file(Path::new("-"), what),
        None => Ok(text.to_owned()),
    }
}

/// Reads a payload argument. The bytes of the JSON text are recorded unchanged, without surrounding whitespace.
pub fn read_payload(text: &str) -> Result<Payload> {
    let text = read_argument(text, "the payload")?;
    let text = text.trim();
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        let hint = "quote a text: '\"hello\"'; use @FILE for a file and - for stdin";
        return Err(Mistake::usage(ErrorCode::PayloadInvalid, format!("the payload is not JSON: {error}"), hint).into());
    }
    Ok(Payload::from_json_text(text.to_owned()))
}

/// Reads a payload argument that is null if it is absent.
pub fn read_optional_payload(text: Option<&str>) -> Result<Payload> {
    text.map_or(Ok(Payload::null()), read_payload)
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
