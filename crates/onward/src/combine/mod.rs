//! Combinators: `join!`, [`join_all`], `select!`, [`race`].
//!
//! They work like the usual combinators, but the order in which arms are polled, and therefore the winner, is a function of the
//! log. An arm is polled only if one of its calls was answered. Arms that compete see their answers in log order, also if several
//! were answered before the poll (rule 3).

mod join;
mod select;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_core::{Branch, Index};

use crate::host::cell::RunCell;
use crate::host::wake::{Arms, BorrowedWaker, Limit, Polling, polling};

pub use join::{JoinAll, JoinAllSettled, JoinTuple, Race, join_all, join_all_settled, race, try_join_tuple};
pub use select::{Arm, Probe, SelectTuple, Selected, ViaDurable, ViaOpaque};

/// The arms of one combinator, and those that must be polled.
#[derive(Default)]
pub(crate) struct Scope {
    cell: Option<Arc<RunCell>>,
    arms: Option<Arc<Arms>>,
    branches: Vec<Branch>,
    seen: u64,
    ready: Vec<u32>,
}

impl Scope {
    /// Returns the arms to poll now, in order.
    fn ready(&mut self, count: usize, cx: &Context<'_>) -> Vec<u32> {
        let polling = ours(cx);
        let mut state = polling.cell.lock();
        let all = state.poll_all;
        let first = self.arms.is_none();
        let arms = self.arms.get_or_insert_default();
        arms.polled_in(polling.arm);
        if first {
            self.cell = Some(polling.cell.clone());
            let call_id = state.engine.next_call_id();
            self.branches = (0..count as u32).map(|arm| Branch::of_arm(&call_id, arm)).collect();
        }
        arms.take(&mut self.ready);
        if first || self.seen != all {
            self.seen = all;
            self.ready.clear();
            self.ready.extend(0..count as u32);
        }
        std::mem::take(&mut self.ready)
    }

    /// Returns whether the arms have been polled before.
    fn has_begun(&self) -> bool {
        self.arms.is_some()
    }

    /// Polls `arms` in the order in which the log answers them, until `poll` returns true.
    ///
    /// The first round hides all answers. Each further round shows the answers up to the lowest index that was held back. Only in
    /// the last round may arms make new calls. An outer combinator may limit all rounds.
    fn in_log_order(&self, arms: &[u32], cx: &Context<'_>, mut poll: impl FnMut(u32, Option<&Limit>) -> bool) {
        let around = ours(cx).limit;
        let mut limit = Limit::new(None);
        while arms.len() > 1 {
            if arms.iter().any(|arm| poll(*arm, Some(&limit))) {
                if limit.is_blind() {
                    ours(cx).cell.lock().engine.note_poll();
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

    /// Polls one arm on its own branch of call ids.
    fn poll<F: Future + ?Sized>(&self, arm: u32, future: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        self.poll_within(arm, future, cx, ours(cx).limit)
    }

    /// Polls one arm like [`Scope::poll`] and returns the index of the event that led to its output.
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
    polling(cx.waker()).expect(
        "onward's join!, select! and race must be awaited directly in workflow code, not in a step or a foreign combinator",
    )
}
