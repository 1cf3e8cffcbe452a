//! Tests of the parent module.

use super::*;

#[test]
fn keys_and_sequences_are_distinguished() {
    assert_eq!(decode(b"l\x1b[D\x1b[6~G"), [ReplayKey::Next, ReplayKey::Back, ReplayKey::Far, ReplayKey::Last]);
    assert_eq!(decode(b"\x1b"), [ReplayKey::Quit]);
    assert_eq!(decode(b"\x1b[200~x\x1bOH\x1b[1;5C"), [ReplayKey::First]);
    assert_eq!(decode("é".as_bytes()), []);
}
