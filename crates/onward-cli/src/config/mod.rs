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

use anyhow::Result;
use onward_server::Ceilings;

use crate::error::Mistake;
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
            Mistake::usage("config_invalid", message, "see `onward config show --origin` for all settings and their origins")
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
            Mistake::usage("config_invalid", message, "use `[namespaces.shop]`, or `[namespaces.\"*\"]` for all namespaces")
        })
    }

    /// Returns the path of the file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
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
