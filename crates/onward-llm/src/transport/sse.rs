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
mod tests;
