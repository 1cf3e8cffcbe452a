//! Tests of the parent module.

use super::*;
use crate::config::SettingOrigin;

#[test]
fn a_store_is_shown_without_its_password() {
    for text in ["host=h password=s3cret dbname=x", "mysql://u:s3cret@h/db", "postgres://u:s3,cret@h/db", "s3cret"] {
        assert_eq!(shown_store(text), "********", "{text}");
    }
    assert!(!shown_store("postgres://u:s3cret@h/db").contains("s3cret"));
    assert_eq!(shown_store("embedded:/var/onward"), "embedded:/var/onward");
}

#[test]
fn a_secret_keeps_its_id_and_nothing_else() {
    let key = SettingKey::of("key").unwrap();
    let shown = |text: &str| mask(key, Value { text: text.to_owned(), origin: SettingOrigin::Default }).text;
    assert_eq!(shown("onw_abc_SECRET_1234"), "onw_abc_********");
    assert_eq!(shown("no-key-at-all"), "onw__********");
    assert_eq!(shown("onw_SECRET"), "onw__********");
}
