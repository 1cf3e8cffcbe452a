//! Tests of the parent module.

use super::*;

#[test]
fn only_names_of_this_machine_are_loopback() {
    for host in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "[::1]"] {
        assert!(is_loopback(host), "{host}");
    }
    for host in ["evil.test", "localhost.evil.test", "127.0.0.1.nip.io", "0.0.0.0", "10.0.0.1", "[::]", "2130706433", ""] {
        assert!(!is_loopback(host), "{host}");
    }
}
