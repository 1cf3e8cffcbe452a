//! Requests to a run that are accepted once per id: signals, entries, updates, retries.
//!
//! Each is a builder. Awaiting it sends the request; with an id, a repeat is the same request and returns the first result.

use std::marker::PhantomData;

use onward_core::api::{
    AppendEntry, AppendEntryRequest, Appended, AppendedEntry, AskRequest, RetryRequest, Signal, SignalRequest,
};
use onward_core::{Name, Payload};
use onward_store::sync::random_u64;
use serde::de::DeserializeOwned;

use super::{RunHandle, to_signal};
use crate::{Error, Result};

/// A signal to be sent; see [`RunHandle::signal`] and [`RunHandle::message`].
#[must_use = "await it to send the signal"]
pub struct SendSignal {
    pub(super) run: RunHandle<()>,
    pub(super) signal: Result<Signal, Error>,
}

impl SendSignal {
    pub(super) fn new(run: RunHandle<()>, name: &str, payload: Result<Payload, Error>) -> SendSignal {
        SendSignal { run, signal: to_signal(name, payload) }
    }

    /// Sets an id under which the signal is accepted once, for as long as the run is kept.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Ok(signal) = &mut self.signal {
            signal.signal_id = Some(id.into());
        }
        self
    }

    async fn send(self) -> Result<Appended, Error> {
        let request = SignalRequest { run: self.run.key.clone(), signal: self.signal? };
        self.run.onward.call(self.run.client().signal_run(request)).await
    }
}

awaitable!(SendSignal => Appended);

/// An entry to be appended; see [`RunHandle::append`].
#[must_use = "await it to append the entry"]
pub struct Append {
    run: RunHandle<()>,
    entry: Result<AppendEntry, Error>,
}

impl Append {
    pub(super) fn new(run: RunHandle<()>, role: &str, content: Result<Payload, Error>) -> Append {
        let entry = content.and_then(|content| Ok(AppendEntry { role: Name::new(role)?, content, idempotency_key: None }));
        Append { run, entry }
    }

    /// Sets an id under which the entry is appended once: a repeat returns the first entry with `already_existed`. The same id
    /// with another role or content fails with `entry_key_taken`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Ok(entry) = &mut self.entry {
            entry.idempotency_key = Some(id.into());
        }
        self
    }

    async fn send(self) -> Result<AppendedEntry, Error> {
        let request = AppendEntryRequest { run: self.run.key.clone(), entry: self.entry?, is_looked_up: false };
        self.run.onward.call(self.run.client().append_entry(request)).await
    }
}

awaitable!(Append => AppendedEntry);

/// An update to be sent; see [`RunHandle::update`].
#[must_use = "await it to send the update"]
pub struct Update<T> {
    run: RunHandle<()>,
    request: Result<AskRequest, Error>,
    output: PhantomData<fn() -> T>,
}

impl<T> Update<T> {
    pub(super) fn new(run: RunHandle<()>, name: &str, input: Result<Payload, Error>) -> Update<T> {
        let request = input.and_then(|payload| {
            let (run, name) = (run.key.clone(), Name::new(name)?);
            Ok(AskRequest { run, name, payload, update_id: format!("{:016x}", random_u64()) })
        });
        Update { run, request, output: PhantomData }
    }

    /// Sets an id under which the update is executed once: a repeat returns the first result.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Ok(request) = &mut self.request {
            request.update_id = id.into();
        }
        self
    }
}

impl<T: DeserializeOwned> Update<T> {
    async fn send(self) -> Result<T, Error> {
        let reply = self.run.onward.call(self.run.client().update_run(self.request?)).await?;
        self.run.read_answer(reply.answer.expect("a client waits for the result of an update"))
    }
}

awaitable!(Update<T: DeserializeOwned> => T);

/// A retry of a failed run; see [`RunHandle::retry`].
#[must_use = "await it to retry the run"]
pub struct Retry {
    run: RunHandle<()>,
    request: RetryRequest,
}

impl Retry {
    pub(super) fn new(run: RunHandle<()>, reason: &str) -> Retry {
        let (key, request_id) = (run.key.clone(), format!("{:016x}", random_u64()));
        let request = RetryRequest { run: key, request_id, reason: reason.to_owned(), include_outcome_unknown: false };
        Retry { run, request }
    }

    /// Sets an id under which the run is retried once.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.request.request_id = id.into();
        self
    }

    /// Includes tasks that failed with `outcome_unknown`. They are executed again, so their effect may happen twice.
    pub fn include_outcome_unknown(mut self) -> Self {
        self.request.include_outcome_unknown = true;
        self
    }

    async fn send(self) -> Result<(), Error> {
        self.run.onward.call(self.run.client().retry_run(self.request)).await.map(drop)
    }
}

awaitable!(Retry => ());
