//! Files at the root, the length of files, and leftovers in them.

use super::Sources;

/// The first screen of the repository. Notes, results and drafts belong elsewhere.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "clippy.toml",
    "console",
    "crates",
    "deny.toml",
    "docs",
    "examples",
    "rustfmt.toml",
    "sdks",
    "tests",
    "xtask",
];

const LINES_MAX: usize = 1_000;

// Split, so that this file passes its own check.
const TO_DO: &str = concat!("TO", "DO");
const FIX_ME: &str = concat!("FIX", "ME");

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let mut strangers: Vec<&str> = sources.texts(|_| true).filter_map(|(path, _)| path.split('/').next()).collect();
    strangers.retain(|name| !ROOT.contains(name));
    strangers.dedup();
    problems
        .extend(strangers.iter().map(|name| format!("{name} does not belong at the root; see ROOT in xtask/src/tidy/files.rs")));

    for (path, text) in sources.rust() {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            problems.push(format!("{path} has {lines} lines; split it, {LINES_MAX} is the most"));
        }
    }
    for (path, text) in sources.texts(|_| true) {
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            if line.contains(FIX_ME) {
                problems.push(format!("{path}:{number}: {FIX_ME} is left"));
            }
            if has_open_to_do(line) {
                problems.push(format!("{path}:{number}: a {TO_DO} needs an issue: {TO_DO}(#123)"));
            }
        }
    }
}

fn has_open_to_do(line: &str) -> bool {
    line.split(TO_DO).skip(1).any(|rest| {
        let issue = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')')).map(|(issue, _)| issue);
        issue.is_none_or(|issue| issue.parse::<u32>().is_err())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_issue_excuses_what_is_left_to_do() {
        assert!(has_open_to_do(&format!("// {TO_DO}: later")));
        assert!(has_open_to_do(&format!("// {TO_DO}(ada): later")));
        assert!(!has_open_to_do(&format!("// {TO_DO}(#12): later")));
        assert!(!has_open_to_do("nothing to do"));
    }
}
