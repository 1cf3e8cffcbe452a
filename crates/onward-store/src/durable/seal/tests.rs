//! Tests of the parent module.

use super::*;

#[test]
fn call_id_keys_sort_like_call_ids_and_read_back() {
    let mut call_ids: Vec<CallId> =
        ["0", "7", "300", "2.1.0", "2.1.4.0.9", "2.1.1", "2.0.5", "10.0.0"].map(|text| CallId::parse(text).unwrap()).into();
    let mut by_key = call_ids.clone();
    call_ids.sort();
    by_key.sort_by_key(call_id_key);
    assert_eq!(call_ids, by_key);
    for call_id in call_ids {
        assert_eq!(read_call_id(&call_id_key(&call_id)).unwrap(), call_id);
    }
}

/// A checksum detects damage, not foreign data: bytes with a valid checksum may come from elsewhere (S35).
#[test]
fn mutated_rows_are_refused_or_read_back_and_never_panic() {
    let call_ids: Vec<Vec<u8>> = ["0", "2.1.4.0.9"].iter().map(|text| call_id_key(&CallId::parse(text).unwrap())).collect();
    let counts = onward_testkit::mutate("keys of call ids", &call_ids, |bytes| {
        let Ok(call_id) = read_call_id(bytes) else { return false };
        assert_eq!(read_call_id(&call_id_key(&call_id)).unwrap(), call_id);
        true
    });
    counts.assert_refuses();
    let sealed = vec![seal_bytes(b"what was written".to_vec())];
    let counts = onward_testkit::mutate("seals", &sealed, |bytes| {
        let Ok(inner) = unseal_bytes("it", bytes) else { return false };
        assert_eq!(seal_bytes(inner.to_vec()), bytes);
        true
    });
    counts.assert_refuses();
    let cursors = vec![crate::lists::cursor(Timestamp(7), "order/1:2").into_bytes()];
    let counts = onward_testkit::mutate("cursors of lists", &cursors, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let Ok((at, id)) = crate::parse_cursor(text) else { return false };
        assert_eq!(crate::parse_cursor(&crate::lists::cursor(at, id)).unwrap(), (at, id));
        true
    });
    counts.assert_refuses();
}

#[test]
fn a_changed_byte_breaks_the_seal() {
    let sealed = seal_bytes(b"what was written".to_vec());
    assert_eq!(unseal_bytes("it", &sealed).unwrap(), b"what was written");
    for position in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[position] ^= 4;
        assert!(unseal_bytes("it", &changed).is_err(), "byte {position}");
    }
}
