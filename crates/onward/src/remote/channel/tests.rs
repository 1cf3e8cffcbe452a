//! Tests of the parent module.

use super::*;

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Cause {
    text: &'static str,
    source: Option<Box<Cause>>,
}

/// Returns an error whose chain of causes has these texts.
fn chain(texts: &[&'static str]) -> Cause {
    let (text, causes) = texts.split_first().unwrap();
    Cause { text, source: (!causes.is_empty()).then(|| Box::new(chain(causes))) }
}

#[test]
fn a_sentence_has_each_cause_once() {
    let of = |texts: &[&'static str]| {
        let error = chain(texts);
        sentence(&error.to_string(), error.source())
    };
    let refused = "Connection refused (os error 111)";
    let wanted = "tcp connect error: Connection refused (os error 111)";
    assert_eq!(of(&["tcp connect error", "transport error", "tcp connect error", refused]), wanted);
    assert_eq!(of(&["transport error", "tcp connect error", refused]), wanted);
    assert_eq!(of(&["transport error"]), "transport error");
    assert_eq!(of(&["http2 error: reset", "reset"]), "http2 error: reset");
}
