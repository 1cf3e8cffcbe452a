//! Tests of the parent module.

use super::*;

#[test]
fn another_protocol_is_distinguished_from_no_server() {
    let hint = |url: &str, why: &str| unreachable_at(url, why).hint().unwrap();
    let refused = "tcp connect error: Connection refused (os error 111)";
    for (url, why, wanted) in [
        ("http://a", refused, "check that it runs"),
        ("https://a", refused, "check that it runs"),
        ("https://a", "invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
        ("https://a", "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "`CA:TRUE`"),
        ("https://a", "received corrupt message of type InvalidContentType", "http://"),
        ("http://a", "http2 error: connection error detected: frame with invalid size", "https://"),
        ("http://a", "operation was canceled: connection closed", "https://"),
        ("https://a", "operation was canceled: connection closed", "check that it runs"),
        ("http://a", "connection error: stream closed because of a broken pipe", "https://"),
        ("http://a", "connection error: Connection reset by peer (os error 104)", "https://"),
    ] {
        assert!(hint(url, why).contains(wanted), "{url} {why}: {}", hint(url, why));
    }
}
