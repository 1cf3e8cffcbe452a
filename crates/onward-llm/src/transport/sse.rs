//! A parser for server-sent events.
//!
//! Returns only the data: both API formats have the type of an event in it.
//!
//! Invariants:
//! - LS1: events do not depend on where the bytes were split, even inside a character or a line end.
//! - LS2: the memory for one event is bounded, including comments and unknown fields.

/// Splits a stream of bytes into the data of its events.
#[derive(Debug)]
pub(crate) struct Events {
    bytes_max: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended with `\r`: a following `\n` belongs to it.
    after_cr: bool,
    first_line: bool,
}

/// An event exceeds the limit (LS2).
#[derive(Debug, PartialEq)]
pub(crate) struct TooLong;

impl Events {
    pub fn new(bytes_max: usize) -> Events {
        Events { bytes_max, line: Vec::new(), data: Vec::new(), has_data: false, after_cr: false, first_line: true }
    }

    /// Adds the next bytes and returns the events that are complete now.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut events = Vec::new();
        if self.after_cr && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.after_cr = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end])?;
            events.extend(self.end_line());
            let crlf = bytes[end..].starts_with(b"\r\n");
            self.after_cr = bytes[end..] == *b"\r";
            bytes = &bytes[end + 1 + usize::from(crlf)..];
        }
        self.hold(bytes)?;
        Ok(events)
    }

    /// Returns the last event if no empty line follows it: some servers end that way, and a truncated one is not JSON.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.take_event()
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() + bytes.len() > self.bytes_max {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let mark = std::mem::take(&mut self.first_line).then_some(b"\xef\xbb\xbf".as_slice());
        let line = mark.and_then(|mark| line.strip_prefix(mark)).unwrap_or(&line);
        if line.is_empty() {
            return self.take_event();
        }
        if let Some(rest) = line.strip_prefix(b"data").filter(|rest| rest.is_empty() || rest[0] == b':') {
            let value = rest.strip_prefix(b":").unwrap_or(rest);
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        None
    }

    fn take_event(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.has_data).then(|| std::mem::take(&mut self.data))
    }
}

#[cfg(test)]
mod tests {
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
}
