//! The webhook file: beside the key file, read and replaced in the same way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_core::{Name, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use super::entry::{HookEntry, HookSecret, Secret, Target};
use super::format::Format;
use super::signature;
use crate::auth::whole_file::{FileTrouble, Stamp, WholeFile};

/// Name of the file in a data directory.
pub const HOOKS: &str = "onward.hooks.json";

/// Version of the file format; there is only one.
const VERSION: u32 = 1;

/// Reason why webhooks cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum HookFileError {
    #[error("the webhook file {} is not usable: {why}", path.display())]
    Unusable { path: PathBuf, why: String, missing: bool },
    #[error("the webhook file {} cannot be written", path.display())]
    NotWritten { path: PathBuf, source: std::io::Error },
    #[error("webhook `{name}` not found")]
    NotFound { name: Name },
    #[error("webhook `{name}` exists already")]
    Exists { name: Name },
    #[error("the secret is not usable: {why}")]
    SecretInvalid { why: &'static str },
}

impl HookFileError {
    /// Returns the stable error code; has a page `docs/errors/<code>.md`. Never reused, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            HookFileError::Unusable { .. } => "hook_file_unusable",
            HookFileError::NotWritten { .. } => "hook_file_not_written",
            HookFileError::NotFound { .. } => "hook_not_found",
            HookFileError::Exists { .. } => "hook_exists",
            HookFileError::SecretInvalid { .. } => "hook_secret_invalid",
        }
    }

    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            HookFileError::Unusable { missing: true, .. } => "create it with `onward hook create`",
            HookFileError::NotFound { .. } => "list webhooks with `onward hook list`",
            HookFileError::Exists { .. } => "change its secret with `onward hook rotate`; for other changes, delete it first",
            _ => return None,
        })
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, HookFileError::Unusable { missing: true, .. })
    }
}

/// Properties of a webhook to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHook {
    pub name: Name,
    pub namespace: Namespace,
    pub format: Format,
    pub target: Target,
    /// Secret that the sender chose; `None` to generate one.
    pub secret: Option<Secret>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    hooks: Vec<HookEntry>,
}

/// Reader and writer of the webhook file.
#[derive(Debug, Clone)]
pub struct HookFile {
    file: WholeFile,
}

impl HookFile {
    pub fn at(path: impl Into<PathBuf>) -> HookFile {
        HookFile { file: WholeFile::at(path) }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn read(&self) -> Result<Vec<HookEntry>, HookFileError> {
        self.read_with_stamp().map(|(hooks, _)| hooks)
    }

    pub(super) fn stamp(&self) -> Result<Stamp, HookFileError> {
        self.file.stamp().map_err(|trouble| self.told(trouble))
    }

    pub(super) fn read_with_stamp(&self) -> Result<(Vec<HookEntry>, Stamp), HookFileError> {
        let (bytes, stamp) = self.file.read().map_err(|trouble| self.told(trouble))?;
        let hooks = parse(&bytes).map_err(|why| self.told(FileTrouble::unusable(why)))?;
        Ok((hooks, stamp))
    }

    /// Creates a webhook, and the file with its directory if they do not exist.
    pub fn create(&self, wanted: NewHook, now: Timestamp) -> Result<HookEntry, HookFileError> {
        self.change(true, |hooks| {
            let NewHook { name, namespace, format, target, secret } = wanted;
            if hooks.iter().any(|hook| hook.name == name) {
                return Err(HookFileError::Exists { name });
            }
            let secrets = vec![secret_for(&format, secret, now)?];
            let entry = HookEntry { name, namespace, format, target, secrets, created_at: now };
            hooks.push(entry.clone());
            Ok(entry)
        })
    }

    /// Adds a secret, which is the last one of the entry, and lets the earlier ones expire after `overlap`.
    pub fn rotate(
        &self,
        name: &Name,
        secret: Option<Secret>,
        overlap: Duration,
        now: Timestamp,
    ) -> Result<HookEntry, HookFileError> {
        self.change(false, |hooks| {
            let hook = find(hooks, name)?;
            let made = secret_for(&hook.format, secret, now)?;
            let end = now.after(overlap);
            hook.secrets.retain(|old| old.is_usable(now));
            for old in &mut hook.secrets {
                old.expires_at = Some(old.expires_at.map_or(end, |expires_at| expires_at.min(end)));
            }
            hook.secrets.push(made);
            Ok(hook.clone())
        })
    }

    pub fn delete(&self, name: &Name) -> Result<(), HookFileError> {
        self.change(false, |hooks| {
            find(hooks, name)?;
            hooks.retain(|hook| hook.name != *name);
            Ok(())
        })
    }

    fn change<T>(
        &self,
        may_make: bool,
        change: impl FnOnce(&mut Vec<HookEntry>) -> Result<T, HookFileError>,
    ) -> Result<T, HookFileError> {
        let _lock = self.file.lock(may_make).map_err(|trouble| self.told(trouble))?;
        let mut hooks = match self.read() {
            Ok(hooks) => hooks,
            Err(error) if may_make && error.is_missing() => Vec::new(),
            Err(error) => return Err(error),
        };
        let changed = change(&mut hooks)?;
        let text = serde_json::to_string_pretty(&Document { version: VERSION, hooks }).expect("webhooks serialize") + "\n";
        self.file.write(text.as_bytes()).map_err(|trouble| self.told(trouble))?;
        Ok(changed)
    }

    fn told(&self, trouble: FileTrouble) -> HookFileError {
        let path = self.path().to_owned();
        match trouble {
            FileTrouble::Unusable { why, missing } => HookFileError::Unusable { path, why, missing },
            FileTrouble::NotWritten(source) => HookFileError::NotWritten { path, source },
        }
    }
}

/// Parses the file. Errors contain a position and never the text, which may be a secret (HK4).
fn parse(bytes: &[u8]) -> Result<Vec<HookEntry>, String> {
    let wrong = |error: serde_json::Error| format!("line {} column {} does not match the format", error.line(), error.column());
    let document: Document = serde_json::from_slice(bytes).map_err(wrong)?;
    if document.version != VERSION {
        return Err(format!("it has version {}; this program supports version {VERSION}", document.version));
    }
    let names: BTreeSet<&Name> = document.hooks.iter().map(|hook| &hook.name).collect();
    if names.len() != document.hooks.len() {
        return Err("two webhooks have the same name".to_owned());
    }
    Ok(document.hooks)
}

fn find<'a>(hooks: &'a mut [HookEntry], name: &Name) -> Result<&'a mut HookEntry, HookFileError> {
    hooks.iter_mut().find(|hook| hook.name == *name).ok_or_else(|| HookFileError::NotFound { name: name.clone() })
}

/// Minimum length of a sender's secret in bytes; shorter ones can be guessed.
const SECRET_BYTES_MIN: usize = 16;

fn secret_for(format: &Format, given: Option<Secret>, now: Timestamp) -> Result<HookSecret, HookFileError> {
    let secret = given.unwrap_or_else(|| new_secret(format));
    let key = signature::key_of(format, &secret).ok_or(HookFileError::SecretInvalid { why: "it is not valid base64" })?;
    if key.len() < SECRET_BYTES_MIN {
        return Err(HookFileError::SecretInvalid { why: "it is shorter than 16 bytes" });
    }
    Ok(HookSecret { secret, created_at: now, expires_at: None })
}

/// Returns a secret of 256 random bits, encoded as the format requires.
fn new_secret(format: &Format) -> Secret {
    use base64::Engine;
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).expect("the system has randomness");
    match format {
        Format::Standard => {
            Secret::new(format!("{}{}", signature::WHSEC, base64::engine::general_purpose::STANDARD.encode(bits)))
        }
        Format::Custom(_) => Secret::new(bits.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests;
