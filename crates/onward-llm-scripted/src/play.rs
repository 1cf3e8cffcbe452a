//! The transmission of a response: its chunks, their delays, and its end.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Sleep;

/// Number of characters in a streamed fragment.
const FRAGMENT_CHARS: usize = 6;

/// Splits a text into fragments, as a model streams it.
pub(crate) fn fragments(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(FRAGMENT_CHARS).map_or(rest.len(), |(at, _)| at);
        let (fragment, after) = rest.split_at(end);
        rest = after;
        (!fragment.is_empty()).then_some(fragment)
    })
}

/// Takes one item of each list in turn.
pub(crate) fn in_turns<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: VecDeque<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut mixed = Vec::new();
    while let Some(mut list) = lists.pop_front() {
        if let Some(item) = list.next() {
            mixed.push(item);
            lists.push_back(list);
        }
    }
    mixed
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Clean,
    /// The connection is closed in the middle of the body.
    Break,
    /// Nothing follows until the client gives up.
    Stall,
}

/// A body that sends its chunks one by one.
pub(crate) struct Play {
    chunks: VecDeque<String>,
    delay: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    end: End,
    flushed: bool,
}

impl Play {
    pub fn new(chunks: Vec<String>, delay: Duration, end: End) -> Play {
        Play { chunks: chunks.into(), delay, waiting: None, end, flushed: false }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        match self.end {
            End::Clean => Poll::Ready(None),
            End::Stall => Poll::Pending,
            End::Break if !std::mem::replace(&mut self.flushed, true) => {
                cx.waker().wake_by_ref(); // the chunks are flushed before the connection ends
                Poll::Pending
            }
            End::Break => Poll::Ready(Some(Err(std::io::Error::other("cut by script")))),
        }
    }
}

impl Body for Play {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.chunks.is_empty() {
            return self.poll_end(cx);
        }
        if !self.delay.is_zero() {
            let delay = self.delay;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
            std::task::ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        Poll::Ready(self.chunks.pop_front().map(|chunk| Ok(Frame::data(Bytes::from(chunk)))))
    }
}

#[cfg(test)]
mod tests;
