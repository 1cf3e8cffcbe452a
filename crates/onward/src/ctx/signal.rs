//! Signals: a mailbox, first in first out per name. Signals that arrive before the wait are kept.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "agents")]
use onward_core::Payload;
use onward_core::conversation::ENTRY_SIGNAL;
use onward_core::engine::Pattern;
use onward_core::{CallId, Failure, Index, Name, RunId, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, Durable, Sleep, name_or_misuse, payload_or_misuse, small};
use crate::Result;
use crate::host::cell::RunCell;
use crate::host::wake::held_back;
use crate::names::{Carries, SignalName};

impl Ctx {
    /// Returns the mailbox for one signal name. `name` is text or a typed [`crate::Signal`].
    pub fn signal<N: SignalName>(&self, name: N) -> SignalSource<N::Carries> {
        let name = name_or_misuse(&self.cell, "signal", name.signal_name());
        SignalSource { ctx: self.clone(), pattern: Pattern::Exactly(name), carries: PhantomData }
    }

    /// Returns the mailbox for all names that match `pattern`, where `*` stands for any text. Each signal comes with its name.
    pub fn signals(&self, pattern: &str) -> PatternMailbox {
        let pattern = name_or_misuse(&self.cell, "signal pattern", pattern);
        PatternMailbox { cell: self.cell.clone(), pattern: Pattern::Like(pattern) }
    }

    /// Sends a signal to another run, exactly once, with this activation's commit. Does not wait for the other run: if no open
    /// run has that id when the signal arrives, it is dropped with a `tracing` warning.
    ///
    /// # Errors
    /// Fails if the payload is too large.
    pub fn send_signal(&self, run: &str, name: &str, payload: &(impl Serialize + ?Sized)) -> Result<()> {
        let name = name_or_misuse(&self.cell, "signal", name);
        let payload = payload_or_misuse(&self.cell, "signal", payload);
        let payload = small(self.cell.shared.payload_bytes_max, format_args!("signal `{name}` to run {run}"), payload)?;
        let mut state = self.cell.call("send_signal");
        match RunId::new(run) {
            Ok(_) if name.as_str() == ENTRY_SIGNAL => {
                state.engine.misuse(format!("send_signal: the name `{name}` is reserved for entries"))
            }
            Ok(to) => state.engine.send_signal(to, name, payload),
            Err(error) => state.engine.misuse(format!("send_signal: {error}")),
        }
        Ok(())
    }
}

/// The mailbox for one name. `C` is the payload type: known for a typed [`crate::Signal`], open for text.
pub struct SignalSource<C> {
    ctx: Ctx,
    pattern: Pattern,
    carries: PhantomData<fn() -> C>,
}

impl<C> SignalSource<C> {
    /// Returns whether a signal is available. A poll: its answer is durable before any step that follows it starts.
    pub fn has(&self) -> bool {
        self.count() > 0
    }

    pub fn count(&self) -> usize {
        self.ctx.cell.poll_mailbox("count", |engine| engine.count_signals(&self.pattern))
    }

    /// Waits for the next signal.
    pub fn recv<T>(&self) -> Recv<T>
    where
        C: Carries<T>,
    {
        Recv::new(self.ctx.cell.clone(), self.pattern.clone())
    }

    /// Waits for the next signal for at most `span`, then returns `None`. Later signals stay in the mailbox.
    pub fn recv_timeout<T>(&self, span: Duration) -> RecvTimeout<T>
    where
        C: Carries<T>,
    {
        RecvTimeout { recv: self.recv(), span, timer: None, over: false, ctx: self.ctx.clone() }
    }

    /// Takes the next signal, if one is available.
    pub fn try_recv<T: DeserializeOwned>(&self) -> Result<Option<T>>
    where
        C: Carries<T>,
    {
        let taken = self.ctx.cell.poll_mailbox("try_recv", |engine| engine.try_signal(&self.pattern));
        taken.map(|(_, payload)| Ok(payload.read()?)).transpose()
    }

    /// Takes all available signals, up to the first that is not a `T`. That one stays for the next call, which takes it and
    /// fails.
    pub fn drain<T: DeserializeOwned>(&self) -> Result<Vec<T>>
    where
        C: Carries<T>,
    {
        drain(&self.ctx.cell, &self.pattern, |_, _, value| value)
    }

    /// Takes all available signals like [`SignalSource::drain`], each with its sender.
    pub fn drain_with_sender<T: DeserializeOwned>(&self) -> Result<Vec<ReceivedSignal<T>>>
    where
        C: Carries<T>,
    {
        let received = |_, sender: Option<RunKey>, value| ReceivedSignal { from: sender.map(|sender| sender.id), value };
        drain(&self.ctx.cell, &self.pattern, received)
    }

    /// Takes all available signals with their raw payloads.
    #[cfg(feature = "agents")]
    pub(crate) fn drain_payloads(&self) -> Vec<ReceivedSignal<Payload>> {
        let next = || self.ctx.cell.poll_mailbox("drain", |engine| engine.try_signal_from(&self.pattern));
        let received =
            |(_, value, sender): (Name, Payload, Option<RunKey>)| ReceivedSignal { from: sender.map(|sender| sender.id), value };
        std::iter::from_fn(next).map(received).collect()
    }
}

/// The payload of a signal, and its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSignal<T> {
    /// The run that sent it; `None` for a signal from outside.
    pub from: Option<RunId>,
    pub value: T,
}

/// The mailbox for all names that match a pattern.
pub struct PatternMailbox {
    cell: Arc<RunCell>,
    pattern: Pattern,
}

impl PatternMailbox {
    /// Waits for the next signal.
    pub fn recv<T: DeserializeOwned>(&self) -> RecvNamed<T> {
        RecvNamed { recv: Recv::new(self.cell.clone(), self.pattern.clone()) }
    }

    pub fn has(&self) -> bool {
        self.count() > 0
    }

    pub fn count(&self) -> usize {
        self.cell.poll_mailbox("count", |engine| engine.count_signals(&self.pattern))
    }

    pub fn try_recv<T: DeserializeOwned>(&self) -> Result<Option<(Name, T)>> {
        let taken = self.cell.poll_mailbox("try_recv", |engine| engine.try_signal(&self.pattern));
        taken.map(|(name, payload)| Ok((name, payload.read()?))).transpose()
    }

    /// Takes all available signals, up to the first that cannot be decoded; see [`SignalSource::drain`].
    pub fn drain<T: DeserializeOwned>(&self) -> Result<Vec<(Name, T)>> {
        drain(&self.cell, &self.pattern, |name, _, value| (name, value))
    }
}

/// Takes signals up to the first that is not a `T`. That one stays, so that its error does not lose the signals taken before. If
/// it is the first, it is taken and its error is returned, because otherwise it would block the mailbox forever.
fn drain<T: DeserializeOwned, V>(
    cell: &RunCell,
    pattern: &Pattern,
    make: impl Fn(Name, Option<RunKey>, T) -> V,
) -> Result<Vec<V>> {
    let mut taken = Vec::new();
    loop {
        let next = cell.poll_mailbox("drain", |engine| engine.peek_signal(pattern)).map(|payload| payload.read::<T>());
        if !taken.is_empty() && matches!(next, Some(Err(_))) {
            return Ok(taken);
        }
        let signal = cell.poll_mailbox("drain", |engine| engine.try_signal_from(pattern));
        let (Some((name, _, sender)), Some(value)) = (signal, next) else { return Ok(taken) };
        taken.push(make(name, sender, value?));
    }
}

/// The future of the next signal. Dropping it returns a signal that was reserved for it.
#[must_use = "a signal is received when the future is awaited"]
pub struct Recv<T> {
    cell: Arc<RunCell>,
    pattern: Pattern,
    call_id: CallId,
    waiting: bool,
    over: bool,
    deadline: Option<onward_core::Timestamp>,
    value: PhantomData<fn() -> T>,
}

impl<T> Recv<T> {
    pub(crate) fn new(cell: Arc<RunCell>, pattern: Pattern) -> Recv<T> {
        let call_id = cell.call("recv").engine.next_call_id();
        Recv { cell, pattern, call_id, waiting: false, over: false, deadline: None, value: PhantomData }
    }
}

impl<T: DeserializeOwned> Recv<T> {
    /// Completes when a signal is available. The signal stays in the mailbox when this future is dropped.
    pub(crate) fn poll_there(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if held_back(cx, || self.ready_at()) {
            return Poll::Pending;
        }
        let mut state = self.cell.call("recv");
        if !self.waiting {
            if state.engine.signal_ready_at(&self.pattern).is_some() {
                return Poll::Ready(Ok(()));
            }
            self.waiting = true;
            state.engine.await_signal(&self.call_id, &self.pattern, self.deadline);
        }
        if state.engine.signal_name(&self.call_id).is_some() {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        self.poll_named(cx).map_ok(drop)
    }

    fn poll_named(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Name, T)>> {
        if self.over {
            return self.cell.polled_again("recv", Some(&self.call_id));
        }
        if held_back(cx, || self.ready_at()) {
            return Poll::Pending;
        }
        let mut state = self.cell.call("recv");
        if !self.waiting {
            if let Some((name, payload)) = state.engine.await_signal(&self.call_id, &self.pattern, self.deadline) {
                drop(state);
                self.over = true;
                return Poll::Ready(payload.read().map(|value| (name, value)).map_err(Failure::from));
            }
            self.waiting = true;
        }
        let name = state.engine.signal_name(&self.call_id);
        let Some(answer) = state.engine.poll_call(&self.call_id) else {
            state.watch(&self.call_id, cx);
            return Poll::Pending;
        };
        state.unwatch(&self.call_id);
        drop(state);
        (self.waiting, self.over) = (false, true);
        // Answers without a signal are failures, so this name is never returned.
        let name = name.unwrap_or_else(|| Name::new("canceled").expect("a constant name"));
        Poll::Ready(answer.and_then(|payload| Ok((name, payload.read()?))))
    }
}

impl<T: DeserializeOwned> Future for Recv<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.poll_named(cx).map_ok(|(_, value)| value)
    }
}

impl<T: DeserializeOwned> Durable for Recv<T> {
    fn ready_at(&self) -> Option<Index> {
        let state = self.cell.lock();
        match (self.over, self.waiting) {
            (true, _) => None,
            (_, true) => state.engine.ready_at(&self.call_id),
            (_, false) => state.engine.signal_ready_at(&self.pattern),
        }
    }
}

impl<T> Drop for Recv<T> {
    fn drop(&mut self) {
        if self.waiting {
            self.cell.lock().drop_call(&self.call_id);
        }
    }
}

/// See [`PatternMailbox::recv`].
#[must_use = "a signal is received when the future is awaited"]
pub struct RecvNamed<T> {
    recv: Recv<T>,
}

impl<T: DeserializeOwned> Future for RecvNamed<T> {
    type Output = Result<(Name, T)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.recv.poll_named(cx)
    }
}

impl<T: DeserializeOwned> Durable for RecvNamed<T> {
    fn ready_at(&self) -> Option<Index> {
        self.recv.ready_at()
    }
}

/// See [`SignalSource::recv_timeout`].
#[must_use = "a signal is received when the future is awaited"]
pub struct RecvTimeout<T> {
    recv: Recv<T>,
    span: Duration,
    timer: Option<Sleep>,
    over: bool,
    ctx: Ctx,
}

impl<T: DeserializeOwned> Future for RecvTimeout<T> {
    type Output = Result<Option<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Option<T>>> {
        let this = &mut *self;
        if this.over {
            return this.ctx.cell.polled_again("recv_timeout", Some(&this.recv.call_id));
        }
        if this.timer.is_none() {
            if held_back(cx, || this.recv.ready_at()) {
                return Poll::Pending; // the timer starts with the wait
            }
            this.recv.deadline = Some(this.ctx.now().after(this.span));
        }
        // Both may have completed before this poll: the lower index wins.
        let (fired_at, received_at) = (this.timer.as_ref().and_then(Durable::ready_at), this.recv.ready_at());
        let is_late = fired_at.is_some_and(|fired| received_at.is_none_or(|received| fired < received));
        if !is_late && let Poll::Ready(received) = Pin::new(&mut this.recv).poll(cx) {
            (this.timer, this.over) = (None, true);
            return Poll::Ready(received.map(Some));
        }
        let timer = this.timer.get_or_insert_with(|| this.ctx.sleep(this.span));
        let fired = Pin::new(timer).poll(cx);
        this.over = fired.is_ready();
        fired.map(|fired| fired.map(|()| None))
    }
}

impl<T: DeserializeOwned> Durable for RecvTimeout<T> {
    fn ready_at(&self) -> Option<Index> {
        let timer = self.timer.as_ref().and_then(Durable::ready_at);
        [self.recv.ready_at(), timer].into_iter().flatten().min()
    }
}
