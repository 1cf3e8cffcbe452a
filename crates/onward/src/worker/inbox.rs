//! Where a hot run hears of what was appended to its log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use onward_core::Record;
use onward_runtime::{Inbox, Question};

/// What came since the driver last looked.
#[derive(Default)]
pub(crate) struct News {
    pub records: Vec<Record>,
    pub questions: Vec<Question>,
    pub lost: bool,
    pub evict: bool,
}

#[derive(Default)]
struct State {
    news: News,
    waker: Option<Waker>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct RunInbox {
    state: Mutex<State>,
}

impl RunInbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came, and leaves `waker` for what comes.
    pub fn take(&self, waker: &Waker) -> News {
        let mut state = self.lock();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        std::mem::take(&mut state.news)
    }

    fn tell(&self, change: impl FnOnce(&mut News)) {
        let mut state = self.lock();
        change(&mut state.news);
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks the driver to let the run go when it rests.
    pub fn evict(&self) {
        self.tell(|news| news.evict = true);
    }

    /// Closes the inbox, unless something came meanwhile.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.lock();
        let empty = state.news.records.is_empty() && state.news.questions.is_empty();
        state.closed = empty;
        empty
    }

    /// Closes the inbox whatever is in it; unanswered questions are dropped, so that who asked asks again.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waker = None;
        let news = std::mem::take(&mut state.news);
        drop(state);
        drop(news);
    }
}

impl Inbox for RunInbox {
    fn push(&self, record: Record) {
        self.tell(|news| news.records.push(record));
    }

    fn lost(&self) {
        self.tell(|news| news.lost = true);
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        let mut state = self.lock();
        if state.closed {
            return Err(question);
        }
        state.news.questions.push(question);
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}
