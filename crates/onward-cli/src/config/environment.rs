//! Checks environment variables with the prefix `ONWARD_`.
//!
//! Rejects only names that look like a mistyped setting: other names with the prefix may belong to a user's program or an SDK.

use super::file::nearest;
use super::{KEYS, SettingKey};
use crate::error::Mistake;
use onward_core::ErrorCode;
use strsim::levenshtein;

/// Variable with the path of the settings file.
pub const CONFIG: &str = "ONWARD_CONFIG";

const PREFIX: &str = "ONWARD_";

/// Maximum edit distance to a known name; at most a third of its length.
const TYPO_MAX: usize = 3;

/// Fails for the first name that looks like a setting but is none.
pub fn check(names: impl Iterator<Item = String>) -> Result<(), Mistake> {
    names.map(|name| judge(&name)).find(Result::is_err).unwrap_or(Ok(()))
}

fn judge(name: &str) -> Result<(), Mistake> {
    let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(()) };
    if name == CONFIG || KEYS.iter().any(|key| key.variable() == name) {
        return Ok(());
    }
    let rest = rest.to_lowercase();
    let hint = match (meant(&rest), rest.contains("__")) {
        (Some(meant), _) => format!("did you mean {meant}?"),
        (None, true) => "`onward config show` lists all settings".to_owned(),
        (None, false) => return Ok(()),
    };
    Err(Mistake::usage(ErrorCode::ConfigInvalid, format!("unknown setting {name} in the environment"), &hint))
}

/// Returns the variable that a name without its prefix resembles, if any.
fn meant(rest: &str) -> Option<String> {
    if rest.contains("__") {
        return nearest(&rest.replace("__", ".")).and_then(SettingKey::of).map(SettingKey::variable);
    }
    let settings = KEYS.iter().flat_map(|key| {
        let whole = key.name.replace('.', "_");
        let last = key.name.rsplit('.').next().unwrap_or(key.name).to_owned();
        [(whole, key.variable()), (last, key.variable())]
    });
    let known = settings.chain([("config".to_owned(), CONFIG.to_owned())]);
    let far = known.map(|(word, variable)| (levenshtein(rest, &word), word.len(), variable));
    far.filter(|(far, len, _)| *far <= TYPO_MAX.min(len / 3)).min().map(|(_, _, variable)| variable)
}

#[cfg(test)]
mod tests;
