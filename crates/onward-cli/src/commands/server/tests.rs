//! Tests of the parent module.

use super::*;

#[test]
fn addresses_are_numbers_or_localhost() {
    assert_eq!(parse_address("localhost:1").unwrap().to_string(), "127.0.0.1:1");
    assert_eq!(parse_address("[::1]:1").unwrap().to_string(), "[::1]:1");
    assert!(parse_address("example.org:1").is_err() && parse_address("127.0.0.1").is_err());
}

/// A URL may contain a password, so errors show only its scheme.
#[test]
fn a_missing_store_is_reported_without_its_secrets() {
    let mistake = parse_store("mysql://me:secret@host/db").unwrap_err();
    assert_eq!(mistake.message, "unknown store type `mysql`");
    for text in ["host=h password=s3cret", "s3cret", "s3:cret", "postgres://u:s3,cret@h/db"] {
        let mistake = parse_store(text).unwrap_err();
        assert!(!mistake.message.contains("s3"), "{}", mistake.message);
    }
    assert!(matches!(parse_store("postgres://me:secret@host/db"), Ok(StoreLocation::Databases(_))));
    assert!(matches!(parse_store("postgres://a/x,postgres://b/y"), Ok(StoreLocation::Databases(urls)) if urls.len() == 2));
    assert_eq!(parse_store("postgres://a/x,y").unwrap_err().code, "store_unsupported");
    assert!(matches!(parse_store("embedded:./data"), Ok(StoreLocation::Directory(_))));
}
