//! Tests of the parent module.

use super::*;

#[test]
fn a_call_id_reads_back_from_its_text() {
    for text in ["0", "7", "2.1.0", "2.1.4.0.9"] {
        assert_eq!(CallId::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(CallId::parse("2.1"), None);
    assert_eq!(CallId::parse(""), None);
}

#[test]
fn names_are_limited_by_bytes_and_never_normalized() {
    assert!(Name::new("a".repeat(255)).is_ok());
    assert_eq!(Name::new("é".repeat(128)), Err(NameError::TooLong { what: "name", bytes: 256 }));
    assert_eq!(Name::new(""), Err(NameError::Empty { what: "name" }));
    assert_eq!(Name::new("a\nb"), Err(NameError::Control { what: "name" }));
    assert_eq!(RunId::new(".."), Err(NameError::Dots { what: "run id" }), "not usable in a URL path");
    assert!(RunId::new("...").is_ok());
    assert_ne!(Name::new("\u{e9}").unwrap(), Name::new("e\u{301}").unwrap());
}
