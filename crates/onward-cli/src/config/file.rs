//! Reads `onward.toml`. Unknown names are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tables::{self, TABLES, Tables, Wrong};
use super::{KEYS, Key};
use crate::error::Mistake;

/// Maximum edit distance of a suggestion.
const TYPO_MAX: usize = 3;

#[derive(Debug)]
pub struct File {
    pub path: PathBuf,
    /// Values by name, with their line.
    values: BTreeMap<String, (String, usize)>,
    pub tables: Tables,
}

impl File {
    pub fn read(path: &Path) -> Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the settings in {}", path.display()))?;
        let wrong = |(at, why, hint): Wrong| {
            let line = line_of(&text, at);
            let hint = hint.unwrap_or_else(|| "`onward config show` lists all settings".to_owned());
            Mistake::usage("config_invalid", format!("{}:{line}: {why}", path.display()), &hint)
        };
        let values = parse(&text).map_err(wrong)?;
        let tables = tables::read(&text).map_err(wrong)?;
        let values = values.into_iter().map(|(name, (value, at))| (name, (value, line_of(&text, at)))).collect();
        Ok(File { path: path.to_owned(), values, tables })
    }

    /// Returns the value and its line. Paths are relative to the file.
    pub fn get(&self, key: &Key) -> Option<(String, usize)> {
        let (text, line) = self.values.get(key.name)?;
        let near = self.path.parent().filter(|parent| key.is_path && !parent.as_os_str().is_empty());
        Some((near.map_or(text.clone(), |parent| parent.join(text).to_string_lossy().into_owned()), *line))
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, (String, usize)>, Wrong> {
    let table =
        DeTable::parse(text).map_err(|error| (error.span().map_or(0, |span| span.start), error.message().to_owned(), None))?;
    let mut values = BTreeMap::new();
    for (name, value) in table.get_ref() {
        match value.get_ref() {
            DeValue::Table(_) if TABLES.contains(&name.get_ref().as_ref()) => {}
            DeValue::Table(table) => {
                for (key, value) in table {
                    let full = format!("{}.{}", name.get_ref(), key.get_ref());
                    take(&mut values, full, key.span().start, value)?;
                }
            }
            _ => take(&mut values, name.get_ref().to_string(), name.span().start, value)?,
        }
    }
    Ok(values)
}

fn take(
    values: &mut BTreeMap<String, (String, usize)>,
    name: String,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), Wrong> {
    let Some(key) = Key::of(&name) else {
        let near = nearest_table(&name).or_else(|| nearest(&name).map(str::to_owned));
        return Err((at, format!("unknown setting `{name}`"), near.map(|near| format!("did you mean `{near}`?"))));
    };
    if key.is_secret {
        let hint = format!("store it in its own file and set `key_file`, or set {}", key.variable());
        return Err((at, format!("`{name}` is a secret and is not read from this file"), Some(hint)));
    }
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        _ => return Err((value.span().start, format!("`{name}` must be a string or an integer"), None)),
    };
    values.insert(name, (text, at));
    Ok(())
}

/// Returns the most similar known name, if one is similar enough.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let far = |known: &'static str| distance(name, known).min(distance(name, last(known)));
    let best = KEYS.iter().filter(|key| !key.is_secret).map(|key| (far(key.name), key.name)).min()?;
    (best.0 <= TYPO_MAX).then_some(best.1)
}

/// Returns the table that a mistyped one resembles: `[models.fast]` for `model.fast`.
fn nearest_table(name: &str) -> Option<String> {
    let (table, rest) = name.split_once('.')?;
    TABLES.iter().find(|known| distance(table, known) == 1).map(|known| format!("[{known}.{rest}]"))
}

/// Computes the Levenshtein distance.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> (usize, String, Option<String>) {
        let (at, why, hint) = parse(text).unwrap_err();
        (line_of(text, at), why, hint)
    }

    /// S35. Every error has a valid position in the text.
    #[test]
    fn mutated_settings_are_refused_or_read_and_never_panic() {
        let text = "url = \"http://x\"\n\n[limits]\nstreams_max = 7\n[models.fast]\nprovider = \"x\"\n";
        let counts = onward_testkit::mutate("settings", &[text.as_bytes().to_vec()], |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            match parse(text) {
                Ok(values) => {
                    assert!(values.values().all(|(_, at)| line_of(text, *at) >= 1), "{text:?}");
                    true
                }
                Err((at, why, _)) => {
                    assert!(line_of(text, at) >= 1 && !why.is_empty(), "{text:?}");
                    false
                }
            }
        });
        counts.assert_refuses();
    }

    #[test]
    fn values_have_names_and_lines() {
        let text = "url = \"http://x\"\n\n[limits]\nstreams_max = 7\n";
        let values = parse(text).unwrap();
        assert_eq!(values["url"].0, "http://x");
        assert_eq!((values["limits.streams_max"].0.as_str(), line_of(text, values["limits.streams_max"].1)), ("7", 4));
    }

    #[test]
    fn what_nobody_understands_is_told_with_its_line() {
        let hint = |text: &str| Some(format!("did you mean `{text}`?"));
        assert_eq!(said("\nurll = \"x\""), (2, "unknown setting `urll`".to_owned(), hint("url")));
        assert_eq!(said("[server]\nlisten_ = 1").2, hint("server.listen"));
        assert_eq!(said("listen = \"x\"").2, hint("server.listen"), "in the wrong table");
        assert_eq!(said("something_else_altogether = 1").2, None);
        assert_eq!(said("[limits]\nstreams_max = [1]").1, "`limits.streams_max` must be a string or an integer");
        assert!(said("key = \"onw_secret\"").1.contains("secret"));
        assert_eq!(said("url = \n").0, 1);
        assert_eq!(said("[model.fast]\nprovider = \"x\"").2, hint("[models.fast]"));
    }

    #[test]
    fn words_are_as_far_apart_as_their_letters() {
        assert_eq!(["", "url", "urls", "lru"].map(|word| distance(word, "url")), [3, 0, 1, 2]);
    }
}
