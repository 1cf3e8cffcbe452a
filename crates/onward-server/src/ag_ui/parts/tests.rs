//! Tests of the parent module.

use super::*;

fn attachment(media_type: &str, source: Value) -> Value {
    json!({"type": "attachment", "media_type": media_type, "source": source})
}

#[test]
fn parts_that_a_client_sends_back_are_unchanged() {
    let blocks = [
        json!({"type": "text", "text": "see"}),
        attachment("image/png", json!({"base64": "aGV5"})),
        attachment("application/pdf", json!({"url": "http://x/y"})),
        attachment("audio/wav", json!({"hash": "9f86d0"})),
    ];
    let sent = content(&blocks, &mut AttachmentLimit::unlimited());
    let sorts: Vec<&str> = sent.as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(sorts, ["text", "image", "document", "audio"]);
    assert_eq!(sent.as_array().unwrap().iter().filter_map(block).collect::<Vec<_>>(), blocks);
    let words = [json!({"type": "text", "text": "a"}), json!({"type": "refusal", "text": "b"})];
    assert_eq!(content(&words, &mut AttachmentLimit::unlimited()), "ab");
}

#[test]
fn what_there_is_no_room_for_is_named_as_the_upload_names_it() {
    let picture = |base64: &str| attachment("image/png", json!({"base64": base64}));
    let sent = content(&[picture("aGV5aGV5"), picture("aGV5"), picture("aGU")], &mut AttachmentLimit::within(16));
    let expected = [
        json!({"type": "data", "mimeType": "image/png", "value": "aGV5aGV5"}),
        json!({"type": "file", "provider": "onward", "mimeType": "image/png", "value": "fa690b82061edfd2852629aeba8a8977b57e40fcb77d1a7a28b26cba62591204"}),
    ];
    assert_eq!([&sent[0]["source"], &sent[1]["source"]], [&expected[0], &expected[1]]);
    assert_eq!(sent[2]["source"]["type"], "file", "without padding, too");
}
