//! Tests of the parent module.

use super::*;

fn samples() -> Vec<Vec<u8>> {
    vec![b"\x05hello".to_vec(), b"\x03abc".to_vec()]
}

/// Reads a length, and as many bytes.
fn read(bytes: &[u8]) -> bool {
    bytes.split_first().is_some_and(|(length, rest)| rest.len() == usize::from(*length))
}

#[test]
fn a_decoder_that_looks_at_its_input_refuses_most_of_what_is_damaged() {
    let counts = mutate("lengths", &samples(), read);
    counts.assert_refuses();
    assert!(counts.accepted > 0);
}

#[test]
#[should_panic(expected = "were accepted")]
fn a_decoder_that_takes_everything_is_found() {
    mutate("everything", &samples(), |_| true).assert_refuses();
}

#[test]
#[should_panic(expected = "out of range")]
fn a_decoder_that_trusts_a_length_is_found() {
    mutate("trusting", &samples(), |bytes| bytes.first().is_none_or(|length| bytes[1..1 + usize::from(*length)].len() < 300));
}

#[test]
#[should_panic(expected = "this sample is refused")]
fn a_sample_that_is_refused_is_found() {
    mutate("samples", &[b"\x09hello".to_vec()], read);
}
