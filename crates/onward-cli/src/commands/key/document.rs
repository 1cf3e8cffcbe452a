//! Output of a key.

use std::collections::BTreeSet;

use anyhow::Result;
use onward_core::Timestamp;
use onward_core::budget::Budget;
use onward_server::keys::{CreatedKey, KeyEntry};
use onward_server::{Bounds, Scope};
use serde::Serialize;

use crate::output::{escape, print, print_json, say, time};

#[derive(Serialize)]
pub struct KeyDocument<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub namespace: String,
    pub scopes: &'a BTreeSet<Scope>,
    pub state: &'static str,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_max: Option<Budget>,
    #[serde(skip_serializing_if = "Bounds::is_none")]
    pub bounds: &'a Bounds,
    /// The complete key, only after its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
}

impl<'a> KeyDocument<'a> {
    pub fn new(entry: &'a KeyEntry, last_used_at: Option<Timestamp>, now: Timestamp) -> KeyDocument<'a> {
        KeyDocument {
            id: &entry.id,
            name: entry.name.as_str(),
            namespace: entry.namespace.to_string(),
            scopes: &entry.scopes,
            state: entry.state(now),
            created_at: entry.created_at,
            expires_at: entry.expires_at,
            revoked_at: entry.revoked_at,
            last_used_at,
            budget_max: entry.budget_max,
            bounds: &entry.bounds,
            key: None,
        }
    }
}

pub fn scopes(scopes: &BTreeSet<Scope>) -> String {
    scopes.iter().map(Scope::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the kinds and queues of a key as a suffix for its namespace.
fn bounds(bounds: &Bounds) -> String {
    let kinds = bounds.kinds.iter().flatten().map(|kind| format!(", kind {}", escape::text(kind.as_str())));
    let queues = bounds.queues.iter().flatten().map(|queue| match queue.as_str() {
        "" => ", the default queue".to_owned(),
        queue => format!(", queue {}", escape::text(queue)),
    });
    kinds.chain(queues).collect()
}

/// Prints the key alone on stdout, so that it can be redirected, and everything else on stderr.
pub fn show_made(made: &CreatedKey, json: bool) -> Result<()> {
    let CreatedKey { key, entry } = made;
    if json {
        return print_json(&KeyDocument { key: Some(key.reveal()), ..KeyDocument::new(entry, None, time::now()) });
    }
    print(key.reveal())?;
    let expires = entry.expires_at.map_or("never".to_owned(), |at| time::moment(at, time::now()));
    let (name, namespace) = (escape::text(entry.name.as_str()), entry.namespace.to_string());
    let (namespace, scopes) = (escape::text(&namespace), scopes(&entry.scopes));
    let most = entry.budget_max.map(|budget| format!(", maximum budget {budget}")).unwrap_or_default();
    let bounds = bounds(&entry.bounds);
    say(&format!("key {} of {name} for {scopes} in namespace {namespace}{bounds}, expires {expires}{most}", entry.id));
    say("store it now; it cannot be shown again");
    Ok(())
}
