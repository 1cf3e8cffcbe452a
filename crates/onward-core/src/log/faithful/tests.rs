//! Tests of the parent module.

use std::collections::BTreeMap;

use super::*;

#[derive(serde::Serialize)]
enum Shape<T> {
    Unit,
    Newtype(T),
    Tuple(u8, T),
    Struct { plain: &'static str, value: T },
}

#[derive(serde::Serialize, Clone, Copy)]
struct Newtype<T>(T);

#[derive(serde::Serialize)]
struct Pair<T>(Option<()>, T);

#[derive(serde::Serialize)]
struct Fields<T> {
    nothing: Option<u8>,
    value: T,
}

/// Returns the results for `value` inside every kind of container.
fn everywhere<T: Serialize + Copy>(value: T) -> Vec<Result<Vec<u8>, Error>> {
    vec![
        to_json(&value),
        to_json(&Some(value)),
        to_json(&[value]),
        to_json(&(1, value)),
        to_json(&BTreeMap::from([("key", value)])),
        to_json(&Newtype(value)),
        to_json(&Pair(None, value)),
        to_json(&Fields { nothing: None, value }),
        to_json(&Shape::Newtype(value)),
        to_json(&Shape::Tuple(1, value)),
        to_json(&Shape::Struct { plain: "text", value }),
        to_json(&vec![Fields { nothing: None, value: vec![Some(Shape::Unit), Some(Shape::Newtype(value)), None] }]),
    ]
}

#[test]
fn a_float_that_is_not_finite_is_refused_wherever_it_is() {
    for (value, words) in [
        (f64::NAN, "not a number cannot be recorded"),
        (f64::INFINITY, "an infinite float cannot be recorded"),
        (f64::NEG_INFINITY, "an infinite float cannot be recorded"),
    ] {
        for refused in everywhere(value).into_iter().chain(everywhere(value as f32)) {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn everything_else_is_written_as_serde_json_writes_it() {
    for written in everywhere(0.5).into_iter().chain(everywhere(7u128)).chain(everywhere([()])).chain(everywhere((None::<f64>,)))
    {
        let text = written.unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(serde_json::to_vec(&value).unwrap(), text);
    }
    let mixed = (f64::MAX, i128::MIN, 'x', "\u{1F600}\n", [None, Some(1)], BTreeMap::from([(1, ()), (2, ())]));
    assert_eq!(to_json(&mixed).unwrap(), serde_json::to_vec(&mixed).unwrap());
}

#[derive(serde::Serialize, Clone, Copy)]
struct Unit;

/// Without the check, each of these would be read back as `None`.
#[test]
fn nothing_inside_of_an_option_is_refused_wherever_it_is() {
    let refused = everywhere(Some(None::<u8>))
        .into_iter()
        .chain(everywhere(Some(())))
        .chain(everywhere(Some(Unit)))
        .chain(everywhere(Some(Newtype(None::<u8>))))
        .chain(everywhere(Some(Some(None::<u8>))))
        .chain([to_json(&Some(serde_json::Value::Null)), to_json(&Some(Box::new(Some(&())))), to_json(&[Some(Some(())), None])]);
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("a null inside an option cannot be recorded"), "{error}");
    }
}

#[test]
fn options_that_are_read_as_they_were_are_taken() {
    let each = Some((None::<u8>, Some([None, Some(1)]), Some(BTreeMap::from([("key", None::<()>)])), ()));
    assert_eq!(to_json(&each).unwrap(), br#"[null,[null,1],{"key":null},null]"#);
    let named =
        Some((Some(Shape::Newtype(None::<u8>)), Some(Shape::<()>::Unit), Fields { nothing: None, value: Some(()).is_some() }));
    assert_eq!(to_json(&named).unwrap(), br#"[{"Newtype":null},"Unit",{"nothing":null,"value":true}]"#);
    assert_eq!(to_json(&None::<Option<u8>>).unwrap(), b"null");
    assert_eq!(to_json(&Some(Some(1))).unwrap(), b"1");
}
