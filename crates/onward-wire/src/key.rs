//! API keys as text: `onw_<id>_<secret>_<checksum>`.
//!
//! Owns only the text form; the server decides what a key permits. With the checksum, a client detects a mistyped or truncated
//! key without a request. A secret must never be shown by accident: only [`ApiKey::reveal`] returns it.

use std::fmt;

const PREFIX: &str = "onw";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Number of digits for 64, 256 and 32 bits.
const ID_CHARS: usize = 11;
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;

/// A whole key, including the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Box<str>);

/// The reason why a text is not a key. Does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKeyError {
    Shape,
    Checksum,
}

impl fmt::Display for ApiKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ApiKeyError::Shape => "a key has the form onw_ID_SECRET_CHECKSUM",
            ApiKeyError::Checksum => "the checksum is wrong: the key was mistyped or truncated",
        })
    }
}

impl std::error::Error for ApiKeyError {}

impl ApiKey {
    /// Returns the key of these random bits.
    pub fn new(id: [u8; 8], secret: [u8; 32]) -> ApiKey {
        let body = format!("{PREFIX}_{}_{}", base62(&id, ID_CHARS), base62(&secret, SECRET_CHARS));
        let checksum = checksum(&body);
        ApiKey(format!("{body}_{checksum}").into())
    }

    pub fn parse(text: &str) -> Result<ApiKey, ApiKeyError> {
        let parts: Vec<&str> = text.split('_').collect();
        let &[PREFIX, id, secret, last] = parts.as_slice() else { return Err(ApiKeyError::Shape) };
        let fits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !fits(id, ID_CHARS) || !fits(secret, SECRET_CHARS) || !fits(last, CHECKSUM_CHARS) {
            return Err(ApiKeyError::Shape);
        }
        let body = &text[..text.len() - CHECKSUM_CHARS - 1];
        if checksum(body) != last {
            return Err(ApiKeyError::Checksum);
        }
        Ok(ApiKey(text.into()))
    }

    /// Returns the id by which a key is listed and revoked; not secret.
    pub fn id(&self) -> &str {
        &self.0[PREFIX.len() + 1..][..ID_CHARS]
    }

    pub fn secret(&self) -> &str {
        &self.0[PREFIX.len() + 1 + ID_CHARS + 1..][..SECRET_CHARS]
    }

    /// Returns the whole text, for the owner of the key and for the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_…", self.id())
    }
}

/// Encodes a big-endian number in exactly `length` digits.
fn base62(bytes: &[u8], length: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![0; length];
    for digit in digits.iter_mut().rev() {
        let mut rest = 0u32;
        for byte in &mut number {
            let part = rest << 8 | u32::from(*byte);
            // `rest` is below 62, so the quotient fits a byte.
            (*byte, rest) = ((part / 62) as u8, part % 62);
        }
        *digit = DIGITS[rest as usize];
    }
    digits.into_iter().map(char::from).collect()
}

fn checksum(text: &str) -> String {
    base62(&crc32(text.as_bytes()).to_be_bytes(), CHECKSUM_CHARS)
}

/// Returns the CRC-32 of zip and Ethernet. It finds typing errors and is no protection against attacks.
fn crc32(bytes: &[u8]) -> u32 {
    let fold = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    };
    !bytes.iter().fold(!0, fold)
}

#[cfg(test)]
mod tests;
