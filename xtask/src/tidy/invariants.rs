//! `docs/invariants.md`, made from the module docs: an index from the number of an invariant to the module that states it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Sources;

pub const PAGE: &str = "docs/invariants.md";

const HEAD: &str = "\
# Index of invariants

Module docs state the invariants of their module under a number.
This index, made by `cargo xtask tidy --write`, says which module.
Numbers in parentheses are the guarantees behind an invariant ([guide/guarantees.md](guide/guarantees.md)).
A number is cited where it is asserted, tested or relied upon, so one search leads from guarantee to proof.
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
    let mut last_crate = "";
    for (path, text) in sources.crate_sources() {
        let found: Vec<String> = invariants(text).iter().map(Invariant::index_entry).collect();
        let Some(crate_name) = path.split('/').nth(1).filter(|_| !found.is_empty()) else { continue };
        // Writing to a String cannot fail.
        if crate_name != last_crate {
            let _ = write!(page, "\n## {crate_name}\n\n| module | invariants |\n|---|---|\n");
            last_crate = crate_name;
        }
        let file = path.split_once("/src/").map_or(path, |(_, file)| file);
        let _ = writeln!(page, "| `{file}` | {} |", found.join(", "));
    }
    page
}

impl Invariant {
    /// Returns the number and the guarantees behind it: `R1 (L3, L7)`.
    fn index_entry(&self) -> String {
        let guarantees = self.text.split_once("): ").map(|(guarantees, _)| guarantees).filter(|text| text.starts_with(" ("));
        guarantees.map_or_else(|| format!("`{}`", self.number), |guarantees| format!("`{}{guarantees})`", self.number))
    }
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
    fn an_entry_has_the_guarantees_behind_the_invariant() {
        let entry = |line: &str| invariants(&format!("//! - {line}\n"))[0].index_entry();
        assert_eq!(entry("R1 (L3, L7): a commit (of a run) is one"), "`R1 (L3, L7)`");
        assert_eq!(entry("R2: a commit (of a run): it is one"), "`R2`");
    }
}
