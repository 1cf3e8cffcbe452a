//! The wakers that workflow code is polled with.
//!
//! Workflow code is polled with a *tripwire*: futures of this crate never touch the waker, so a clone or wake of it comes from a
//! foreign future, which cannot be replayed. Inside a combinator the waker also identifies the arm being polled, so that an
//! answer polls only the arm that awaits it.
//!
//! This is the only module with `unsafe`: the raw wakers borrow data on the stack of the poll that created them. Safety rests on
//! one rule: the data pointer is read only during that poll, because a clone, the only way to keep a waker longer, is a waker
//! without data.
#![allow(unsafe_code, reason = "raw wakers, as explained above")]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use onward_core::Index;
use onward_store::sync::lock;

use crate::host::cell::RunCell;

/// The arms of one combinator that must be polled.
#[derive(Debug, Default)]
pub(crate) struct Arms {
    ready: Mutex<Vec<u32>>,
    /// The arm in which the combinator was polled last.
    around: Mutex<Option<(Arc<Arms>, u32)>>,
}

impl Arms {
    /// Sets the arm in which the combinator is polled. A combinator that is kept may be polled in another arm each time.
    pub fn polled_in(&self, around: Option<(&Arc<Arms>, u32)>) {
        let mut last = lock(&self.around);
        let same = match (&*last, around) {
            (None, None) => true,
            (Some((last, last_arm)), Some((arms, arm))) => Arc::ptr_eq(last, arms) && *last_arm == arm,
            _ => false,
        };
        if !same {
            *last = around.map(|(arms, arm)| (arms.clone(), arm));
        }
    }

    /// Marks an arm and the arms around it.
    pub fn mark(&self, arm: u32) {
        lock(&self.ready).push(arm);
        let around = lock(&self.around).clone();
        if let Some((arms, arm)) = around {
            arms.mark(arm);
        }
    }

    /// Takes the marked arms, in order and each once.
    pub fn take(&self, into: &mut Vec<u32>) {
        into.clear();
        std::mem::swap(&mut *lock(&self.ready), into);
        into.sort_unstable();
        into.dedup();
    }
}

/// The highest index of answers that are visible in this poll.
///
/// A combinator sets it if several arms may have been answered before they are polled. They then see their answers one index
/// after the other, as if they had been polled after each event.
pub(crate) struct Limit {
    up_to: Option<Index>,
    /// The lowest index that was held back; `u64::MAX` if none was.
    next: AtomicU64,
}

impl Limit {
    pub fn new(up_to: Option<Index>) -> Limit {
        Limit { up_to, next: AtomicU64::new(u64::MAX) }
    }

    /// Returns whether all answers are hidden.
    pub fn is_blind(&self) -> bool {
        self.up_to.is_none()
    }

    /// Returns the lowest index that was held back.
    pub fn next(&self) -> Option<Index> {
        Some(self.next.load(Ordering::Relaxed)).filter(|next| *next != u64::MAX).map(Index)
    }

    /// Returns whether an answer at `index` is hidden, and remembers its index then.
    pub fn holds_back(&self, index: Index) -> bool {
        let held = self.up_to.is_none_or(|up_to| index > up_to);
        if held {
            self.next.fetch_min(index.0, Ordering::Relaxed);
        }
        held
    }
}

/// The data of a workflow waker.
pub(crate) struct Polling<'a> {
    pub cell: &'a Arc<RunCell>,
    pub arm: Option<(&'a Arc<Arms>, u32)>,
    /// The visible answers; `None` shows all.
    pub limit: Option<&'a Limit>,
}

/// Returns whether a call must do nothing in this poll: its answer is hidden by the limit, or it is a new call, which code may
/// only make when no answers are hidden. Marks its arm then, which must be polled again.
pub(crate) fn held_back(cx: &Context<'_>, answered_at: impl FnOnce() -> Option<Index>) -> bool {
    let Some(Polling { arm, limit: Some(limit), .. }) = polling(cx.waker()) else { return false };
    let held = answered_at().is_none_or(|index| limit.holds_back(index));
    if let (true, Some((arms, arm))) = (held, arm) {
        arms.mark(*arm);
    }
    held
}

/// Polls `future` with all answers after `index` hidden; without an index none is hidden.
pub(crate) fn poll_up_to<F>(index: Option<Index>, future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output>
where
    F: Future + ?Sized,
{
    let (Some(index), Some(outer)) = (index, polling(cx.waker())) else { return future.poll(cx) };
    if outer.limit.is_some_and(|limit| limit.holds_back(index)) {
        return future.poll(cx); // the outer limit is lower
    }
    let limit = Limit::new(Some(index));
    let inner = Polling { cell: outer.cell, arm: outer.arm, limit: Some(&limit) };
    let waker = BorrowedWaker::new(&inner);
    future.poll(&mut Context::from_waker(&waker))
}

/// A waker that borrows its data from the stack.
pub(crate) struct BorrowedWaker<'a> {
    waker: ManuallyDrop<Waker>,
    data: PhantomData<&'a Polling<'a>>,
}

impl<'a> BorrowedWaker<'a> {
    pub fn new(polling: &'a Polling<'a>) -> BorrowedWaker<'a> {
        let raw = RawWaker::new(std::ptr::from_ref(polling).cast(), &TRIPWIRE);
        // SAFETY: the vtable below upholds the contract of RawWaker for data that outlives 'a, and clones carry no data.
        let waker = unsafe { Waker::from_raw(raw) };
        BorrowedWaker { waker: ManuallyDrop::new(waker), data: PhantomData }
    }
}

impl Deref for BorrowedWaker<'_> {
    type Target = Waker;

    fn deref(&self) -> &Waker {
        &self.waker
    }
}

static TRIPWIRE: RawWakerVTable = RawWakerVTable::new(clone, tripped, tripped, |_| {});

fn clone(data: *const ()) -> RawWaker {
    tripped(data);
    let harmless = ManuallyDrop::new(Waker::noop().clone());
    RawWaker::new(harmless.data(), harmless.vtable())
}

fn tripped(data: *const ()) {
    // SAFETY: only a waker made by `BorrowedWaker::new` has this vtable, and it lives no longer than its data.
    let polling = unsafe { &*data.cast::<Polling<'_>>() };
    polling.cell.foreign_await();
}

/// Returns the data of this waker if it is a workflow waker.
pub(crate) fn polling(waker: &Waker) -> Option<&Polling<'_>> {
    // SAFETY: as in `tripped`; the borrow of the waker keeps the poll, and so its data, alive.
    std::ptr::eq(waker.vtable(), &TRIPWIRE).then(|| unsafe { &*waker.data().cast::<Polling<'_>>() })
}

/// A waker that wakes the run's driver and marks the arm whose step made progress.
pub(crate) struct StepWaker {
    pub driver: Waker,
    pub arm: Option<(Arc<Arms>, u32)>,
}

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some((arms, arm)) = &self.arm {
            arms.mark(*arm);
        }
        self.driver.wake_by_ref();
    }
}
