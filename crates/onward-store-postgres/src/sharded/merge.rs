//! Concurrent requests, and the merging of the lists they return.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

pub type Request<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all results and returns them in the order of the requests.
pub async fn join_all<T>(questions: Vec<Request<'_, T>>) -> Vec<T> {
    let mut pending = Requests::new(questions);
    poll_fn(|cx| if pending.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    pending.answers.into_iter().flatten().collect()
}

/// Pending requests, with the results that have arrived.
pub struct Requests<'a, T> {
    open: Vec<Option<Request<'a, T>>>,
    pub answers: Vec<Option<T>>,
}

impl<'a, T> Requests<'a, T> {
    pub fn new(questions: Vec<Request<'a, T>>) -> Requests<'a, T> {
        let answers = questions.iter().map(|_| None).collect();
        Requests { open: questions.into_iter().map(Some).collect(), answers }
    }

    /// Polls the pending requests; returns whether all results have arrived.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        for (request, answer) in self.open.iter_mut().zip(&mut self.answers) {
            if let Some(Poll::Ready(ready)) = request.as_mut().map(|request| request.as_mut().poll(cx)) {
                *answer = Some(ready);
                *request = None;
            }
        }
        self.open.iter().all(Option::is_none)
    }
}

/// Merges lists up to `limit` rows: repeatedly takes the smallest of their first rows. Rows of one list keep their order,
/// whatever their keys.
pub fn merge<T, K: Ord>(lists: Vec<Vec<T>>, limit: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut lists: Vec<VecDeque<T>> = lists.into_iter().map(VecDeque::from).collect();
    let mut merged = Vec::new();
    while merged.len() < limit {
        let first = lists.iter().enumerate().filter_map(|(position, list)| Some((key(list.front()?), position))).min();
        let Some((_, position)) = first else { break };
        merged.extend(lists[position].pop_front());
    }
    merged
}

/// Takes one row of each list in turn, up to `limit`.
pub fn take_turns<T>(lists: Vec<Vec<T>>, limit: usize) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut taken = Vec::new();
    loop {
        let before = taken.len();
        taken.extend(lists.iter_mut().filter_map(Iterator::next));
        if taken.len() == before || taken.len() >= limit {
            taken.truncate(limit);
            return taken;
        }
    }
}

/// Splits `limit` into parts that differ by one at most, the larger ones first.
pub fn parts(limit: usize, count: usize) -> Vec<usize> {
    (0..count).map(|position| limit / count + usize::from(position < limit % count)).collect()
}

#[cfg(test)]
mod tests;
