//! `join!`, `try_join!`, `join_all`, `join_all_settled` and `race`.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use onward_core::{Failure, Index};

use super::{Scope, ours};
use crate::Result;

enum ArmState<F: Future> {
    Open(Pin<Box<F>>),
    Done(F::Output),
    Taken,
}

impl<F: Future> ArmState<F> {
    fn take(&mut self) -> F::Output {
        match std::mem::replace(self, ArmState::Taken) {
            ArmState::Done(output) => output,
            _ => unreachable!("taken once, when every arm is done"),
        }
    }
}

/// Futures of one type that are polled together.
struct Lanes<F: Future> {
    slots: Vec<ArmState<F>>,
    scope: Scope,
    remaining: usize,
    over: bool,
}

impl<F: Future> Lanes<F> {
    fn open<I>(futures: I) -> Lanes<F>
    where
        I: IntoIterator,
        I::Item: IntoFuture<IntoFuture = F, Output = F::Output>,
    {
        let slots: Vec<_> = futures.into_iter().map(|future| ArmState::Open(Box::pin(future.into_future()))).collect();
        Lanes { remaining: slots.len(), slots, scope: Scope::default(), over: false }
    }

    /// Polls the arms that are ready and passes each output to `seen`, with the index of the event that led to it. Returns
    /// whether all are done.
    fn poll(&mut self, cx: &mut Context<'_>, mut seen: impl FnMut(&F::Output, Option<Index>)) -> bool {
        for arm in self.scope.ready(self.slots.len(), cx) {
            let slot = &mut self.slots[arm as usize];
            if let ArmState::Open(future) = slot
                && let (Poll::Ready(output), led_by) = self.scope.poll_marked(arm, future.as_mut(), cx)
            {
                seen(&output, led_by);
                *slot = ArmState::Done(output);
                self.remaining -= 1;
            }
        }
        self.remaining == 0
    }

    /// Polls like [`Lanes::poll`], but in log order. Passes each output to `wins` and stops at the first that it returns as the
    /// winner.
    fn poll_in_log_order<W>(&mut self, cx: &mut Context<'_>, mut wins: impl FnMut(F::Output) -> Option<W>) -> Option<W> {
        let Lanes { slots, scope, remaining, .. } = self;
        let arms = scope.ready(slots.len(), cx);
        let mut winner = None;
        scope.in_log_order(&arms, cx, |arm, limit| {
            let slot = &mut slots[arm as usize];
            if let ArmState::Open(future) = slot
                && let Poll::Ready(output) = scope.poll_within(arm, future.as_mut(), cx, limit)
            {
                *slot = ArmState::Taken;
                *remaining -= 1;
                winner = wins(output);
            }
            winner.is_some()
        });
        winner
    }

    fn outputs(&mut self) -> impl Iterator<Item = F::Output> {
        self.slots.iter_mut().map(ArmState::take)
    }
}

/// The future type of the items. The futures below are named types over it, because an `impl Future` would also capture the
/// iterator, and the closure of a borrowing `map` would then not be general enough to be awaited in a workflow.
type FutureOf<I> = <<I as IntoIterator>::Item as IntoFuture>::IntoFuture;

/// Waits for all futures and returns every result, in the order of the list.
pub fn join_all_settled<I, T>(futures: I) -> JoinAllSettled<FutureOf<I>>
where
    I: IntoIterator,
    I::Item: IntoFuture<Output = Result<T>>,
{
    JoinAllSettled { lanes: Lanes::open(futures) }
}

/// Waits for all futures and returns their values in the order of the list, or the failure with the lowest index in the log. The
/// order of the list decides only between failures that the same event led to.
///
/// A failure does not cancel the other futures: dropping a running step would leave its outcome unknown.
pub fn join_all<I, T>(futures: I) -> JoinAll<FutureOf<I>>
where
    I: IntoIterator,
    I::Item: IntoFuture<Output = Result<T>>,
{
    JoinAll { lanes: Lanes::open(futures), first_failure: None }
}

/// Waits for the first future that succeeds and drops the others. Fails when all have failed.
///
/// The winner is the first in log order, also among futures that were answered before the race began. The order of the list
/// decides only between futures that the same event answered. All futures are polled at least once, in the order of the list: an
/// async block runs to its first `await` even if another future is complete already.
pub fn race<I, T>(futures: I) -> Race<FutureOf<I>>
where
    I: IntoIterator,
    I::Item: IntoFuture<Output = Result<T>>,
{
    Race { lanes: Lanes::open(futures), failures: Vec::new() }
}

/// See [`join_all_settled`].
#[must_use = "futures do nothing unless awaited"]
pub struct JoinAllSettled<F: Future> {
    lanes: Lanes<F>,
}

/// See [`join_all`].
#[must_use = "futures do nothing unless awaited"]
pub struct JoinAll<F: Future> {
    lanes: Lanes<F>,
    first_failure: Option<Failure>,
}

/// See [`race`].
#[must_use = "futures do nothing unless awaited"]
pub struct Race<F: Future> {
    lanes: Lanes<F>,
    failures: Vec<Failure>,
}

// The futures are boxed, so nothing is pinned in place.
impl<F: Future> Unpin for JoinAllSettled<F> {}
impl<F: Future> Unpin for JoinAll<F> {}
impl<F: Future> Unpin for Race<F> {}

impl<T, F: Future<Output = Result<T>>> Future for JoinAllSettled<F> {
    type Output = Vec<Result<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.lanes.over {
            return polled_again("join_all_settled", cx);
        }
        self.lanes.over = self.lanes.poll(cx, |_, _| ());
        if self.lanes.over { Poll::Ready(self.lanes.outputs().collect()) } else { Poll::Pending }
    }
}

impl<T, F: Future<Output = Result<T>>> Future for JoinAll<F> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let JoinAll { lanes, first_failure } = &mut *self;
        if lanes.over {
            return polled_again("join_all", cx);
        }
        // A failure from an earlier poll came first. Among failures of this poll, the lowest index counts; a failure that needed
        // no answer precedes all indexes.
        let is_open = first_failure.is_none();
        let mut earliest = None;
        let done = lanes.poll(cx, |output, led_by| {
            if let Err(failure) = output
                && is_open
                && earliest.is_none_or(|earliest| led_by < earliest)
            {
                earliest = Some(led_by);
                *first_failure = Some(failure.clone());
            }
        });
        lanes.over = done;
        if !done {
            return Poll::Pending;
        }
        Poll::Ready(first_failure.take().map_or_else(|| lanes.outputs().collect(), Err))
    }
}

impl<T, F: Future<Output = Result<T>>> Future for Race<F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Race { lanes, failures } = &mut *self;
        if lanes.over {
            return polled_again("race", cx);
        }
        let winner = lanes.poll_in_log_order(cx, |output| output.map_err(|failure| failures.push(failure)).ok());
        lanes.over = winner.is_some() || lanes.remaining == 0;
        if let Some(value) = winner {
            lanes.slots.clear(); // drop the losers now, not with the race
            return Poll::Ready(Ok(value));
        }
        if lanes.over { Poll::Ready(Err(all_failed(failures))) } else { Poll::Pending }
    }
}

fn polled_again<T>(what: &str, cx: &Context<'_>) -> Poll<T> {
    ours(cx).cell.polled_again(what, None)
}

fn all_failed(failures: &[Failure]) -> Failure {
    let causes = failures.iter().map(ToString::to_string).collect();
    let message = format!("all {} futures of the race failed", failures.len());
    Failure { causes, retryable: false, ..Failure::new("all_failed", message) }
}

/// A tuple of futures of different types, for `join!`.
pub trait JoinTuple {
    type Output;
    fn join(self) -> impl Future<Output = Self::Output>;
}

/// A tuple of results that converts into the result of a tuple.
pub trait TryTuple {
    type Values;
    fn values(self) -> Result<Self::Values>;
}

/// Implements `try_join!`.
pub async fn try_join_tuple<T>(futures: T) -> Result<<T::Output as TryTuple>::Values>
where
    T: JoinTuple<Output: TryTuple>,
{
    futures.join().await.values()
}

macro_rules! tuples {
    ($(($($f:ident $t:ident $position:tt),+))+) => {$(
        impl<$($f: IntoFuture),+> JoinTuple for ($($f,)+) {
            type Output = ($($f::Output,)+);

            fn join(self) -> impl Future<Output = Self::Output> {
                let mut slots = ($(ArmState::Open(Box::pin(self.$position.into_future())),)+);
                let mut scope = Scope::default();
                let count = [$($position),+].len();
                let mut remaining = count;
                poll_fn(move |cx| {
                    for arm in scope.ready(count, cx) {
                        match arm {
                            $($position => if let ArmState::Open(future) = &mut slots.$position
                                && let Poll::Ready(output) = scope.poll(arm, future.as_mut(), cx)
                            {
                                slots.$position = ArmState::Done(output);
                                remaining -= 1;
                            },)+
                            _ => unreachable!("there are {count} arms"),
                        }
                    }
                    if remaining > 0 { Poll::Pending } else { Poll::Ready(($(slots.$position.take(),)+)) }
                })
            }
        }

        impl<$($t),+> TryTuple for ($(Result<$t>,)+) {
            type Values = ($($t,)+);

            fn values(self) -> Result<Self::Values> {
                Ok(($(self.$position?,)+))
            }
        }
    )+};
}

tuples! {
    (A T0 0)
    (A T0 0, B T1 1)
    (A T0 0, B T1 1, C T2 2)
    (A T0 0, B T1 1, C T2 2, D T3 3)
    (A T0 0, B T1 1, C T2 2, D T3 3, E T4 4)
    (A T0 0, B T1 1, C T2 2, D T3 3, E T4 4, F T5 5)
    (A T0 0, B T1 1, C T2 2, D T3 3, E T4 4, F T5 5, G T6 6)
    (A T0 0, B T1 1, C T2 2, D T3 3, E T4 4, F T5 5, G T6 6, H T7 7)
}

/// Waits for several futures and returns all their results as a tuple.
///
/// ```
/// # use onward::prelude::*;
/// # async fn flow(ctx: Ctx) -> Result<()> {
/// let (stock, price) = onward::join!(
///     ctx.step("stock", async || Ok::<_, Failure>(3)),
///     ctx.step("price", async || Ok::<_, Failure>(9.5)),
/// );
/// # let (_, _) = (stock?, price?); Ok(()) }
/// ```
#[macro_export]
macro_rules! join {
    ($($future:expr),+ $(,)?) => { $crate::combine::JoinTuple::join(($($future,)+)).await };
}

/// Waits for several futures and returns their values as a tuple, or the first failure in the order of the list.
#[macro_export]
macro_rules! try_join {
    ($($future:expr),+ $(,)?) => { $crate::combine::try_join_tuple(($($future,)+)).await };
}
