//! Settings. Precedence: flag, environment, file, default.
//!
//! The table [`KEYS`] defines names, environment variables, the file format and `onward config show`. Values are parsed where
//! they are used. Must never print a secret.

mod environment;
mod file;
mod keys;
mod tables;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::{ErrorCode, KindDefaults, Name};
use onward_server::{Ceilings, Limits};

use crate::error::Mistake;
use crate::span;
use file::File;
pub use keys::{KEYS, SettingKey};
pub use tables::{AgentSettings, McpSettings, NeedsApproval, Tables};

/// Origin of a value, in ascending precedence.
#[derive(Debug, Clone)]
pub enum SettingOrigin {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(&'static str),
}

impl SettingOrigin {
    fn rank(&self) -> u8 {
        match self {
            SettingOrigin::Default => 0,
            SettingOrigin::File { .. } => 1,
            SettingOrigin::Environment(_) => 2,
            SettingOrigin::Flag(_) => 3,
        }
    }

    /// Returns whether this origin takes precedence; false for two of the same kind.
    pub fn beats(&self, other: &SettingOrigin) -> bool {
        self.rank() > other.rank()
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::File { path, line } => write!(f, "{}:{line}", path.display()),
            SettingOrigin::Environment(name) => f.write_str(name),
            SettingOrigin::Flag(flag) => f.write_str(flag),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Value {
    pub text: String,
    pub origin: SettingOrigin,
}

/// The settings of this process.
#[derive(Debug, Default)]
pub struct Config {
    flags: BTreeMap<&'static str, (String, &'static str)>,
    file: Option<File>,
}

impl Config {
    /// Reads the file of `named` or the environment, or the first that exists: `onward.toml` in the working directory, then the
    /// user's.
    pub fn load(named: Option<&Path>) -> Result<Config> {
        environment::check(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
        let named = named.map(Path::to_owned).or_else(|| variable(environment::CONFIG).map(PathBuf::from));
        let file = match named {
            Some(path) => Some(File::read(&path)?),
            None => candidates().into_iter().find(|path| path.is_file()).map(|path| File::read(&path)).transpose()?,
        };
        Ok(Config { flags: BTreeMap::new(), file })
    }

    /// Sets a value from a flag, if it was given.
    pub fn flag(&mut self, name: &'static str, flag: &'static str, text: Option<String>) {
        debug_assert!(SettingKey::of(name).is_some(), "{name} is in the table");
        if let Some(text) = text {
            self.flags.insert(name, (text, flag));
        }
    }

    /// Returns the effective value; `None` if it is not set and has no default.
    pub fn get(&self, name: &str) -> Option<Value> {
        let key = SettingKey::of(name)?;
        if let Some((text, flag)) = self.flags.get(name) {
            return Some(Value { text: text.clone(), origin: SettingOrigin::Flag(flag) });
        }
        let name = key.variable();
        if let Some(text) = variable(&name) {
            return Some(Value { text, origin: SettingOrigin::Environment(name) });
        }
        if let Some(file) = &self.file
            && let Some((text, line)) = file.get(key)
        {
            return Some(Value { text, origin: SettingOrigin::File { path: file.path.clone(), line } });
        }
        key.default.map(|default| Value { text: default(), origin: SettingOrigin::Default })
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.text)
    }

    /// Returns the parsed value. The error of an invalid value names its origin.
    pub fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Mistake> {
        let Some(value) = self.get(name) else { return Ok(None) };
        parse(&value.text).map(Some).map_err(|why| {
            let message = format!("invalid setting `{name}` = `{}` from {}: {why}", value.text, value.origin);
            Mistake::usage(
                ErrorCode::ConfigInvalid,
                message,
                "see `onward config show --origin` for all settings and their origins",
            )
        })
    }

    /// Returns the tables of models and agents in the file.
    pub fn tables(&self) -> Option<&Tables> {
        self.file.as_ref().map(|file| &file.tables)
    }

    /// Returns the maximum budgets that callers may give to runs.
    pub fn ceilings(&self) -> Result<Ceilings, Mistake> {
        self.tables().map_or(Ok(Ceilings::default()), Tables::ceilings).map_err(|error| {
            let message = format!("invalid namespace in a table of `namespaces`: {error}");
            Mistake::usage(
                ErrorCode::ConfigInvalid,
                message,
                "use `[namespaces.shop]`, or `[namespaces.\"*\"]` for all namespaces",
            )
        })
    }

    /// Returns the defaults of kinds.
    pub fn defaults(&self) -> Result<BTreeMap<Name, KindDefaults>, Mistake> {
        self.tables().map_or(Ok(BTreeMap::new()), Tables::defaults).map_err(|(kind, why)| {
            let message = format!("invalid defaults in the table `kinds.{kind}`: {why}");
            Mistake::usage(ErrorCode::ConfigInvalid, message, "see docs/guide/defaults.md for the options of a kind")
        })
    }

    /// Returns the limits of a server.
    pub fn limits(&self) -> Result<Limits, Mistake> {
        let defaults = Limits::default();
        let count = |name: &str, default: usize| Ok::<_, Mistake>(self.parsed(name, positive)?.unwrap_or(default));
        let time = |name: &str, default: Duration| Ok::<_, Mistake>(self.parsed(name, span::parse_positive)?.unwrap_or(default));
        Ok(Limits {
            connections_max: count("limits.connections_max", defaults.connections_max)?,
            streams_max: u32::try_from(count("limits.streams_max", defaults.streams_max as usize)?).unwrap_or(u32::MAX),
            body_bytes_max: count("limits.body_bytes_max", defaults.body_bytes_max)?,
            body_memory_max: count("limits.body_memory_max", defaults.body_memory_max)?,
            body_rate_min: count("limits.body_rate_min", defaults.body_rate_min as usize)? as u64,
            webhook_bytes_max: count("limits.webhook_bytes_max", defaults.webhook_bytes_max)?,
            webhook_memory_max: count("limits.webhook_memory_max", defaults.webhook_memory_max)?,
            header_bytes_max: count("limits.header_bytes_max", defaults.header_bytes_max)?,
            headers_max: count("limits.headers_max", defaults.headers_max)?,
            header_timeout: time("limits.header_timeout", defaults.header_timeout)?,
            body_timeout: time("limits.body_timeout", defaults.body_timeout)?,
            webhook_timeout: time("limits.webhook_timeout", defaults.webhook_timeout)?,
            idle_timeout: time("limits.idle_timeout", defaults.idle_timeout)?,
            write_timeout: time("limits.write_timeout", defaults.write_timeout)?,
            shutdown_timeout: time("limits.shutdown_timeout", defaults.shutdown_timeout)?,
            ..defaults
        })
    }

    /// Returns the lease duration: a worker without contact for longer loses its runs and tasks.
    pub fn lease(&self) -> Result<Duration, Mistake> {
        let default = onward_runtime::Options::default().lease;
        Ok(self.parsed("server.lease", span::parse_positive)?.unwrap_or(default))
    }

    /// Returns how many workers a run loses in a row before it is paused; 0 is no limit.
    pub fn pause_after_lost_workers(&self) -> Result<u32, Mistake> {
        let count =
            self.parsed("server.pause_after_lost_workers", |text| text.parse().map_err(|_| "must be an integer".to_owned()))?;
        Ok(count.unwrap_or(PAUSE_AFTER_LOST_WORKERS))
    }

    /// Returns the path of the file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be an integer greater than 0".to_owned())
}

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns the default paths of the settings file.
fn candidates() -> Vec<PathBuf> {
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let mut all = vec![PathBuf::from("onward.toml")];
    all.extend(user.map(|directory| directory.join("onward").join("onward.toml")));
    all
}

#[cfg(test)]
mod tests;
