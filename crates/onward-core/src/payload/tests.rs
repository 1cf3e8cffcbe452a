//! Tests of the parent module.

use super::*;

#[track_caller]
fn check(payload: Payload, text: &str) {
    assert_eq!(serde_json::to_string(&payload).unwrap(), text);
    assert_eq!(serde_json::from_str::<Payload>(text).unwrap(), payload);
}

#[test]
fn json_is_json_however_its_type_is_spelled() {
    for spelled in
        ["", "application/json", "application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF8"]
    {
        assert!(Payload::binary(spelled, "1").is_json(), "{spelled}");
    }
    for other in ["application/jsonl", "application/json; charset=latin1", "text/plain", "application/ld+json"] {
        let payload = Payload::binary(other, "1");
        assert!(!payload.is_json() && payload.content_type() == other, "{other}");
    }
}

#[test]
fn json_keeps_its_very_text() {
    check(Payload::from_json_text(r#"{"b":1,  "a":9007199254740993}"#), r#"{"json":{"b":1,  "a":9007199254740993}}"#);
    check(Payload::from_json_text("1e400"), r#"{"json":1e400}"#);
    check(Payload::null(), r#"{"json":null}"#);
    check(Payload::from_json_text(r#""\u0000""#), r#"{"json":"\u0000"}"#);
}

/// P3: a replayed result equals the live one.
#[test]
fn every_finite_float_is_read_as_it_was_written_bit_for_bit() {
    let seed = 20_260_301;
    println!("seed {seed}");
    let call_id = crate::id::Branch::MAIN.call(0);
    let random = (0..200_000).map(|n| f64::from_bits(crate::random::derive(seed, &call_id, n)));
    let edges = [-0.0, f64::MIN_POSITIVE, f64::from_bits(1), f64::MAX, 0.1 + 0.2, 1e23, 9007199254740993.0, 5e-324];
    for value in random.chain(edges).filter(|value| value.is_finite()) {
        let read: f64 = Payload::json(&value).unwrap().read().unwrap();
        assert_eq!(read.to_bits(), value.to_bits(), "{value:e}");
        let single = value as f32;
        if single.is_finite() {
            let read: f32 = Payload::json(&single).unwrap().read().unwrap();
            assert_eq!(read.to_bits(), single.to_bits(), "{single:e}");
        }
        let loose: serde_json::Value = Payload::json(&value).unwrap().read().unwrap();
        assert_eq!(Payload::json(&loose).unwrap().read::<f64>().unwrap().to_bits(), value.to_bits(), "{value:e}");
    }
}

#[test]
fn a_sealed_payload_names_its_key_in_every_form() {
    let sealed = Payload::sealed("k1", vec![1, 2, 3]);
    assert_eq!(sealed.sealed_with(), Some("k1"));
    assert_eq!(format!("{sealed:?}"), "<3 bytes encrypted with key k1>");
    check(sealed.clone(), r#"{"base64":"AQID","type":"application/vnd.onward.sealed;key=k1"}"#);
    let text = sealed.to_sealed_text().unwrap();
    assert_eq!(text, "encrypted with key k1: AQID");
    assert_eq!(Payload::from_sealed_text(&text), Some(sealed));
    assert_eq!(Payload::from_sealed_text("encrypted with love"), None);
    assert_eq!(Payload::binary("image/png", "").to_sealed_text(), None);
}

#[test]
fn what_is_not_one_line_of_json_goes_as_base64() {
    check(Payload::from_json_text("[1,\n2]"), r#"{"base64":"WzEsCjJd","type":"application/json"}"#);
    check(Payload::from_json_text("not json"), r#"{"base64":"bm90IGpzb24=","type":"application/json"}"#);
    check(Payload::binary("image/png", vec![0xff, 0x00]), r#"{"base64":"/wA=","type":"image/png"}"#);
    check(Payload::binary("text/plain", ""), r#"{"base64":"","type":"text/plain"}"#);
}
