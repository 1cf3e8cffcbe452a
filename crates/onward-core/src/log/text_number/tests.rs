//! Tests of the parent module.

use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Numbers {
    #[serde(with = "super")]
    seed: u64,
    #[serde(default, with = "super")]
    first: Option<u64>,
}

#[test]
fn numbers_are_written_as_text_and_read_from_both() {
    let numbers = Numbers { seed: u64::MAX, first: None };
    let text = serde_json::to_string(&numbers).unwrap();
    assert_eq!(text, r#"{"seed":"18446744073709551615","first":null}"#);
    assert_eq!(serde_json::from_str::<Numbers>(&text).unwrap(), numbers);
    let read = serde_json::from_str::<Numbers>(r#"{"seed":7,"first":"8"}"#).unwrap();
    assert_eq!(read, Numbers { seed: 7, first: Some(8) });
    for wrong in [r#"{"seed":null}"#, r#"{"seed":-1}"#, r#"{"seed":"x"}"#, r#"{"seed":1.5}"#, "{}"] {
        assert!(serde_json::from_str::<Numbers>(wrong).is_err(), "{wrong}");
    }
}
