//! Payload encryption with XChaCha20-Poly1305 and named keys that can be rotated.
//!
//! An encrypted payload consists of its identity (16 bytes), a random nonce (24), the number of its contexts (1), the hash of
//! each context (16), and the encrypted content type and bytes with their tag. Key name, identity and contexts are associated
//! data: none of them can be changed, and a payload that is moved to another context is rejected (S10).
//!
//! The identity is a keyed hash of the plain payload, which cannot be computed or checked without a key. It lets a store detect
//! that a run is started again with the same input, and nothing else.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload as Sealing};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use onward_core::{Hash, Payload};

use super::{Codec, CodecError, PayloadContext};

const IDENTITY: usize = 16;
const NONCE: usize = 24;
const HOME: usize = 16;

/// The longest name of a key.
const NAME_MAX: usize = 64;

/// A key with its name. Every payload that it encrypts carries the name in plain text.
#[derive(Clone)]
pub struct EncryptionKey {
    name: String,
    bytes: [u8; 32],
}

impl EncryptionKey {
    /// Creates a key. The name has 1 to 64 letters, digits, `-`, `_` or `.`; the bytes must come from a secure random source.
    pub fn new(name: impl Into<String>, bytes: [u8; 32]) -> Result<EncryptionKey, CodecError> {
        let name = name.into();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
            return Err(CodecError::new("the name of a key must have 1 to 64 letters, digits, `-`, `_` or `.`"));
        }
        Ok(EncryptionKey { name, bytes })
    }

    /// Creates a key from 64 hex digits, as `openssl rand -hex 32` prints them.
    pub fn from_hex(name: impl Into<String>, text: &str) -> Result<EncryptionKey, CodecError> {
        let wrong = || CodecError::new("a key must have 64 hex digits");
        let text = text.trim();
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[position * 2..position * 2 + 2], 16).map_err(|_| wrong())?;
        }
        EncryptionKey::new(name, bytes)
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({})", self.name)
    }
}

/// A codec that encrypts every payload with the newest key and decrypts with any of its keys.
pub struct Encryption {
    newest: String,
    keys: BTreeMap<String, [u8; 32]>,
    /// The oldest key, so that a start that is repeated after a rotation has the same identity.
    identity: [u8; 32],
}

impl Encryption {
    /// Creates the codec; the newest key comes first. To rotate, put a new key before the others, and remove an old one when no
    /// run has payloads encrypted with it.
    pub fn new(keys: impl IntoIterator<Item = EncryptionKey>) -> Result<Encryption, CodecError> {
        let mut by_name = BTreeMap::new();
        let (mut newest, mut identity) = (None, [0; 32]);
        for EncryptionKey { name, bytes } in keys {
            newest.get_or_insert_with(|| name.clone());
            identity = bytes;
            if by_name.insert(name.clone(), bytes).is_some() {
                return Err(CodecError::new(format!("two keys have the name `{name}`")));
            }
        }
        let newest = newest.ok_or_else(|| CodecError::new("no encryption key is given"))?;
        Ok(Encryption { newest, keys: by_name, identity })
    }

    fn identity(&self, payload: &Payload, context: &PayloadContext) -> Hash {
        Hash::of_parts(&[b"onward identity", &self.identity, context.as_str().as_bytes(), &Hash::of(payload).0])
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("newest", &self.newest).field("keys", &self.keys.keys()).finish_non_exhaustive()
    }
}

fn home_hash(context: &PayloadContext) -> [u8; HOME] {
    Hash::of_parts(&[b"onward home", context.as_str().as_bytes()]).0
}

/// Returns the associated data: format, key name, identity and contexts.
fn associated(name: &str, identity: &[u8], contexts: &[u8]) -> Vec<u8> {
    let mut data = b"onward sealed 1\0".to_vec();
    data.extend_from_slice(name.as_bytes());
    data.push(0);
    data.extend_from_slice(identity);
    data.extend_from_slice(contexts);
    data
}

/// Returns the content type, a zero byte, and the bytes.
fn plain_bytes(payload: &Payload) -> Vec<u8> {
    let content_type = if payload.is_json() { "" } else { payload.content_type() };
    [content_type.as_bytes(), &[0], payload.data()].concat()
}

fn plain_payload(bytes: Vec<u8>) -> Option<Payload> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let content_type = std::str::from_utf8(&bytes[..end]).ok()?.to_owned();
    let data = bytes::Bytes::from(bytes).slice(end + 1..);
    Some(if content_type.is_empty() { Payload::from_json_text(data) } else { Payload::binary(&content_type, data) })
}

impl Codec for Encryption {
    fn encode(&self, payload: &Payload, contexts: &[PayloadContext]) -> Result<Payload, CodecError> {
        let failed = |what: &str| CodecError::new(format!("a payload cannot be encrypted: {what}"));
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|error| failed(&error.to_string()))?;
        let identity = self.identity(payload, contexts.first().ok_or_else(|| failed("it has no context"))?).0;
        let mut homes_bytes = vec![u8::try_from(contexts.len()).map_err(|_| failed("it has too many contexts"))?];
        contexts.iter().for_each(|context| homes_bytes.extend_from_slice(&home_hash(context)));
        let associated = associated(&self.newest, &identity, &homes_bytes);
        let cipher = XChaCha20Poly1305::new(&Key::from(self.keys[&self.newest]));
        let sealing = Sealing { msg: &plain_bytes(payload), aad: &associated };
        let sealed = cipher.encrypt(&XNonce::from(nonce), sealing).map_err(|_| failed("it is too long"))?;
        Ok(Payload::sealed(&self.newest, [&identity[..], &nonce, &homes_bytes, &sealed].concat()))
    }

    fn decode(&self, payload: &Payload, context: &PayloadContext) -> Result<Payload, CodecError> {
        let Some(name) = payload.sealed_with() else { return Ok(payload.clone()) };
        let key = self
            .keys
            .get(name)
            .ok_or_else(|| CodecError::new(format!("it is encrypted with key `{name}`, which is not here")))?;
        let altered = || CodecError::new(format!("it is damaged or was not encrypted with key `{name}`"));
        let data = payload.data();
        let (identity, rest) = data.split_at_checked(IDENTITY).ok_or_else(altered)?;
        let (nonce, rest) = rest.split_at_checked(NONCE).ok_or_else(altered)?;
        let count = usize::from(*rest.first().ok_or_else(altered)?);
        let (contexts, sealed) = rest.split_at_checked(1 + count * HOME).ok_or_else(altered)?;
        let cipher = XChaCha20Poly1305::new(&Key::from(*key));
        let nonce = XNonce::from(<[u8; NONCE]>::try_from(nonce).map_err(|_| altered())?);
        let sealing = Sealing { msg: sealed, aad: &associated(name, identity, contexts) };
        let plain = cipher.decrypt(&nonce, sealing).map_err(|_| altered())?;
        if !contexts[1..].chunks(HOME).any(|other| other == home_hash(context)) {
            return Err(CodecError::new("it was encrypted for another run or another use"));
        }
        plain_payload(plain).ok_or_else(altered)
    }

    /// Masks the hash with a pad that differs for every call of every run.
    fn mask(&self, encoded: &Payload, context: &PayloadContext, hash: &mut Hash) {
        let Some(key) = encoded.sealed_with().and_then(|name| self.keys.get(name)) else { return };
        let pad = Hash::of_parts(&[b"onward mask", key, context.as_str().as_bytes()]);
        hash.0.iter_mut().zip(pad.0).for_each(|(byte, pad)| *byte ^= pad);
    }
}

#[cfg(test)]
mod tests;
