//! Arguments on the way to a server: the exact text that was approved, not a re-serialized one.
//!
//! The protocol library represents arguments as a map, which loses order, `1e2` and large integers. So a request contains a
//! placeholder, and the text replaces it in the bytes that are sent.
//!
//! Invariant TA1: a server receives the arguments of the call character by character, except for blanks between tokens.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::io::AsyncWrite;

/// Prefix of a placeholder's name; an unguessable random number follows.
const PREFIX: &str = "onward/arguments/";

/// The argument texts of calls in progress.
#[derive(Clone)]
pub(crate) struct RawArguments {
    shared: Arc<RawTexts>,
}

struct RawTexts {
    /// A random text that models and servers cannot guess.
    secret: String,
    next: AtomicU64,
    texts: Mutex<BTreeMap<u64, String>>,
}

/// The text of one call; removed with the call.
pub(crate) struct RawText {
    shared: Arc<RawTexts>,
    number: u64,
}

impl RawArguments {
    pub fn new() -> RawArguments {
        let secret = format!("{:016x}{:016x}", random(), random());
        RawArguments { shared: Arc::new(RawTexts { secret, next: AtomicU64::new(0), texts: Mutex::default() }) }
    }

    /// Stores the text of an object, and returns its placeholder for the request.
    pub fn keep(&self, text: &str) -> (RawText, JsonObject) {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.texts.lock().unwrap_or_else(PoisonError::into_inner).insert(number, without_blanks(text));
        let name = format!("{PREFIX}{}/{number}", self.shared.secret);
        (RawText { shared: self.shared.clone(), number }, JsonObject::from_iter([(name, Value::Null)]))
    }

    /// Replaces placeholders by their texts (TA1).
    pub fn put_in_place(&self, message: Vec<u8>) -> Vec<u8> {
        let begin = format!("{{\"{PREFIX}{}/", self.shared.secret);
        let Some(at) = find(&message, begin.as_bytes()) else { return message };
        let rest = &message[at + begin.len()..];
        const END: &[u8] = b"\":null}";
        let Some(digits) = find(rest, END) else { return message };
        let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse().ok());
        let texts = self.shared.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = number.and_then(|number: u64| texts.get(&number)) else { return message };
        [&message[..at], text.as_bytes(), &rest[digits + END.len()..]].concat()
    }
}

impl Drop for RawText {
    fn drop(&mut self) {
        self.shared.texts.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// Returns a number that differs between processes and calls.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Removes blanks between tokens, because a message is one line.
fn without_blanks(text: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let keep = |letter: &char| {
        let was_string = in_string;
        match letter {
            '"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = was_string && *letter == '\\' && !is_escaped;
        was_string || !matches!(letter, ' ' | '\t' | '\n' | '\r')
    };
    text.chars().filter(keep).collect()
}

/// A writer that replaces placeholders in messages, line by line.
pub(crate) struct RawWriter<W> {
    inner: W,
    raw: RawArguments,
    /// The incomplete last line.
    line: Vec<u8>,
    /// Complete lines, and how much of them was written.
    ready: Vec<u8>,
    written: usize,
}

impl<W: AsyncWrite + Unpin> RawWriter<W> {
    pub fn new(inner: W, raw: RawArguments) -> RawWriter<W> {
        RawWriter { inner, raw, line: Vec::new(), ready: Vec::new(), written: 0 }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.ready.len() {
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.ready[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.ready.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for RawWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let lines = std::mem::replace(&mut self.line, rest);
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let line = self.raw.put_in_place(line.to_vec());
                self.ready.extend_from_slice(&line);
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
