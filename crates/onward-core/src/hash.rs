//! Content hashes.
//!
//! Two inputs are equal if their canonical forms are. The canonical form of JSON does not depend on key order, spacing, escapes
//! and the spelling of numbers; integers stay exact. An encrypted payload carries its identity with it; all others are hashed as
//! bytes. Must never change its result for an old input: recorded hashes are compared on every replay.

use std::collections::BTreeMap;
use std::fmt;

use crate::Payload;

/// 128 bits of BLAKE3. Text form: 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 16]);

impl Hash {
    /// Returns the identity of a payload.
    pub fn of(payload: &Payload) -> Hash {
        // Every encryption of a value has different bytes, so an encrypted payload starts with its identity.
        let identity_bytes = payload.sealed_with().and_then(|_| payload.data().first_chunk::<16>());
        if let Some(identity) = identity_bytes {
            return Hash(*identity);
        }
        let canonical = payload.is_json().then(|| canonical_json(payload.data())).flatten();
        let mut hasher = blake3::Hasher::new();
        // The content type is part of the identity and length-prefixed, so that no two pairs share their bytes.
        hasher.update(&(payload.content_type().len() as u64).to_le_bytes());
        hasher.update(payload.content_type().as_bytes());
        hasher.update(canonical.as_deref().unwrap_or(payload.data()));
        Hash::truncated(hasher)
    }

    /// Hashes several byte strings in order.
    pub fn of_parts(parts: &[&[u8]]) -> Hash {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Hash::truncated(hasher)
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Option<Hash> {
        from_hex(text).map(Hash)
    }

    fn truncated(hasher: blake3::Hasher) -> Hash {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Hash(bytes)
    }
}

/// Decodes exactly `N` bytes from hex digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (position, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[position * 2..position * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The maximum nesting for canonicalization; deeper text is compared byte for byte.
const DEPTH_MAX: usize = 128;

/// Returns the canonical form, or `None` if `text` is not JSON.
pub(crate) fn canonical_json(text: &[u8]) -> Option<Vec<u8>> {
    let mut reader = JsonReader { rest: std::str::from_utf8(text).ok()? };
    let mut out = Vec::with_capacity(text.len());
    reader.value(0, &mut out)?;
    reader.space();
    reader.rest.is_empty().then_some(out)
}

struct JsonReader<'a> {
    rest: &'a str,
}

impl<'a> JsonReader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn consume_token(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn value(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.space();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth, out),
            b'[' => self.array(depth, out),
            b'"' => {
                let text = self.string()?;
                put_string(&text, out);
                Some(())
            }
            b't' => self.literal("true", out),
            b'f' => self.literal("false", out),
            b'n' => self.literal("null", out),
            _ => self.number(out),
        }
    }

    fn literal(&mut self, token: &str, out: &mut Vec<u8>) -> Option<()> {
        self.consume_token(token)?;
        out.extend_from_slice(token.as_bytes());
        Some(())
    }

    fn array(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        self.consume_token("[")?;
        out.push(b'[');
        self.space();
        if self.consume_token("]").is_some() {
            out.push(b']');
            return Some(());
        }
        loop {
            self.value(depth + 1, out)?;
            self.space();
            if self.consume_token(",").is_some() {
                out.push(b',');
                continue;
            }
            self.consume_token("]")?;
            out.push(b']');
            return Some(());
        }
    }

    /// Writes keys sorted by their bytes; of equal keys the last one wins, as in JSON parsers.
    fn object(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        self.consume_token("{")?;
        let mut members = BTreeMap::new();
        self.space();
        if self.consume_token("}").is_none() {
            loop {
                self.space();
                let key = self.string()?;
                self.space();
                self.consume_token(":")?;
                let mut value = Vec::new();
                self.value(depth + 1, &mut value)?;
                members.insert(key, value);
                self.space();
                if self.consume_token(",").is_some() {
                    continue;
                }
                self.consume_token("}")?;
                break;
            }
        }
        out.push(b'{');
        for (position, (key, value)) in members.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            put_string(key, out);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        let mut end = 1;
        let bytes = self.rest.as_bytes();
        if bytes.first() != Some(&b'"') {
            return None;
        }
        loop {
            match bytes.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let (token, rest) = self.rest.split_at_checked(end + 1)?;
        self.rest = rest;
        serde_json::from_str(token).ok()
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = self.rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        serde_json::from_str::<&serde_json::value::RawValue>(token).ok()?;
        self.rest = rest;
        put_number(token, out);
        Some(())
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text can always be written to memory");
}

/// Writes the digits and a power of ten without leading or trailing zeros, so that `1`, `1.0` and `10e-1` are equal and no digit
/// is lost.
fn put_number(token: &str, out: &mut Vec<u8>) {
    let (negative, token) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
    let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let trimmed = significant.trim_end_matches('0');
    if trimmed.is_empty() {
        out.push(b'0');
        return;
    }
    // An exponent outside i64 is not a computed value; its text is kept.
    let Ok(exponent) = exponent.trim_start_matches('+').parse::<i64>() else {
        out.extend_from_slice(token.to_ascii_lowercase().as_bytes());
        return;
    };
    let power = exponent.saturating_sub(fraction.len() as i64).saturating_add((significant.len() - trimmed.len()) as i64);
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(trimmed.as_bytes());
    if power != 0 {
        out.extend_from_slice(format!("e{power}").as_bytes());
    }
}

#[cfg(test)]
mod tests;
