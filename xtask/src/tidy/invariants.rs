//! `docs/invariants.md`, made from the module docs: one place to read every numbered invariant.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Sources;

pub const PAGE: &str = "docs/invariants.md";

const HEAD: &str = "\
# Invariants

Made by `cargo xtask tidy --write` from the module docs; edit those.
Numbers in parentheses are the promises behind an invariant; they are explained in [guide/guarantees.md](guide/guarantees.md).
A number is cited where it is asserted, tested or relied upon, so one search leads from promise to proof.
";

#[derive(Debug, PartialEq)]
struct Invariant {
    number: String,
    text: String,
}

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    if sources.text(PAGE) != Some(&page(sources)) {
        problems.push(format!("{PAGE} is not what the module docs say: cargo xtask tidy --write"));
    }
    // Across all crates: a search for a number leads to one invariant.
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for (path, text) in sources.crate_sources() {
        for Invariant { number, .. } in invariants(text) {
            if let Some(owner) = owners.insert(number.clone(), path) {
                problems.push(format!("{path}: the invariant number {number} is taken by {owner}"));
            }
        }
    }
}

pub fn page(sources: &Sources) -> String {
    let mut page = HEAD.to_owned();
    for (path, text) in sources.crate_sources() {
        let found = invariants(text);
        if found.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {}\n\n`{path}`: {}\n\n", module(path), owner(text));
        for Invariant { number, text } in found {
            let _ = writeln!(page, "- {number}{text}");
        }
    }
    page
}

/// `crates/onward-core/src/engine/mailbox.rs` is `onward_core::engine::mailbox`.
fn module(path: &str) -> String {
    let path = path.trim_start_matches("crates/").trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/lib");
    path.replace("/src", "").replace('/', "::").replace('-', "_")
}

/// The first sentence of a module's doc.
fn owner(text: &str) -> String {
    module_doc(text).next().unwrap_or_default().to_owned()
}

fn module_doc(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line))
}

fn invariants(text: &str) -> Vec<Invariant> {
    let mut found: Vec<Invariant> = Vec::new();
    let mut open = false;
    for line in module_doc(text) {
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("Invariant "));
        if let Some((number, text)) = item.and_then(split_number) {
            found.push(Invariant { number: number.to_owned(), text: text.to_owned() });
            open = true;
        } else if line.is_empty() || item.is_some() {
            open = false;
        } else if open && let Some(last) = found.last_mut() {
            last.text.push(' ');
            last.text.push_str(line.trim());
        }
    }
    found
}

/// `R1 (L3, L7): a commit …` is `R1` and ` (L3, L7): a commit …`.
fn split_number(item: &str) -> Option<(&str, &str)> {
    let letters = item.bytes().take_while(u8::is_ascii_uppercase).count();
    let digits = item[letters..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = item.split_at(letters + digits);
    let is_invariant = letters > 0 && digits > 0 && (rest.starts_with(": ") || (rest.starts_with(" (") && rest.contains("): ")));
    is_invariant.then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_with_their_continuations() {
        let text = "//! A thing.\n//!\n//! Invariants:\n//! - H1 (L1): no gaps\n//!   at all.\n//! - H2: an end.\n//!\n\
                    //! Invariant P1: bytes\n//! are bytes.\n\nuse x;\n//! - H9: not the module's doc.\n";
        let found: Vec<String> = invariants(text).iter().map(|found| format!("{}{}", found.number, found.text)).collect();
        assert_eq!(found, ["H1 (L1): no gaps at all.", "H2: an end.", "P1: bytes are bytes."]);
    }

    #[test]
    fn a_path_is_a_module() {
        assert_eq!(module("crates/onward-core/src/engine/mailbox.rs"), "onward_core::engine::mailbox");
        assert_eq!(module("crates/onward/src/ctx/mod.rs"), "onward::ctx");
        assert_eq!(module("crates/onward/src/lib.rs"), "onward");
    }
}
