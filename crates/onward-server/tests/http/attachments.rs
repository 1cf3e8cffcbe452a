//! Bytes that messages name by their hash.

use onward_server::Options;
use onward_wire::api;

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
    let kept = call::<api::PutAttachment>(
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
    site.send("POST", "/v1/attachments", "", "hello").await.problem(404, "attachments_not_kept");
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("kept");
    let site = Site::with(Options { limits: limits(), attachments: Some(place.clone()), ..Options::default() }).await;
    site.send("POST", "/v1/attachments", "", "").await.problem(400, "json_invalid");
    site.send("POST", "/v1/attachments", "", &"x".repeat(BODY_BYTES_MAX + 1)).await.problem(413, "body_too_large");
    std::fs::write(&place, "a file stands where the folder should be").unwrap();
    site.send("POST", "/v1/attachments", "", "hello").await.problem(503, "not_ready");
}
