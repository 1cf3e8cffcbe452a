//! A crate without unsafe code forbids it; one with unsafe code is listed here with its reason.

use super::Sources;

/// Crates that may have unsafe code. Each use has its own `allow` or `expect`, because the workspace denies it.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("onward", "wakers whose data lives on the stack of the poll that made them"),
    ("onward-store-embedded", "SQLite's VFS is made of C functions"),
    ("onward-testkit", "signals to processes, and the user of a child process; for tests"),
    ("onward-bench", "getrusage and fdatasync; for measurements"),
    ("onward-node", "the macros of napi generate C functions"),
];

const FORBID: &str = "#![forbid(unsafe_code)]";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path == "examples/lib.rs";
    for (path, text) in sources.texts(root) {
        let package = path.split("/src/").next().and_then(|folder| folder.rsplit('/').next()).unwrap_or_default();
        let is_exception = EXCEPTIONS.iter().any(|(name, _)| *name == package);
        if !is_exception && !text.lines().any(|line| line == FORBID) {
            problems.push(format!("{path}: a crate without unsafe code needs `{FORBID}`; see xtask/src/tidy/unsafe_code.rs"));
        }
    }
    for (name, _) in EXCEPTIONS {
        let folder = format!("/{name}/src/");
        if !sources.texts(|path| path.contains(&folder)).any(|(_, text)| text.contains("unsafe_code, reason")) {
            problems.push(format!("{name} has no unsafe code: remove it from the list in xtask/src/tidy/unsafe_code.rs"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let allowed =
            |(name, _): &(&str, &str)| (format!("crates/{name}/src/x.rs"), "#[allow(unsafe_code, reason = \"\")]".to_owned());
        let mut files: Vec<(String, String)> = EXCEPTIONS.iter().map(allowed).collect();
        files.push((path.to_owned(), text.to_owned()));
        let mut problems = Vec::new();
        check(&Sources { files }, &mut problems);
        problems.len()
    }

    #[test]
    fn a_crate_forbids_unsafe_code_or_is_an_exception() {
        assert_eq!(problems("crates/onward-core/src/lib.rs", "//! A crate.\n\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(problems("crates/onward-core/src/lib.rs", "//! A crate.\n"), 1);
        assert_eq!(problems("crates/onward-core/src/lib.rs", "//! #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(problems("xtask/src/main.rs", "fn main() {}\n"), 1);
        assert_eq!(problems("crates/onward-bench/src/main.rs", "fn main() {}\n"), 0);
    }

    #[test]
    fn an_exception_that_is_none_any_more_is_named() {
        let mut problems = Vec::new();
        check(&Sources { files: Vec::new() }, &mut problems);
        assert_eq!(problems.len(), EXCEPTIONS.len());
    }
}
