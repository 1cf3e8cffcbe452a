//! Several questions at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

pub type Asked<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all answers; they come in the order of the questions.
pub async fn together<T>(questions: Vec<Asked<'_, T>>) -> Vec<T> {
    let mut open: Vec<(Option<Asked<'_, T>>, Option<T>)> = questions.into_iter().map(|asked| (Some(asked), None)).collect();
    poll_fn(|cx| {
        let mut is_pending = false;
        for (asked, answer) in &mut open {
            if let Some(future) = asked {
                match future.as_mut().poll(cx) {
                    Poll::Ready(ready) => {
                        *answer = Some(ready);
                        *asked = None;
                    }
                    Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    open.into_iter().filter_map(|(_, answer)| answer).collect()
}
