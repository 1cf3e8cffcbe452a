//! Entries that are appended to the conversation of an agent from outside.
//!
//! Such an entry is a signal under a reserved name until the code takes it in. Its idempotency key is an idempotency record of
//! the run. The conversation is searched for the key too, because the code may have used it. An append must never report an
//! entry with another content as existing.

use onward_core::conversation::{ENTRY_SIGNAL, OutsideEntry, keyed_entry};
use onward_core::event::SignalReceived;
use onward_core::run::Input;
use onward_core::{Name, RunKey};
use onward_store::{Appended, StoreError};

use crate::api::client::read_records;
use crate::api::runs::check_id;
use crate::schemas::depth::check_payload;
use crate::{AppendEntry, AppendedEntry, Client, Runtime, RuntimeError};

impl Runtime {
    /// Appends an entry from outside, or returns the existing one with the same key, role and content. The agent takes it in when its next turn starts, or when its code polls for it.
    pub async fn append_entry(&self, key: &RunKey, append: AppendEntry) -> Result<AppendedEntry, RuntimeError> {
        let appended = match known_entry(self, key, &append).await? {
            Some(known) => known,
            None => self.put_entry(key, append).await?,
        };
        if appended.already_existed {
            self.counts().entries_repeated.one();
        }
        Ok(appended)
    }

    pub(crate) async fn put_entry(&self, key: &RunKey, append: AppendEntry) -> Result<AppendedEntry, RuntimeError> {
        let AppendEntry { role, content, idempotency_key } = append;
        if let Some(key) = &idempotency_key {
            check_id("idempotency key", key)?;
        }
        check_payload(&content)?;
        Runtime::check_entry(&content)?;
        let payload = OutsideEntry { role, content, idempotency_key: idempotency_key.clone() }.to_payload();
        let name = Name::new(ENTRY_SIGNAL)?;
        let signal = SignalReceived { name, payload, signal_id: idempotency_key.clone(), sender: None };
        let appended = self.append(key, Input::signal(signal)).await.map_err(|error| match (error, idempotency_key) {
            (RuntimeError::Store(StoreError::IdTaken { key, .. }), Some(idempotency_key)) => {
                RuntimeError::EntryKeyTaken { key, idempotency_key }
            }
            (error, _) => error,
        })?;
        let Appended { index, at, repeated, woke } = appended;
        Ok(AppendedEntry { already_existed: repeated, woke, entry: None, index: Some(index), at: Some(at) })
    }
}

/// Returns the entry of the conversation with this key. Fails if its role or content differs.
pub async fn known_entry(client: &dyn Client, key: &RunKey, append: &AppendEntry) -> Result<Option<AppendedEntry>, RuntimeError> {
    let Some(idempotency_key) = &append.idempotency_key else { return Ok(None) };
    let head = client.read_head(key.clone()).await?;
    let records = read_records(client, &head).await?;
    let Some(known) = keyed_entry(&records, idempotency_key) else { return Ok(None) };
    if !known.is(&append.role, &append.content) {
        return Err(RuntimeError::EntryKeyTaken { key: key.clone(), idempotency_key: idempotency_key.clone() });
    }
    Ok(Some(AppendedEntry { already_existed: true, woke: false, entry: Some(known.id), index: None, at: None }))
}
