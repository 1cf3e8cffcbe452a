//! Tests that the page of guarantees names as a proof must exist.
//!
//! A citation is a name in backticks in a column with the heading `proof` or `test`: a module of tests (`crash`), one test
//! (`models::a_test_name`) or a module path (`onward::agent::prompt`). Its location follows from the words after it, up to the
//! next semicolon: ``in onward-cli``, ``in onward's `network` tests``, ``in `sizes` ``; otherwise from the section's default. A
//! CE number needs a test that begins with it, or a citation in its row.

use super::Sources;

const PAGE: &str = "docs/guide/guarantees.md";
const COUNTEREXAMPLES: &str = "crates/onward/tests/semantics/counterexamples.rs";

/// The folder of citations that name no crate, by the first word of the section's heading.
const DEFAULTS: &[(&str, &str)] = &[
    ("## L:", "crates/onward-store/src/conformance/"),
    ("## A:", "crates/onward/tests/engine/"),
    ("## F:", "crates/onward-store/src/conformance/"),
];

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let page = sources.text(PAGE).unwrap_or_default();
    let mut default = "";
    let mut proof_column = None;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("## ") {
            default = DEFAULTS.iter().find(|(heading, _)| line.starts_with(heading)).map_or("", |(_, folder)| folder);
        }
        let Some(cells) = cells(line) else {
            proof_column = None;
            continue;
        };
        let Some(column) = proof_column else {
            proof_column = Some(cells.iter().position(|cell| matches!(*cell, "proof" | "test")));
            continue;
        };
        let proof = column.and_then(|column| cells.get(column)).copied().unwrap_or_default();
        let found = citations(proof);
        if column.is_some() && found.is_empty() && !cells[0].starts_with('-') {
            problems.push(format!("{PAGE}:{}: `{}` names no test", number + 1, cells[0]));
        }
        for citation in found {
            if !citation.exists(sources, default) {
                problems.push(format!(
                    "{PAGE}:{}: there is no test `{}` {}",
                    number + 1,
                    citation.name,
                    citation.location(default)
                ));
            }
        }
        if let Some(case) = cells[0].strip_prefix("CE").and_then(|case| case.parse::<u32>().ok()) {
            let test = format!("fn ce{case:02}_");
            let elsewhere = cells.last().is_some_and(|cell| cell.contains(" in onward") || cell.contains("follows from"));
            if !elsewhere && !sources.text(COUNTEREXAMPLES).is_some_and(|text| text.contains(&test)) {
                problems.push(format!("{PAGE}:{}: CE{case} has no test in {COUNTEREXAMPLES}", number + 1));
            }
        }
    }
}

/// Returns the cells of a table row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

/// A name in backticks, and its location according to the words after it.
#[derive(Debug, PartialEq)]
struct Citation<'a> {
    name: &'a str,
    /// Packages, and the folder of their tests if one is named.
    packages: Vec<&'a str>,
    target: Option<&'a str>,
}

/// Returns the citations of a cell. Names of test folders are locations, not citations.
fn citations(cell: &str) -> Vec<Citation<'_>> {
    let mut found = Vec::new();
    for group in cell.split(';') {
        let pieces: Vec<&str> = group.split('`').collect();
        let is_target = |at: usize| {
            let before = pieces[at - 1].trim_end();
            before.ends_with("'s") || before.ends_with(" in") || before == "in"
        };
        let names: Vec<usize> = (1..pieces.len()).step_by(2).collect();
        for at in names.iter().copied().filter(|at| !is_target(*at)) {
            let mut citation = Citation { name: pieces[at], packages: Vec::new(), target: None };
            // The next words with a location.
            for words in (at + 1..pieces.len()).step_by(2) {
                if let Some((_, location)) =
                    pieces[words].split_once(" in ").or_else(|| pieces[words].strip_prefix("in ").map(|rest| ("", rest)))
                {
                    let words = location.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                    citation.packages = words.filter(|word| *word == "onward" || word.starts_with("onward-")).collect();
                }
                if words + 1 < pieces.len() && is_target(words + 1) {
                    citation.target = Some(pieces[words + 1]);
                }
                if citation.target.is_some() || !citation.packages.is_empty() {
                    break;
                }
            }
            found.push(citation);
        }
    }
    found
}

impl Citation<'_> {
    fn location(&self, default: &str) -> String {
        match (&*self.packages, self.target) {
            ([], None) => format!("in {default}"),
            (packages, None) => format!("in {}", packages.join(" and ")),
            (packages, Some(target)) => format!("in the tests `{target}` of {}", packages.first().unwrap_or(&"onward")),
        }
    }

    fn exists(&self, sources: &Sources, default: &str) -> bool {
        let mut path: Vec<&str> = self.name.split("::").collect();
        // A path that begins with a crate contains its location.
        let own = path[0].replace('_', "-");
        if path.len() > 1 && sources.text(&format!("crates/{own}/Cargo.toml")).is_some() {
            path.remove(0);
            return holds(sources, &format!("crates/{own}/src/"), &path);
        }
        match (&*self.packages, self.target) {
            ([], None) => holds(sources, default, &path) || holds(sources, "crates/onward/src/", &path),
            (packages, None) => packages.iter().all(|package| {
                ["tests/", "src/"].iter().any(|folder| holds(sources, &format!("crates/{package}/{folder}"), &path))
            }),
            (packages, Some(target)) => {
                let package = packages.first().unwrap_or(&"onward");
                holds(sources, &format!("crates/{package}/tests/{target}/"), &path)
            }
        }
    }
}

/// Returns whether there are tests in the module `path` somewhere below `folder`, or the one test that its last part names.
fn holds(sources: &Sources, folder: &str, path: &[&str]) -> bool {
    let in_module = |file: &str, modules: &[&str]| {
        let Some(below) = file.strip_prefix(folder) else { return false };
        let inside = format!("/{}", below.trim_end_matches(".rs"));
        let module = format!("/{}", modules.join("/"));
        modules.is_empty() || inside.ends_with(&module) || inside.contains(&format!("{module}/"))
    };
    let (last, modules) = path.split_last().unwrap_or((&"", &[]));
    let mut files = sources.texts(|file| file.starts_with(folder) && file.ends_with(".rs"));
    files.any(|(file, text)| {
        let tests = tests(text, folder.contains("/conformance/"));
        // A claim that is tested in several stores has a test for each: `a_claim_in_memory`.
        let is_cited = |test: &&str| test.strip_prefix(last).is_some_and(|rest| rest.is_empty() || rest.starts_with("_in_"));
        (in_module(file, path) && !tests.is_empty()) || (in_module(file, modules) && tests.iter().any(is_cited))
    })
}

/// Returns the names of the tests in a file. The cases of the conformance suite are public functions; `everywhere!` makes tests
/// of all functions in it.
fn tests(text: &str, is_suite: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut is_test, mut is_everywhere) = (false, false);
    for line in text.lines() {
        is_everywhere = (is_everywhere || line.starts_with("everywhere! {")) && line != "}";
        if let Some(name) = line.strip_prefix("    async fn ").filter(|_| is_everywhere) {
            found.extend(name.split('(').next());
            continue;
        }
        let line = line.trim();
        let function = line.strip_prefix("pub ").unwrap_or(line);
        let function = function.strip_prefix("async ").unwrap_or(function).strip_prefix("fn ");
        match function.and_then(|rest| rest.split(['(', '<']).next()) {
            Some(name) => {
                if is_test || (is_suite && line.starts_with("pub ")) {
                    found.push(name);
                }
                is_test = false;
            }
            None => is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test"),
        }
    }
    found
}

#[cfg(test)]
mod tests;
