//! The nesting depth of JSON, measured in one pass without recursion.
//!
//! Invariant JD1: no verb accepts a payload that nests deeper than [`JSON_DEPTH_MAX`], through any API: another API could not
//! return it.
//! Invariant JD2: no verb accepts a payload that is declared JSON and is not JSON in UTF-8, through any API: readers parse it
//! by its declared type.

use onward_core::{Event, Payload};
use serde::de::IgnoredAny;

use crate::RuntimeError;

/// Maximum nesting depth of JSON. Checked before parsing.
pub const JSON_DEPTH_MAX: usize = 64;

/// Fails for a payload that is declared JSON and nests too deep (JD1) or is invalid (JD2); other payloads may be any bytes.
pub(crate) fn check_payload(payload: &Payload) -> Result<(), RuntimeError> {
    if !payload.is_json() {
        return Ok(());
    }
    let data = payload.data();
    if data.len() > JSON_DEPTH_MAX && too_deep(data, JSON_DEPTH_MAX).is_some() {
        return Err(RuntimeError::JsonTooDeep { max: JSON_DEPTH_MAX });
    }
    let invalid = |why: String| RuntimeError::PayloadInvalid { why };
    // A parser that skips values does not check the encoding of strings in them.
    std::str::from_utf8(data).map_err(|error| invalid(error.to_string()))?;
    payload.read::<IgnoredAny>().map(|_| ()).map_err(|error| invalid(error.to_string()))
}

/// Fails for an event with a payload that [`check_payload`] refuses.
pub(crate) fn check_event_payloads(event: &Event) -> Result<(), RuntimeError> {
    let mut checked = Ok(());
    event.visit_payloads(&mut |payload| {
        if checked.is_ok() {
            checked = check_payload(payload);
        }
    });
    checked
}

/// Returns line and column of the first bracket deeper than `max`. For text that is not JSON the result is arbitrary.
pub fn too_deep(text: &[u8], max: usize) -> Option<(usize, usize)> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let (mut line, mut line_start) = (1, 0);
    for (position, &byte) in text.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'\n' => (line, line_start) = (line + 1, position + 1),
            _ => {}
        }
        if depth > max {
            return Some((line, position - line_start + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests;
