//! Reads `onward.toml`. Unknown names are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use onward_core::ErrorCode;
use strsim::levenshtein;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tables::{self, TABLES, Tables, Wrong};
use super::{KEYS, SettingKey};
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
            Mistake::usage(ErrorCode::ConfigInvalid, format!("{}:{line}: {why}", path.display()), &hint)
        };
        let values = parse(&text).map_err(wrong)?;
        let tables = tables::read(&text).map_err(wrong)?;
        let values = values.into_iter().map(|(name, (value, at))| (name, (value, line_of(&text, at)))).collect();
        Ok(File { path: path.to_owned(), values, tables })
    }

    /// Returns the value and its line. Paths are relative to the file.
    pub fn get(&self, key: &SettingKey) -> Option<(String, usize)> {
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
    let Some(key) = SettingKey::of(&name) else {
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
        DeValue::Array(items) if key.is_list => {
            let text =
                |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().filter(|text| !text.contains(',')).map(str::to_owned);
            let texts: Option<Vec<String>> = items.iter().map(text).collect();
            let wrong = || (value.span().start, format!("`{name}` must be a list of strings without commas"), None);
            texts.ok_or_else(wrong)?.join(",")
        }
        _ => {
            let what = if key.is_list { "a list of strings, or one string with commas" } else { "a string or an integer" };
            return Err((value.span().start, format!("`{name}` must be {what}"), None));
        }
    };
    values.insert(name, (text, at));
    Ok(())
}

/// Returns the most similar known name, if one is similar enough.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let far = |known: &'static str| levenshtein(name, known).min(levenshtein(name, last(known)));
    let best = KEYS.iter().filter(|key| !key.is_secret).map(|key| (far(key.name), key.name)).min()?;
    (best.0 <= TYPO_MAX).then_some(best.1)
}

/// Returns the table that a mistyped one resembles: `[models.fast]` for `model.fast`.
fn nearest_table(name: &str) -> Option<String> {
    let (table, rest) = name.split_once('.')?;
    TABLES.iter().find(|known| levenshtein(table, known) == 1).map(|known| format!("[{known}.{rest}]"))
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
