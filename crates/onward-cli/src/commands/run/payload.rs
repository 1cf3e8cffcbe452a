//! Payload arguments: JSON, `@FILE`, or `-` for stdin.

use std::io::Read;

use anyhow::{Context, Result};
use onward_core::Payload;
use serde_json::value::RawValue;

use crate::error::Mistake;

/// Reads a payload. The bytes of the JSON text are recorded unchanged, without surrounding whitespace.
pub fn read_payload(text: &str) -> Result<Payload> {
    let text = match text {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the payload from stdin")?;
            text
        }
        text => match text.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read the payload from {path}"))?,
            None => text.to_owned(),
        },
    };
    let text = text.trim();
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        let hint = "quote a text: '\"hello\"'; use @FILE for a file and - for stdin";
        return Err(Mistake::usage("payload_invalid", format!("the payload is not JSON: {error}"), hint).into());
    }
    Ok(Payload::from_json_text(text.to_owned()))
}
