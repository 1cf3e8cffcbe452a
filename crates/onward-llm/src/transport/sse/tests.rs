//! Tests of the parent module.

use super::*;

/// Checks that all ways to split the bytes in two, and byte by byte, give the same events (LS1).
#[track_caller]
fn check(stream: &str, expected: &[&str]) {
    let stream = stream.as_bytes();
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut events = Events::new(1_000);
        let mut read: Vec<Vec<u8>> = pieces.flat_map(|piece| events.feed(piece).unwrap()).collect();
        read.extend(events.finish());
        read
    };
    let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
    assert_eq!(read(&mut stream.chunks(1)), expected);
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(read(&mut [head, tail].into_iter()), expected, "cut at {at}");
    }
}

#[test]
fn lines_end_in_three_ways() {
    check("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n", &["a", "b", "c", "d"]);
}

#[test]
fn data_of_several_lines_is_joined() {
    check("data: {\ndata:  1\ndata\ndata:}\n\n", &["{\n 1\n\n}"]);
    check("data: a\r\ndata: b\r\n\r\n", &["a\nb"]);
}

#[test]
fn comments_names_and_ids_are_skipped() {
    check(": OPENROUTER PROCESSING\n\nevent: ping\nid: 7\nretry: 1\ndatabase: x\ndata: a\n\n\n\n", &["a"]);
}

#[test]
fn a_character_may_be_cut_anywhere() {
    check("\u{feff}data: {\"t\":\"żółw 🐢\"}\n\n", &["{\"t\":\"żółw 🐢\"}"]);
}

#[test]
fn the_last_event_needs_no_empty_line() {
    check("data: a\n\ndata: [DONE]", &["a", "[DONE]"]);
    check("data: [DONE]\n", &["[DONE]"]);
    check("", &[]);
}

/// LS1 and LS2, for arbitrary bytes of a server (S35).
#[test]
fn mutated_streams_never_panic_and_are_read_alike_however_they_are_cut() {
    let stream = ": hi\n\nevent: ping\nid: 7\ndata: {\"t\":\"\u{17c}\u{1f422}\"}\r\ndata: b\r\n\r\ndata: [DONE]\n\n";
    let read = |bytes: &[u8], size: usize| -> Result<Vec<Vec<u8>>, TooLong> {
        let (mut events, mut read) = (Events::new(300), Vec::new());
        for piece in bytes.chunks(size) {
            read.extend(events.feed(piece)?);
            assert!(events.line.len() + events.data.len() <= 300, "LS2");
        }
        read.extend(events.finish());
        Ok(read)
    };
    let mut size = 1;
    onward_testkit::mutate("server-sent events", &[stream.as_bytes().to_vec()], |bytes| {
        size = size % 13 + 1;
        let whole = read(bytes, usize::MAX);
        if let (Ok(whole), Ok(cut)) = (&whole, read(bytes, size)) {
            assert_eq!(*whole, cut, "in pieces of {size}: {}", bytes.escape_ascii());
        }
        whole.is_ok()
    });
}

#[test]
fn what_is_held_is_limited() {
    let mut events = Events::new(20);
    assert_eq!(events.feed(b"data: 0123456789\n\n").unwrap().len(), 1);
    assert_eq!(events.feed(b": a comment that never"), Err(TooLong)); // LS2
    let mut events = Events::new(20);
    events.feed(b"data: 012345\n").unwrap();
    events.feed(b"data: 012345\n").unwrap();
    assert_eq!(events.feed(b"data: 012345\n"), Err(TooLong));
}
