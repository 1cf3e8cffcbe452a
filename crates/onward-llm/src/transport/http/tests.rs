//! Tests of the parent module.

use super::*;

/// LH1: an accepted URL has the host that a reader sees in it.
#[test]
fn a_url_of_a_server_names_its_host_and_nothing_more() {
    let taken = [
        ("http://localhost", "localhost", None),
        ("http://localhost:11434/v1", "localhost", Some(11434)),
        ("https://api.example.com/v1", "api.example.com", None),
        ("HTTPS://API.example.com", "API.example.com", None),
        ("http://127.0.0.1:1/", "127.0.0.1", Some(1)),
        ("http://10.0.0.1/v1", "10.0.0.1", None),
        ("http://169.254.169.254/latest", "169.254.169.254", None),
        ("http://[::1]:8080/v1", "[::1]", Some(8080)),
        ("http://[::ffff:127.0.0.1]/", "[::ffff:127.0.0.1]", None),
        ("http://2130706433/", "2130706433", None),
        ("http://0x7f.1/", "0x7f.1", None),
        ("http://0177.0.0.1/", "0177.0.0.1", None),
        ("http://host_with_underscore/mcp?x=1", "host_with_underscore", None),
        ("http://good.example/@evil.example/", "good.example", None),
        ("http://good.example/?u=http://evil.example", "good.example", None),
    ];
    for (text, host, port) in taken {
        let url = server_url(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!((url.host(), url.port_u16()), (Some(host), port), "{text}");
    }
    let refused = [
        "",
        " ",
        "localhost",
        "localhost:80",
        "/v1",
        "//evil.example/v1",
        "http:",
        "http:/evil.example",
        "http://",
        "http:///v1",
        "http://:80/",
        "http://host:/",
        "http://host:0/",
        "http://host:65536/",
        "http://host:80:80/",
        "http://ada@good.example/",
        "http://ada:secret@good.example/",
        "http://good.example@evil.example/",
        "http://good.example%40evil.example/",
        "http://good.example\\@evil.example/",
        "http://good.example\\.evil.example/",
        "http://evil.example%2f@good.example/",
        "http://a b/",
        "http://a\tb/",
        "http://a\r\nHost: evil.example/",
        "http://a\0b/",
        "http://[::1/",
        "http://::1/",
        "http://\u{ff0e}example/",
        "http://127\u{3002}0.0.1/",
        "file:///etc/passwd",
        "ftp://host/",
        "gopher://host:70/_x",
        "unix:///run/x.sock",
        "ws://host/",
        "javascript:alert(1)",
        "data:text/plain,x",
        "https+unix://x",
    ];
    for text in refused {
        assert!(server_url(text).is_err(), "{text:?} is taken");
    }
}
