//! Tests of the parent module.

use super::*;

/// S35.
#[test]
fn mutated_ids_of_calls_are_refused_or_read_back_and_never_panic() {
    let namespace = Namespace::default();
    let samples = [b"order~1~2.1.0".to_vec(), b"a~b~0~7".to_vec()];
    let counts = onward_testkit::mutate("ids of calls", &samples, |bytes| {
        let Some(id) = std::str::from_utf8(bytes).ok().and_then(|text| CallRef::parse(&namespace, text).ok()) else {
            return false;
        };
        assert_eq!(CallRef::parse(&namespace, &id.to_string()).unwrap(), id);
        true
    });
    counts.assert_refuses();
}

#[test]
fn an_id_reads_back_from_its_text_whatever_the_runs_id_contains() {
    for text in ["order-1~0~7", "a~b~3~2.1.0", "~~~0~1"] {
        let id = CallRef::parse(&Namespace::default(), text).unwrap();
        assert_eq!(id.to_string(), text);
    }
}

#[test]
fn a_text_that_is_no_id_is_refused() {
    for text in ["", "order-1", "order-1~0", "~0~1", "order-1~x~1", "order-1~0~", "order-1~0~1.2", "order-1~-1~1"] {
        let error = CallRef::parse(&Namespace::default(), text).unwrap_err();
        assert_eq!(error.code(), "call_id_invalid", "{text}");
    }
}
