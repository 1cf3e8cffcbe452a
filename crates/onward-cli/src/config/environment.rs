//! Checks environment variables with the prefix `ONWARD_`.
//!
//! Rejects only names that look like a mistyped setting: other names with the prefix may belong to a user's program or an SDK.

use super::file::{distance, nearest};
use super::{KEYS, Key};
use crate::error::Mistake;

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
    Err(Mistake::usage("config_invalid", format!("unknown setting {name} in the environment"), &hint))
}

/// Returns the variable that a name without its prefix resembles, if any.
fn meant(rest: &str) -> Option<String> {
    if rest.contains("__") {
        return nearest(&rest.replace("__", ".")).and_then(Key::of).map(Key::variable);
    }
    let settings = KEYS.iter().flat_map(|key| {
        let whole = key.name.replace('.', "_");
        let last = key.name.rsplit('.').next().unwrap_or(key.name).to_owned();
        [(whole, key.variable()), (last, key.variable())]
    });
    let known = settings.chain([("config".to_owned(), CONFIG.to_owned())]);
    let far = known.map(|(word, variable)| (distance(rest, &word), word.len(), variable));
    far.filter(|(far, len, _)| *far <= TYPO_MAX.min(len / 3)).min().map(|(_, _, variable)| variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(name: &str) -> Option<String> {
        check([name.to_owned()].into_iter()).err().and_then(|mistake| mistake.hint)
    }

    #[test]
    fn a_name_that_looks_like_a_setting_and_is_none_is_told_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("ONWARD_NAMESPCE", "ONWARD_NAMESPACE"),
            ("ONWARD_URLL", "ONWARD_URL"),
            ("ONWARD_KEYFILE", "ONWARD_KEY_FILE"),
            ("ONWARD_KEEY", "ONWARD_KEY"),
            ("ONWARD_CONFG", "ONWARD_CONFIG"),
            ("ONWARD_LOG_LEVEL", "ONWARD_LOG__LEVEL"),
            ("ONWARD_LISTEN", "ONWARD_SERVER__LISTEN"),
            ("ONWARD_LIMITS__CONNECTION_MAX", "ONWARD_LIMITS__CONNECTIONS_MAX"),
        ] {
            assert_eq!(hint(name), Some(format!("did you mean {meant}?")), "{name}");
        }
        assert_eq!(hint("ONWARD_SOMETHING__ELSE_ALTOGETHER").as_deref(), Some("`onward config show` lists all settings"));
    }

    #[test]
    fn settings_and_the_names_of_others_are_left_alone() {
        let settings = KEYS.iter().map(Key::variable);
        let ours = "BIN BUILT_FROM CASES CHECK CONFIG FAILPOINT FAILPOINT_LOG GEN POISONED RECORD_GOLDEN RETRY_SEED SEED SLOW \
                    TEST_ALONE TEST_DIRECTORY TEST_ROLE TORTURE_MINUTES TORTURE_SEED WRITE ZOMBIE";
        let ours = ours.split_whitespace().map(|name| format!("{PREFIX}{name}"));
        let theirs = ["ONWARD_MY_QUEUE", "ONWARD_HOST", "ONWARD_", "PATH"].map(str::to_owned);
        for name in settings.chain(ours).chain(theirs) {
            assert_eq!(hint(&name), None, "{name}");
        }
    }
}
