//! Plain technical English in comments and documents, as a ratchet: a file may not get worse.
//!
//! Counts in each file the words that avoid a noun, and the docs of functions that do not begin with a verb. `prose.txt` lists the
//! files with a count above zero; every other file has none. `cargo xtask tidy --write` lowers the counts, and moves those of a
//! renamed file, as long as their sum does not grow.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Sources;

pub const BASELINE: &str = "xtask/src/tidy/prose.txt";

const HEAD: &str = "# Words that avoid a noun, and function docs without a verb first, by file; see prose.rs. Only lower them.\n";

/// Words that avoid the name of a component or of a value.
const WORDS: &[&str] =
    &["anybody", "asked", "asks", "heard", "hears", "nobody", "said", "says", "somebody", "tell", "tells", "told", "whoever"];

/// First words with the ending of a verb in the third person that are none.
const NOT_VERBS: &[&str] = &["Always", "As", "Does", "Has", "Is", "Its", "Perhaps", "This", "Thus", "Was", "Whether"];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    words: usize,
    docs: usize,
}

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let baseline = baseline(sources);
    for (path, counts) in counted(sources) {
        let allowed = baseline.get(path).copied().unwrap_or_default();
        if counts.words > allowed.words {
            let list = WORDS.join(", ");
            problems.push(format!("{path}: {} of these words, {} before: {list}; name the thing", counts.words, allowed.words));
        }
        if counts.docs > allowed.docs {
            let first = sources.text(path).and_then(|text| verbless_docs(text).into_iter().next()).unwrap_or_default();
            let (now, before) = (counts.docs, allowed.docs);
            problems.push(format!(
                "{path}: {now} function docs do not begin with a verb in the third person, {before} before: {first}"
            ));
        }
    }
}

/// Returns the new text of the baseline; the old one if the sum of a count would grow.
pub fn lowered(sources: &Sources) -> String {
    let counted = counted(sources);
    let sum = |counts: &mut dyn Iterator<Item = Counts>| {
        counts.fold((0, 0), |(words, docs), counts| (words + counts.words, docs + counts.docs))
    };
    let (now, before) = (sum(&mut counted.values().copied()), sum(&mut baseline(sources).into_values()));
    let old = sources.text(BASELINE).unwrap_or_default();
    if !old.is_empty() && (now.0 > before.0 || now.1 > before.1) {
        return old.to_owned();
    }
    let mut text = HEAD.to_owned();
    for (path, Counts { words, docs }) in counted {
        if words + docs > 0 {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{words} {docs} {path}");
        }
    }
    text
}

fn baseline(sources: &Sources) -> BTreeMap<&str, Counts> {
    let line = |line: &'_ str| -> Option<(usize, usize)> {
        let mut numbers = line.split(' ').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let lines = sources.text(BASELINE).unwrap_or_default().lines();
    lines
        .filter_map(|text| Some((text.splitn(3, ' ').nth(2)?, line(text)?)))
        .map(|(path, (words, docs))| (path, Counts { words, docs }))
        .collect()
}

fn counted(sources: &Sources) -> BTreeMap<&str, Counts> {
    // Decision records tell how a decision came about, and this folder names the words.
    let is_prose = |path: &str| {
        let is_code = path.starts_with("crates/") && path.ends_with(".rs");
        let is_page = path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
        is_code || (is_page && !path.starts_with("docs/adr/") && path != "CHANGELOG.md")
    };
    sources.texts(is_prose).map(|(path, text)| (path, counts(path, text))).collect()
}

fn counts(path: &str, text: &str) -> Counts {
    let is_code = path.ends_with(".rs");
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    let prose = if is_code { comments(text) } else { text.to_owned() };
    let is_listed = |word: &&str| WORDS.contains(&word.to_ascii_lowercase().as_str());
    let prose = without_code(&prose);
    let words = prose.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(is_listed).count();
    Counts { words, docs: if is_code && !is_test { verbless_docs(text).len() } else { 0 } }
}

fn comments(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
    lines.map(|line| line.trim_start_matches(['/', '!'])).collect::<Vec<_>>().join("\n")
}

/// Leaves out fenced blocks and names in backticks.
fn without_code(prose: &str) -> String {
    let outside: String = prose.split("```").step_by(2).collect();
    outside.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns the first lines of function docs that do not begin with a verb in the third person.
fn verbless_docs(text: &str) -> Vec<&str> {
    let (mut found, mut first) = (Vec::new(), None);
    for line in text.lines().map(str::trim_start) {
        if let Some(doc) = line.strip_prefix("///") {
            first = first.or(Some(doc.trim()));
        } else if !line.starts_with("#[") {
            found.extend(first.take().filter(|doc| is_function(line) && !doc.is_empty() && !begins_with_verb(doc)));
        }
    }
    found
}

fn is_function(line: &str) -> bool {
    let mut words = line.split(' ').filter(|word| !word.starts_with("pub"));
    words.find(|word| !matches!(*word, "async" | "const" | "unsafe")) == Some("fn")
}

fn begins_with_verb(doc: &str) -> bool {
    let word = doc.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut letters = word.chars();
    let is_capitalized =
        letters.next().is_some_and(|letter| letter.is_ascii_uppercase()) && letters.all(|letter| letter.is_ascii_lowercase());
    is_capitalized && word.len() > 2 && word.ends_with('s') && !NOT_VERBS.contains(&word)
}

#[cfg(test)]
mod tests;
