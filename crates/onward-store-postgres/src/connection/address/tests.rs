//! Tests of the parent module.

use super::*;

#[test]
fn tls_settings_are_taken_out_of_an_address() {
    let tls_settings = |mode: &str, root: &str| TlsMode { mode: Some(mode.to_owned()), root: Some(root.to_owned()) };
    for (address, rest, found) in [
        ("postgres://me@h/db", "postgres://me@h/db", TlsMode::default()),
        ("postgres://me@h/db?connect_timeout=3", "postgres://me@h/db?connect_timeout=3", TlsMode::default()),
        (
            "postgres://me:pw@h/db?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fca%20of%20ours.pem",
            "postgres://me:pw@h/db?connect_timeout=3",
            tls_settings("verify-full", "/etc/ca of ours.pem"),
        ),
        ("postgres://h/db?sslmode=require&sslrootcert=ca", "postgres://h/db", tls_settings("require", "ca")),
        (
            r"host=h password='it\'s sslmode=no' sslmode=verify-ca  sslrootcert='/my ca.pem' user=me",
            r"host=h password='it\'s sslmode=no' user=me",
            tls_settings("verify-ca", "/my ca.pem"),
        ),
    ] {
        assert_eq!(split_tls_settings(address), (rest.to_owned(), found));
    }
}
