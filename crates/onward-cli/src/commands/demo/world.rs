//! The side effects of the order: each execution appends a line to a file.
//!
//! The worker writes the lines and the demo counts them. The engine does not read them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward::prelude::*;
use onward_core::Timestamp;

use super::order::Order;
use crate::output::time;

pub struct World {
    pub effects: PathBuf,
    /// Duration of one unit of work.
    pub unit: Duration,
}

/// An execution that was started.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    pub at: Timestamp,
    pub name: String,
    /// Its idempotency key.
    pub key: String,
}

impl World {
    pub async fn charge(&self, order: &Order, key: &str) -> Result<String> {
        self.act("charge", key, 1).await?;
        Ok(format!("paid {}.{:02}", order.cents / 100, order.cents % 100))
    }

    pub async fn reserve(&self, order: &Order, key: &str) -> Result<String> {
        self.act("reserve", key, 3).await?;
        Ok(format!("{} from shelf 7", order.item))
    }

    pub async fn print_label(&self, _shelf: &str, key: &str) -> Result<String> {
        self.act("print-label", key, 1).await?;
        Ok("label 1729".to_owned())
    }

    pub async fn refund(&self, payment: &str, key: &str) -> Result<String> {
        self.act("refund", key, 1).await?;
        Ok(format!("refunded what was {payment}"))
    }

    pub async fn ship(&self, label: &str, key: &str) -> Result<String> {
        self.act("ship", key, 1).await?;
        Ok(format!("shipped with {label}"))
    }

    /// Appends a line, then sleeps for the given units.
    async fn act(&self, name: &str, key: &str, units: u32) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.effects)?;
        file.write_all(format!("{}\t{name}\t{key}\n", time::now().0).as_bytes())?;
        tokio::time::sleep(self.unit * units).await;
        Ok(())
    }
}

/// Reads all effects so far, in order. Ignores an incomplete last line.
pub fn read_effects(path: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Effect> {
    let mut parts = line.split('\t');
    let at = Timestamp(parts.next()?.parse().ok()?);
    Some(Effect { at, name: parts.next()?.to_owned(), key: parts.next()?.to_owned() })
}
