//! One word per concept in public names, as in the glossary.

use super::Sources;

/// Words with two meanings here, and their replacements. Words that only have another meaning elsewhere are allowed.
const SYNONYMS: &[(&str, &str)] = &[
    ("cancelled", "canceled"),
    ("execution", "run"),
    ("instance", "run"),
    ("invocation", "run"),
    ("manager", "the noun it manages"),
    ("repository", "store"),
    ("snapshot", "checkpoint"),
    ("tenant", "namespace"),
    ("topic", "queue"),
    ("watermark", "horizon"),
];

const MODULES: &[&str] = &["common", "helpers", "manager", "misc", "types", "util", "utils"];

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    for (path, text) in sources.crate_sources() {
        let module = path.trim_end_matches("/mod.rs").trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        if MODULES.contains(&module) {
            problems.push(format!("{path}: name a module after what it owns, not `{module}`"));
        }
        for (number, line) in text.lines().enumerate() {
            let Some(name) = public_name(line) else { continue };
            for word in words(name) {
                if let Some((_, instead)) = SYNONYMS.iter().find(|(synonym, _)| *synonym == word) {
                    problems.push(format!("{path}:{}: `{name}` contains `{word}`; use {instead}", number + 1));
                }
            }
        }
    }
}

/// Returns the name that a line makes public.
fn public_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    for qualifier in
        ["const fn ", "async fn ", "unsafe fn ", "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "mod "]
    {
        if let Some(name) = rest.strip_prefix(qualifier) {
            rest = name;
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Splits a name: `RunHead` and `run_head` are both "run" and "head".
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase().filter(|c| *c != '_'));
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests;
