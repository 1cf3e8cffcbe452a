//! Tests of the parent module.

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
    for payload in [text("secret"), Payload::null(), Payload::binary("image/png", vec![0, 255, 0]), Payload::binary("x/y", "")] {
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
