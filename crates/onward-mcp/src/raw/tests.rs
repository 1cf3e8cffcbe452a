//! Tests of the parent module.

use tokio::io::AsyncWriteExt;

use super::*;

const ODD: &str = r#"{ "z": 1.0, "a": 1e2,  "n": 9007199254740993, "big": 123456789012345678901234567890,
    "t": "a \" b \\", "k" : [ { "y": -0, "x": 1.50 } ] }"#;
const SENT: &str =
    r#"{"z":1.0,"a":1e2,"n":9007199254740993,"big":123456789012345678901234567890,"t":"a \" b \\","k":[{"y":-0,"x":1.50}]}"#;

fn message(arguments: &JsonObject) -> Vec<u8> {
    let message = serde_json::json!({"id": 1, "params": {"arguments": arguments, "name": "pay"}});
    serde_json::to_vec(&message).unwrap()
}

#[test]
fn numbers_and_order_arrive_as_they_were_written() {
    let raw = RawArguments::new();
    let (kept, arguments) = raw.keep(ODD);
    let sent = String::from_utf8(raw.put_in_place(message(&arguments))).unwrap();
    assert_eq!(sent, format!(r#"{{"id":1,"params":{{"arguments":{SENT},"name":"pay"}}}}"#));
    drop(kept);
    assert_eq!(raw.put_in_place(message(&arguments)), message(&arguments), "it is forgotten with its call");
}

/// TA1: arguments of one call cannot refer to those of another.
#[test]
fn what_looks_like_a_placeholder_is_none() {
    let raw = RawArguments::new();
    let (_first, _) = raw.keep(r#"{"secret":1}"#);
    let forged = r#"{"onward/arguments/0000/0":null}"#;
    let (_second, arguments) = raw.keep(forged);
    let sent = String::from_utf8(raw.put_in_place(message(&arguments))).unwrap();
    assert!(sent.contains(forged) && !sent.contains("secret"), "{sent}");
}

#[tokio::test]
async fn lines_are_written_whole_however_they_come() {
    let raw = RawArguments::new();
    let (_kept, arguments) = raw.keep(ODD);
    let mut line = message(&arguments);
    line.push(b'\n');
    for size in [1, 7, line.len()] {
        let mut writer = RawWriter::new(Vec::new(), raw.clone());
        for part in [&line[..], &line[..]].concat().chunks(size) {
            writer.write_all(part).await.unwrap();
        }
        writer.flush().await.unwrap();
        let sent = String::from_utf8(writer.inner).unwrap();
        assert_eq!(sent.matches(SENT).count(), 2, "{sent}");
        assert_eq!(sent.lines().count(), 2);
    }
}
