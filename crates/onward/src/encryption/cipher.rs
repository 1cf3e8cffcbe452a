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
mod tests {
    use onward_core::{Namespace, RunId, RunKey};

    use super::*;

    fn key(name: &str, byte: u8) -> EncryptionKey {
        EncryptionKey::new(name, [byte; 32]).unwrap()
    }

    fn context(run: &str, what: &str) -> PayloadContext {
        PayloadContext::of(&RunKey::new(Namespace::default(), RunId::new(run).unwrap()), what)
    }

    fn text(text: &str) -> Payload {
        Payload::json(text).unwrap()
    }

    /// S35: a changed payload is never decrypted.
    #[test]
    fn mutated_sealed_payloads_are_refused_and_never_panic() {
        let (encryption, context) = (Encryption::new([key("k1", 1)]).unwrap(), context("a", "input"));
        let sealed = encryption.encode(&text("secret"), std::slice::from_ref(&context)).unwrap();
        let sample = sealed.data().to_vec();
        onward_testkit::mutate("sealed payloads", std::slice::from_ref(&sample), |bytes| {
            let is_read = encryption.decode(&Payload::sealed("k1", bytes.to_vec()), &context).is_ok();
            assert_eq!(is_read, bytes == sample, "{}", bytes.escape_ascii());
            is_read
        });
    }

    /// CO1.
    #[test]
    fn a_payload_is_read_at_home_and_nowhere_else() {
        let encryption = Encryption::new([key("k1", 1)]).unwrap();
        for payload in
            [text("secret"), Payload::null(), Payload::binary("image/png", vec![0, 255, 0]), Payload::binary("x/y", "")]
        {
            let sealed = encryption.encode(&payload, &[context("a", "input"), context("b", "call")]).unwrap();
            assert_eq!(sealed.sealed_with(), Some("k1"));
            assert_eq!(encryption.decode(&sealed, &context("a", "input")).unwrap(), payload);
            assert_eq!(encryption.decode(&sealed, &context("b", "call")).unwrap(), payload);
            for foreign in [context("b", "input"), context("a", "output"), context("c", "call")] {
                let why = encryption.decode(&sealed, &foreign).unwrap_err().to_string();
                assert_eq!(why, "it was encrypted for another run or another use");
            }
        }
    }

    #[test]
    fn every_bit_counts() {
        let encryption = Encryption::new([key("k1", 1), key("k2", 2)]).unwrap();
        let sealed = encryption.encode(&text("secret"), &[context("a", "input")]).unwrap();
        for position in 0..sealed.data().len() {
            let mut data = sealed.data().to_vec();
            data[position] ^= 1;
            assert!(encryption.decode(&Payload::sealed("k1", data), &context("a", "input")).is_err(), "byte {position}");
        }
        for length in 0..sealed.data().len() {
            let cut = Payload::sealed("k1", sealed.data().slice(..length));
            assert!(encryption.decode(&cut, &context("a", "input")).is_err(), "{length} bytes");
        }
        assert!(encryption.decode(&Payload::sealed("k2", sealed.data().clone()), &context("a", "input")).is_err());
    }

    /// S11.
    #[test]
    fn old_keys_still_read_and_the_newest_writes() {
        let (before, after) = (Encryption::new([key("k1", 1)]).unwrap(), Encryption::new([key("k2", 2), key("k1", 1)]).unwrap());
        let (old, new) = (
            before.encode(&text("x"), &[context("a", "input")]).unwrap(),
            after.encode(&text("x"), &[context("a", "input")]).unwrap(),
        );
        assert_eq!((old.sealed_with(), new.sealed_with()), (Some("k1"), Some("k2")));
        assert_eq!(after.decode(&old, &context("a", "input")).unwrap(), text("x"));
        let why = before.decode(&new, &context("a", "input")).unwrap_err().to_string();
        assert_eq!(why, "it is encrypted with key `k2`, which is not here");
        assert_eq!(Hash::of(&old), Hash::of(&new), "the same input is the same after a rotation");
    }

    #[test]
    fn what_is_the_same_has_the_same_identity_and_other_bytes() {
        let encryption = Encryption::new([key("k1", 1)]).unwrap();
        let seal =
            |text: &'static str, run: &str| encryption.encode(&Payload::from_json_text(text), &[context(run, "input")]).unwrap();
        let (one, other) = (seal(r#"{"a":1,"b":2}"#, "a"), seal(r#"{"b":2, "a":1}"#, "a"));
        assert_eq!(Hash::of(&one), Hash::of(&other));
        assert_ne!(one.data(), other.data());
        assert_ne!(Hash::of(&one), Hash::of(&seal(r#"{"a":1,"b":3}"#, "a")));
        assert_ne!(Hash::of(&one), Hash::of(&seal(r#"{"a":1,"b":2}"#, "b")), "not even equality is told between runs");
    }

    #[test]
    fn a_hash_is_hidden_and_shown_by_the_same_call() {
        let encryption = Encryption::new([key("k1", 1)]).unwrap();
        let sealed = encryption.encode(&text("x"), &[context("a", "step")]).unwrap();
        let plain = Hash::of(&text("x"));
        let mut hash = plain;
        encryption.mask(&sealed, &context("a", "hash 0"), &mut hash);
        assert_ne!(hash, plain);
        let mut elsewhere = plain;
        encryption.mask(&sealed, &context("a", "hash 1"), &mut elsewhere);
        assert_ne!(hash, elsewhere);
        encryption.mask(&sealed, &context("a", "hash 0"), &mut hash);
        assert_eq!(hash, plain);
        encryption.mask(&text("plain"), &context("a", "hash 0"), &mut hash);
        assert_eq!(hash, plain, "beside a plain payload it was never hidden");
    }

    /// CO2.
    #[test]
    fn what_is_not_sealed_passes() {
        let encryption = Encryption::new([key("k1", 1)]).unwrap();
        assert_eq!(encryption.decode(&text("x"), &context("a", "input")).unwrap(), text("x"));
    }

    #[test]
    fn keys_that_are_none_are_refused_and_never_shown() {
        assert!(Encryption::new([]).is_err());
        assert!(Encryption::new([key("k", 1), key("k", 2)]).is_err());
        assert!(EncryptionKey::new("a;b", [0; 32]).is_err() && EncryptionKey::new("", [0; 32]).is_err());
        assert!(EncryptionKey::from_hex("k", "00").is_err() && EncryptionKey::from_hex("k", &"zz".repeat(32)).is_err());
        let key = EncryptionKey::from_hex("k", &"ab".repeat(32)).unwrap();
        assert_eq!(format!("{key:?} {:?}", Encryption::new([key.clone()]).unwrap()).matches("171").count(), 0);
    }
}
