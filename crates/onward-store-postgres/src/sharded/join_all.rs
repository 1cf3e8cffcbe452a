//! Concurrent requests.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

pub type Request<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all results and returns them in the order of the requests.
pub async fn join_all<T>(questions: Vec<Request<'_, T>>) -> Vec<T> {
    let mut asking = Requests::new(questions);
    poll_fn(|cx| if asking.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    asking.answers.into_iter().flatten().collect()
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
        for (asked, answer) in self.open.iter_mut().zip(&mut self.answers) {
            if let Some(Poll::Ready(ready)) = asked.as_mut().map(|asked| asked.as_mut().poll(cx)) {
                *answer = Some(ready);
                *asked = None;
            }
        }
        self.open.iter().all(Option::is_none)
    }
}
