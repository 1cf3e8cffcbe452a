//! Tests of the parent module.

use super::*;

const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[test]
fn an_unusable_attachment_has_a_fault_with_a_reason() {
    let fault = |json: &str| attachment_fault(&Payload::from_json_text(json.to_owned()));
    let attached = |media_type: &str, source: &str| {
        let block = format!(r#"{{"type":"attachment","media_type":"{media_type}","source":{source}}}"#);
        let alone = fault(&format!(r#"{{"blocks":[{{"type":"text","text":"a"}},{block}]}}"#));
        let in_result = fault(&format!(r#"{{"blocks":[{{"type":"tool_result","call_id":"c","blocks":[{block}]}}]}}"#));
        assert_eq!(alone, in_result);
        alone.unwrap_or("nothing")
    };
    for (media_type, source) in [
        ("image/png", format!(r#"{{"hash":"{HASH}"}}"#)),
        ("application/vnd.ms-excel", r#"{"base64":"AA=="}"#.to_owned()),
        ("text/plain; charset=utf-8", r#"{"base64":"AA=="}"#.to_owned()),
        ("image/svg+xml", r#"{"url":"https://x/y"}"#.to_owned()),
    ] {
        assert_eq!(attached(media_type, &source), "nothing");
    }
    for hash in ["", "ab12", &HASH[1..], &HASH.to_uppercase(), &format!("{HASH}0"), &format!("../{}", &HASH[3..])] {
        assert!(attached("image/png", &format!(r#"{{"hash":"{hash}"}}"#)).contains("`hash` is not a SHA-256 hash"), "{hash}");
    }
    for media_type in ["", "png", "image/", "image/ png; charset=x", "image/p ng"] {
        assert!(attached(media_type, r#"{"url":"https://x/y"}"#).contains("media_type"), "{media_type}");
    }
    for source in ["{}", "null", r#""x""#, r#"{"hash":1}"#, r#"{"file":"x"}"#, r#"{"url":"a","base64":"AA=="}"#] {
        assert_eq!(attached("image/png", source), SOURCE, "{source}");
    }
    for url in [
        "",
        " ",
        "x",
        "file:///etc/passwd",
        "ftp://x/y",
        "gopher://x",
        "//x/y",
        "javascript:x",
        "http:x",
        "httpx://y",
        "http://a\\nb",
    ] {
        assert!(attached("image/png", &format!(r#"{{"url":"{url}"}}"#)).contains("`url` is invalid"), "{url}");
    }
    for url in ["http://x", "HTTPS://x/y", "data:image/png;base64,AAAA"] {
        assert_eq!(attached("image/png", &format!(r#"{{"url":"{url}"}}"#)), "nothing");
    }
    for bytes in ["", "=", "data:image/png;base64,AAAA", "A-_A"] {
        assert!(attached("image/png", &format!(r#"{{"base64":"{bytes}"}}"#)).contains("Base64"), "{bytes}");
    }
}

#[test]
fn an_unusable_attachment_is_replaced_and_the_rest_is_unchanged() {
    let good = json!({"type": "attachment", "media_type": "image/png", "source": {"hash": HASH}});
    let bad = json!({"type": "attachment", "media_type": "image/png", "source": {"base64": "?"}});
    let replacement =
        json!({"type": "text", "text": "[an attachment that no model can be shown: its `base64` is not valid Base64]"});
    let content = |attached: &Value| {
        let result = json!({"type": "tool_result", "call_id": "c", "blocks": [attached, good]});
        json!({"text": "x", "blocks": [{"type": "text", "text": "a"}, attached, good, 7, result]})
    };
    assert_eq!(with_faults_replaced(&Payload::json(&content(&bad)).unwrap()), Some(content(&replacement)));
    assert_eq!(with_faults_replaced(&Payload::json(&content(&good)).unwrap()), None);
}

#[test]
fn what_an_agent_reads_in_its_own_way_has_none() {
    for json in
        [r#""look""#, "7", "null", "[]", r#"{"blocks":7}"#, r#"{"blocks":[7,{"type":"order"}]}"#, r#"{"type":"attachment"}"#]
    {
        assert_eq!(attachment_fault(&Payload::from_json_text(json.to_owned())), None, "{json}");
    }
    assert_eq!(attachment_fault(&Payload::binary("application/octet-stream", b"\xff".to_vec())), None);
}
