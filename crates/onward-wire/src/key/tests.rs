//! Tests of the parent module.

use super::*;

#[test]
fn a_key_reads_back_and_has_its_lengths_at_both_ends_of_the_numbers() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    for (id, secret) in [([0; 8], [0; 32]), ([0xff; 8], [0xff; 32]), ([7; 8], [0xa5; 32])] {
        let key = ApiKey::new(id, secret);
        assert_eq!(ApiKey::parse(key.reveal()), Ok(key.clone()));
        assert_eq!((key.id().len(), key.secret().len()), (ID_CHARS, SECRET_CHARS));
    }
    assert_ne!(ApiKey::new([0; 8], [0xff; 32]).secret(), ApiKey::new([0; 8], [0xfe; 32]).secret());
}

#[test]
fn every_single_typing_error_is_found() {
    let key = ApiKey::new([3; 8], [9; 32]);
    for at in 0..key.reveal().len() {
        let mut text = key.reveal().as_bytes().to_vec();
        text[at] = if text[at] == b'x' { b'y' } else { b'x' };
        assert!(ApiKey::parse(std::str::from_utf8(&text).unwrap()).is_err(), "at {at}");
    }
    for text in ["", "onw", "onw___", &key.reveal()[1..], &key.reveal()[..60], "Bearer x", "onw_é_é_é"] {
        assert_eq!(ApiKey::parse(text), Err(ApiKeyError::Shape), "{text}");
    }
    assert_eq!(ApiKey::parse(&format!("{} ", key.reveal())), Err(ApiKeyError::Shape));
}

#[test]
fn the_secret_is_not_in_debug_output() {
    let key = ApiKey::new([3; 8], [9; 32]);
    assert!(!format!("{key:?}").contains(key.secret()));
}
