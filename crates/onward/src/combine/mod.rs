//! Together: `join!`, [`join_all`], `select!`, [`race`].
//!
//! Like the combinators everybody knows, but the order in which arms are polled, and so who wins, is a function of the
//! log. An arm is polled only when something in it has happened. Arms of which one shall win see what they were answered
//! with in the order of the log, also when several were answered before they are polled (rule 3).

mod join;
mod select;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_core::{Branch, Index};

use crate::host::cell::RunCell;
use crate::host::wake::{Arms, BorrowedWaker, Limit, Polling, polling};

pub use join::{JoinAll, JoinAllSettled, JoinTuple, Race, join_all, join_all_settled, join_tuple, race, try_join_tuple};
pub use select::{Arm, Probe, SelectTuple, Selected, ViaDurable, ViaOpaque, select_arms};

/// Which arms of one combinator there are, and which have to be polled.
#[derive(Default)]
pub(crate) struct Scope {
    cell: Option<Arc<RunCell>>,
    arms: Option<Arc<Arms>>,
    branches: Vec<Branch>,
    seen: u64,
    ready: Vec<u32>,
}

impl Scope {
    /// The arms to poll now, in order.
    fn ready(&mut self, count: usize, cx: &Context<'_>) -> Vec<u32> {
        let polling = ours(cx);
        let mut state = polling.cell.lock();
        let all = state.poll_all;
        let first = self.arms.is_none();
        let arms = self.arms.get_or_insert_default();
        arms.polled_in(polling.arm);
        if first {
            self.cell = Some(polling.cell.clone());
            let place = state.engine.next_place();
            self.branches = (0..count as u32).map(|arm| Branch::of_arm(&place, arm)).collect();
        }
        arms.take(&mut self.ready);
        if first || self.seen != all {
            self.seen = all;
            self.ready.clear();
            self.ready.extend(0..count as u32);
        }
        std::mem::take(&mut self.ready)
    }

    /// Whether the arms have been polled before.
    fn has_begun(&self) -> bool {
        self.arms.is_some()
    }

    /// Polls `arms` with `poll`, which says whether that was enough, in the order in which the log answers them.
    ///
    /// Nothing is in sight at first, then what was answered up to the lowest index that was held back, and so on; at last the arms
    /// may begin something new. A combinator around this one may set a limit for all of it.
    fn in_log_order(&self, arms: &[u32], cx: &Context<'_>, mut poll: impl FnMut(u32, Option<&Limit>) -> bool) {
        let around = ours(cx).limit;
        let mut limit = Limit::new(None);
        while arms.len() > 1 {
            if arms.iter().any(|arm| poll(*arm, Some(&limit))) {
                if limit.is_blind() {
                    ours(cx).cell.lock().engine.saw_nothing();
                }
                return;
            }
            match (limit.next(), around) {
                (Some(index), Some(around)) if around.holds_back(index) => return,
                (Some(index), _) => limit = Limit::new(Some(index)),
                (None, Some(_)) => return,
                (None, None) => break,
            }
        }
        arms.iter().any(|arm| poll(*arm, around));
    }

    /// Polls one arm on its own line of calls.
    fn poll<F: Future + ?Sized>(&self, arm: u32, future: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        self.poll_within(arm, future, cx, ours(cx).limit)
    }

    /// Polls one arm like [`Scope::poll`], and says which event led to what it does now.
    fn poll_marked<F>(&self, arm: u32, future: Pin<&mut F>, cx: &Context<'_>) -> (Poll<F::Output>, Option<Index>)
    where
        F: Future + ?Sized,
    {
        let cell = ours(cx).cell;
        let before = cell.lock().engine.set_mark();
        let polled = self.poll(arm, future, cx);
        let led_by = cell.lock().engine.take_mark(before);
        (polled, led_by)
    }

    fn poll_within<F>(&self, arm: u32, future: Pin<&mut F>, cx: &Context<'_>, limit: Option<&Limit>) -> Poll<F::Output>
    where
        F: Future + ?Sized,
    {
        let outer = ours(cx);
        let arms = self.arms.as_ref().expect("`ready` is called first");
        let inner = Polling { cell: outer.cell, arm: Some((arms, arm)), limit };
        let waker = BorrowedWaker::new(&inner);
        let before = outer.cell.lock().engine.enter_branch(self.branches[arm as usize].clone());
        let polled = future.poll(&mut Context::from_waker(&waker));
        outer.cell.lock().engine.enter_branch(before);
        polled
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(cell) = &self.cell {
            cell.lock().engine.close_branches(&self.branches);
        }
    }
}

fn ours<'a>(cx: &Context<'a>) -> &'a Polling<'a> {
    polling(cx.waker()).expect("onward's join!, select! and race work in workflow code, and directly in it: not inside a step, and not under a foreign combinator")
}
