//! A payload on the command line: JSON, `@FILE`, or `-` for stdin.

use std::io::Read;

use anyhow::{Context, Result};
use onward_core::Payload;
use serde_json::value::RawValue;

use crate::error::Mistake;

/// Takes JSON as it is written: its very bytes are recorded, without the blanks around it.
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
        let hint = "text needs quotes: '\"hello\"'; @FILE reads a file and - reads stdin";
        return Err(Mistake::usage("payload_invalid", format!("the payload is not JSON: {error}"), hint).into());
    }
    Ok(Payload::from_json_text(text.to_owned()))
}
