//! Attachments, which messages refer to by their hash.

use onward_server::Options;
use onward_wire::api;
use serde_json::{Value, json};

use crate::entries::call;
use crate::site::{BODY_BYTES_MAX, Site, limits};

const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; // of `hello`

#[tokio::test]
async fn bytes_are_kept_under_their_hash_over_http_and_grpc() {
    let folder = tempfile::tempdir().unwrap();
    let attachments = Some(folder.path().join("kept"));
    let site = Site::with(Options { limits: limits(), attachments, ..Options::default() }).await;
    for headers in ["", "Content-Type: image/png\r\n"] {
        let kept = site.send("POST", "/v1/attachments", headers, "hello").await.expect(201);
        assert_eq!((kept["hash"].as_str(), kept["bytes"].as_u64()), (Some(HASH), Some(5)), "again is the same");
    }
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", site.address)).unwrap().connect().await.unwrap();
    let kept = call::<api::verb::PutAttachment>(
        &channel,
        api::PutAttachmentRequest { content: onward_core::Payload::binary("image/png", "hello, too") },
    )
    .await
    .unwrap();
    let mut files: Vec<String> = std::fs::read_dir(folder.path().join("kept"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut hashes = [HASH.to_owned(), kept.hash.clone()];
    hashes.sort();
    assert_eq!(files, hashes, "nothing unfinished is left");
    assert_eq!(std::fs::read(folder.path().join("kept").join(HASH)).unwrap(), b"hello");
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let site = Site::open().await;
    site.send("POST", "/v1/attachments", "", "hello").await.problem(404, "attachments_disabled");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("kept");
    let site = Site::with(Options { limits: limits(), attachments: Some(folder.clone()), ..Options::default() }).await;
    site.send("POST", "/v1/attachments", "", "").await.problem(400, "json_invalid");
    site.send("POST", "/v1/attachments", "", &"x".repeat(BODY_BYTES_MAX + 1)).await.problem(413, "body_too_large");
    std::fs::write(&folder, "a file stands where the folder should be").unwrap();
    site.send("POST", "/v1/attachments", "", "hello").await.problem(503, "not_ready");
}

/// Models would get encoded bytes with the media type of the decoded ones.
#[tokio::test]
async fn bytes_that_are_encoded_for_the_way_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let attachments = Some(folder.path().join("kept"));
    let site = Site::with(Options { limits: limits(), attachments, ..Options::default() }).await;
    let refused = site.send("POST", "/v1/attachments", "Content-Encoding: gzip\r\n", "hello").await;
    assert!(refused.body.contains("without Content-Encoding"), "{}", refused.body);
    refused.problem(415, "content_type_unsupported");
    site.send("POST", "/v1/attachments", "Content-Encoding: identity\r\n", "hello").await.expect(201);
}

#[tokio::test]
async fn a_damaged_file_is_replaced_by_a_later_upload() {
    let folder = tempfile::tempdir().unwrap();
    let attachments = Some(folder.path().to_owned());
    let site = Site::with(Options { limits: limits(), attachments, ..Options::default() }).await;
    std::fs::write(folder.path().join(HASH), "hallo").unwrap();
    site.send("POST", "/v1/attachments", "", "hello").await.expect(201);
    assert_eq!(std::fs::read(folder.path().join(HASH)).unwrap(), b"hello");
}

/// An attachment that no model could get is refused when it is sent, while the sender can still react.
#[tokio::test]
async fn an_attachment_that_is_none_is_refused_at_every_door() {
    let site = Site::open().await;
    site.start("chat", "a", json!("be brief")).await;
    let attached =
        |source: Value, media_type: &str| json!({"blocks": [{"type": "attachment", "media_type": media_type, "source": source}]});
    let ab12 = || attached(json!({"hash": "ab12"}), "image/png");
    let upper = attached(json!({"hash": HASH.to_uppercase()}), "image/png");
    let data_url = attached(json!({"base64": "data:image/png;base64,AAAA"}), "image/png");
    let nothing = attached(json!({}), "image/png");
    let no_type = attached(json!({"hash": HASH}), "picture");
    for content in [ab12(), upper, data_url, nothing, no_type] {
        let refused = site.post_json("/v1/runs/a/messages", json!({"content": content})).await;
        refused.problem(400, "attachment_invalid");
    }
    let result = json!({"blocks": [{"type": "tool_result", "call_id": "c", "blocks": ab12()["blocks"]}]});
    for content in [ab12(), result] {
        let entry = json!({"role": "tool", "content": content});
        site.post_json("/v1/runs/a/entries", entry.clone()).await.problem(400, "attachment_invalid");
        site.post_json("/v1/runs/a/branch", json!({"entry": entry})).await.problem(400, "attachment_invalid");
    }
    let good = attached(json!({"hash": HASH}), "application/zip");
    site.post_json("/v1/runs/a/messages", json!({"content": good})).await.expect(202);
}
