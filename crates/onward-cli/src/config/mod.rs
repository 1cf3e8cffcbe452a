//! Settings: a flag before the environment, the environment before the file, the file before the default.
//!
//! Owns the one table of what can be set ([`KEYS`]); names, environment variables, the file and `onward config show` all follow from
//! it. What a value must look like is known where it is used. Must never print a secret.

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
pub use keys::{KEYS, Key};
pub use tables::{AgentSettings, McpSettings, NeedsApproval, Tables};

/// Where a value comes from; a later one beats an earlier one.
#[derive(Debug, Clone)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(&'static str),
}

impl Origin {
    fn rank(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File { .. } => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        }
    }

    /// Whether this beats the other; neither beats its own kind.
    pub fn beats(&self, other: &Origin) -> bool {
        self.rank() > other.rank()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Value {
    pub text: String,
    pub origin: Origin,
}

/// The settings of one call of the program.
#[derive(Debug, Default)]
pub struct Config {
    flags: BTreeMap<&'static str, (String, &'static str)>,
    file: Option<File>,
}

impl Config {
    /// Reads the file that `named` or the environment names, or the first that is there: `onward.toml` here, then the user's own.
    pub fn load(named: Option<&Path>) -> Result<Config> {
        environment::check(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
        let named = named.map(Path::to_owned).or_else(|| variable(environment::CONFIG).map(PathBuf::from));
        let file = match named {
            Some(path) => Some(File::read(&path)?),
            None => candidates().into_iter().find(|path| path.is_file()).map(|path| File::read(&path)).transpose()?,
        };
        Ok(Config { flags: BTreeMap::new(), file })
    }

    /// Notes what a flag said, if it was given.
    pub fn flag(&mut self, name: &'static str, flag: &'static str, text: Option<String>) {
        debug_assert!(Key::of(name).is_some(), "{name} is in the table");
        if let Some(text) = text {
            self.flags.insert(name, (text, flag));
        }
    }

    /// The value that counts; `None` where nobody set one and there is no default.
    pub fn get(&self, name: &str) -> Option<Value> {
        let key = Key::of(name)?;
        if let Some((text, flag)) = self.flags.get(name) {
            return Some(Value { text: text.clone(), origin: Origin::Flag(flag) });
        }
        let name = key.variable();
        if let Some(text) = variable(&name) {
            return Some(Value { text, origin: Origin::Environment(name) });
        }
        if let Some(file) = &self.file
            && let Some((text, line)) = file.get(key)
        {
            return Some(Value { text, origin: Origin::File { path: file.path.clone(), line } });
        }
        key.default.map(|default| Value { text: default(), origin: Origin::Default })
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.text)
    }

    /// The value as `parse` understands it; one that it does not is told with where it comes from.
    pub fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Mistake> {
        let Some(value) = self.get(name) else { return Ok(None) };
        parse(&value.text).map(Some).map_err(|why| {
            let message = format!("`{name}` is `{}`, from {}: {why}", value.text, value.origin);
            Mistake::usage("config_invalid", message, "`onward config show --origin` shows every setting and its source")
        })
    }

    /// Models and agents, as the file has them.
    pub fn tables(&self) -> Option<&Tables> {
        self.file.as_ref().map(|file| &file.tables)
    }

    /// What callers may let runs spend at most.
    pub fn ceilings(&self) -> Result<Ceilings, Mistake> {
        self.tables().map_or(Ok(Ceilings::default()), Tables::ceilings).map_err(|error| {
            let message = format!("a table of `namespaces` is not the name of one: {error}");
            Mistake::usage("config_invalid", message, "`[namespaces.shop]`, or `[namespaces.\"*\"]` for all of them")
        })
    }

    /// The file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
}

/// A variable that is there and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Where a file is looked for when nobody names one.
fn candidates() -> Vec<PathBuf> {
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let mut all = vec![PathBuf::from("onward.toml")];
    all.extend(user.map(|directory| directory.join("onward").join("onward.toml")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_beats_the_environment_and_so_on_down() {
        let file = Origin::File { path: "a".into(), line: 1 };
        let environment = Origin::Environment("A".to_owned());
        assert!(Origin::Flag("--a").beats(&environment) && environment.beats(&file) && file.beats(&Origin::Default));
        assert!(!file.beats(&Origin::File { path: "b".into(), line: 9 }));
    }
}
