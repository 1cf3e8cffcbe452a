//! The webhook file: beside the key file, read and replaced in the same way.

use std::time::Duration;

use onward_core::{Name, Namespace, Timestamp};

use super::entry::{Secret, WebhookEntry, WebhookSecret, WebhookTarget};
use super::format::Format;
use super::signature;
use crate::auth::secret_file::{SecretFile, SecretFileError};
use crate::hex;

/// Name of the file in a data directory.
pub const WEBHOOKS_FILE: &str = "onward.webhooks.json";

/// Properties of a webhook to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhook {
    pub name: Name,
    pub namespace: Namespace,
    pub format: Format,
    pub target: WebhookTarget,
    /// Secret that the sender chose; `None` to generate one.
    pub secret: Option<Secret>,
}

/// Reader and writer of the webhook file.
pub type WebhookFile = SecretFile<WebhookEntry>;

impl WebhookFile {
    /// Creates a webhook, and the file with its directory if they do not exist.
    pub fn create(&self, wanted: NewWebhook, now: Timestamp) -> Result<WebhookEntry, SecretFileError> {
        self.change(true, |webhooks| {
            let NewWebhook { name, namespace, format, target, secret } = wanted;
            if webhooks.iter().any(|webhook| webhook.name == name) {
                return Err(SecretFileError::WebhookExists { name });
            }
            let secrets = vec![secret_for(&format, secret, now)?];
            let entry = WebhookEntry { name, namespace, format, target, secrets, created_at: now };
            webhooks.push(entry.clone());
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
    ) -> Result<WebhookEntry, SecretFileError> {
        self.change(false, |webhooks| {
            let webhook = find(webhooks, name)?;
            let made = secret_for(&webhook.format, secret, now)?;
            let end = now.after(overlap);
            webhook.secrets.retain(|old| old.is_usable(now));
            for old in &mut webhook.secrets {
                old.expires_at = Some(old.expires_at.map_or(end, |expires_at| expires_at.min(end)));
            }
            webhook.secrets.push(made);
            Ok(webhook.clone())
        })
    }

    pub fn delete(&self, name: &Name) -> Result<(), SecretFileError> {
        self.change(false, |webhooks| {
            find(webhooks, name)?;
            webhooks.retain(|webhook| webhook.name != *name);
            Ok(())
        })
    }
}

fn find<'a>(webhooks: &'a mut [WebhookEntry], name: &Name) -> Result<&'a mut WebhookEntry, SecretFileError> {
    webhooks
        .iter_mut()
        .find(|webhook| webhook.name == *name)
        .ok_or_else(|| SecretFileError::WebhookNotFound { name: name.clone() })
}

/// Minimum length of a sender's secret in bytes; shorter ones can be guessed.
const SECRET_BYTES_MIN: usize = 16;

fn secret_for(format: &Format, given: Option<Secret>, now: Timestamp) -> Result<WebhookSecret, SecretFileError> {
    let secret = given.unwrap_or_else(|| new_secret(format));
    let key =
        signature::key_of(format, &secret).ok_or(SecretFileError::WebhookSecretInvalid { why: "it is not valid base64" })?;
    if key.len() < SECRET_BYTES_MIN {
        return Err(SecretFileError::WebhookSecretInvalid { why: "it is shorter than 16 bytes" });
    }
    Ok(WebhookSecret { secret, created_at: now, expires_at: None })
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
        Format::Custom(_) => Secret::new(hex::encode(&bits)),
    }
}

#[cfg(test)]
mod tests;
