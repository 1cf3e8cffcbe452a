//! Tests of the parent module.

use onward_llm::{Message, Role};

use super::*;

fn request(hashes: &[&str]) -> ModelRequest {
    let attachment =
        |hash: &&str| Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Hash((*hash).to_owned()) });
    ModelRequest::new("m", vec![Message { role: Role::User, blocks: hashes.iter().map(attachment).collect() }])
}

async fn resolved(attachments: &Attachments, hashes: &[&str]) -> Result<String, CallError> {
    let mut request = request(hashes);
    put_in_place(&mut request, Some(attachments), false).await?;
    Ok(serde_json::to_string(&request.messages).unwrap())
}

/// AM1.
#[tokio::test]
async fn attachments_that_are_too_large_become_notes_and_the_latest_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c, huge] = [[1; 6].as_slice(), &[2; 6], &[0; 4], &[0; 11]].map(|bytes| {
        std::fs::write(folder.path().join(hash_of(bytes)), bytes).unwrap();
        hash_of(bytes)
    });
    let attachments = Attachments::folder(folder.path()).bytes_max(10);
    let text = resolved(&attachments, &[&a, &b, &c, &c]).await.unwrap();
    assert!(text.contains(&format!("[an attachment {a} of type image/png, which is too large to be shown]")), "{text}");
    assert_eq!((text.matches(r#""base64":"AAAAAA=="#).count(), text.matches("too large").count()), (2, 1), "{text}");
    let found = Attachments::found_by(|_| async move { Ok(Some(vec![0; 4])) }).bytes_max(3);
    assert!(resolved(&found, &[&c]).await.unwrap().contains("too large"));
    assert!(resolved(&attachments, &[&huge]).await.unwrap().contains("too large"));
}

/// AM3.
#[tokio::test]
async fn bytes_that_are_not_those_of_their_hash_are_reported_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let hash = hash_of(b"seven");
    std::fs::write(folder.path().join(&hash), "eleven").unwrap();
    let exchanged = Attachments::found_by(|_| async { Ok(Some(b"eleven".to_vec())) });
    for attachments in [Attachments::folder(folder.path()), exchanged] {
        let error = resolved(&attachments, &[&hash]).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("attachment_damaged", true));
        let mut late = request(&[&hash]);
        put_in_place(&mut late, Some(&attachments), true).await.unwrap();
        let note =
            format!("[an attachment {hash} of type image/png, which is damaged: its bytes are not those that were attached]");
        assert_eq!(late.messages[0].blocks, [Block::text(note)]);
    }
}

#[tokio::test]
async fn nothing_but_the_file_of_a_hash_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir_all(inner.join("deeper")).unwrap();
    std::fs::write(folder.path().join("secret"), "x").unwrap();
    std::fs::write(inner.join(".hidden"), "x").unwrap();
    let attachments = Attachments::folder(&inner);
    let absolute = folder.path().join("secret").to_str().unwrap().to_owned();
    let (gone, directory) = (hash_of(b"gone"), hash_of(b"directory"));
    std::fs::create_dir(inner.join(&directory)).unwrap();
    for hash in ["../secret", absolute.as_str(), "..", ".", "", "deeper", ".hidden", &gone, &directory, "a\0b"] {
        let error = resolved(&attachments, &[hash]).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("attachment_missing", true), "{hash}");
        assert!(error.to_string().contains("not found"), "{error}");
        let mut late = request(&[hash]);
        put_in_place(&mut late, Some(&attachments), true).await.unwrap();
        assert_eq!(
            late.messages[0].blocks,
            [Block::text(format!("[an attachment {hash} of type image/png, which cannot be found]"))]
        );
    }
}

#[tokio::test]
async fn a_worker_without_attachment_store_reports_it() {
    let error = put_in_place(&mut request(&["ab"]), None, false).await.unwrap_err();
    assert!(error.to_string().contains("ab: no attachments are configured in this process"), "{error}");
}

/// AM2.
#[tokio::test]
async fn what_cannot_be_read_now_is_not_reported_as_missing() {
    let down = Attachments::found_by(|_| async { Err(Failure::new("down", "gone fishing")) });
    for is_late in [false, true] {
        let error = put_in_place(&mut request(&[&hash_of(b"ab")]), Some(&down), is_late).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("attachment_unreadable", true));
    }
}
