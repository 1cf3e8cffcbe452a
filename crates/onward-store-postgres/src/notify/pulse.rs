//! What an idle server need not ask.
//!
//! A server looks once a second for what is due, for news and for work, and mostly there is nothing. The look for what is due also says
//! whether there is anything else; while that is fresh and nothing was heard since, the other looks are answered without the database.
//! Must never hide anything for longer than a look takes: only a server that hears the others relies on it, and what is done through
//! this server itself ends it before anybody is answered.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onward_store::kept::News;

/// A little more than the pause between two looks.
const FRESH_FOR: Duration = Duration::from_millis(1_500);

/// What may be waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Deliveries,
    Runs,
    Tasks,
}

/// What a look found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub deliveries: bool,
    pub runs: bool,
    pub tasks: bool,
}

#[derive(Default)]
pub(crate) struct Pulse(Mutex<State>);

#[derive(Default)]
struct State {
    /// Counts what ends a look's worth.
    count: u64,
    last: Option<(Instant, Found)>,
}

impl Pulse {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call before the look.
    pub fn begin(&self) -> u64 {
        self.lock().count
    }

    /// Keeps what the look found, unless something has happened since it began.
    pub fn end(&self, begun: u64, found: Found) {
        let mut state = self.lock();
        if state.count == begun {
            state.last = Some((Instant::now(), found));
        }
    }

    /// Something happened: whoever wants to know has to look.
    pub fn stir(&self) {
        let mut state = self.lock();
        state.count += 1;
        state.last = None;
    }

    pub fn stir_by(&self, news: &[News]) {
        let is_stirring = |item: &News| !matches!(item, News::Appended { .. } | News::DueAt(_));
        if news.iter().any(is_stirring) {
            self.stir();
        }
    }

    /// Whether nothing of the kind can be waiting.
    pub fn is_quiet(&self, what: Waiting) -> bool {
        let state = self.lock();
        let found = state.last.filter(|(at, _)| at.elapsed() < FRESH_FOR).map(|(_, found)| found);
        found.is_some_and(|found| match what {
            Waiting::Deliveries => !found.deliveries,
            Waiting::Runs => !found.runs,
            Waiting::Tasks => !found.tasks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_something_came_into_is_worth_nothing() {
        let pulse = Pulse::default();
        assert!(!pulse.is_quiet(Waiting::Runs), "nobody has looked");
        let begun = pulse.begin();
        pulse.end(begun, Found { deliveries: true, ..Found::default() });
        assert!(pulse.is_quiet(Waiting::Runs) && pulse.is_quiet(Waiting::Tasks) && !pulse.is_quiet(Waiting::Deliveries));
        let begun = pulse.begin();
        pulse.stir();
        pulse.end(begun, Found::default());
        assert!(!pulse.is_quiet(Waiting::Runs));
    }
}
