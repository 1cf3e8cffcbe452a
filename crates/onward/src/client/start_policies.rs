//! Starts with a policy, which combines starts of one kind and key.

use std::sync::Arc;
use std::time::Duration;

use onward_core::api::StartWithPolicyRequest;
use onward_core::start_policy::{Batch, Debounce, Singleton, StartOutcome, StartPolicy, StartPolicyRefusal};
use onward_core::time::millis;
use onward_core::{ErrorCode, Failure, Name, Payload, RunKey, Timestamp};
use onward_runtime::{Client, ClientFuture, Outcome, RuntimeError};
use onward_store::sync::random_u64;

use super::{Onward, RunHandle, Start};
use crate::{Error, Result};

/// Longest time between two reads of a run that is not started yet.
const POLL_MAX: Duration = Duration::from_secs(1);

/// Shortest time between two such reads.
const POLL_MIN: Duration = Duration::from_millis(10);

/// A start with a policy; see [`Start::singleton`], [`Start::debounce`] and [`Start::batch`].
#[must_use = "await it to send the start"]
pub struct StartWithPolicy<O> {
    start: Start<O>,
    policy: StartPolicy,
    request_id: Option<String>,
}

/// The answer to a start with a policy.
pub struct StartedWithPolicy<O> {
    /// The run of the start, or the open one that the start was skipped for. Its result waits for the start, too.
    pub run: RunHandle<O>,
    pub outcome: StartOutcome,
    /// The time at which a held run starts, if no later start changes it; `None` if it waits for the end of another run.
    pub due_at: Option<Timestamp>,
    /// The request was accepted before; this is its first answer.
    pub repeated: bool,
}

impl<O> Start<O> {
    /// Allows one open run of the kind and key. By default a start answers with the open run; [`Singleton::cancel`] cancels the open
    /// run first, which needs the scope `operate` over a server.
    pub fn singleton(self, policy: impl Into<Singleton>) -> StartWithPolicy<O> {
        StartWithPolicy { start: self, policy: StartPolicy::Singleton(policy.into()), request_id: None }
    }

    /// Starts one run for starts of the kind and key that follow each other closely, with the last input.
    pub fn debounce(self, policy: Debounce) -> StartWithPolicy<O> {
        StartWithPolicy { start: self, policy: StartPolicy::Debounce(policy), request_id: None }
    }

    /// Collects inputs of the kind and key: one run starts with the list of them.
    pub fn batch(self, policy: Batch) -> StartWithPolicy<O> {
        StartWithPolicy { start: self, policy: StartPolicy::Batch(policy), request_id: None }
    }
}

impl<O> StartWithPolicy<O> {
    /// Sets an id under which the start counts once for a day; the default is a random one for each start.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    async fn send(self) -> Result<StartedWithPolicy<O>, Error> {
        let StartWithPolicy { start, policy, request_id } = self;
        let refused = |refusal: StartPolicyRefusal| Error::from(RuntimeError::from(refusal));
        if start.id.is_some() {
            return Err(refused(StartPolicyRefusal::FixedId));
        }
        if start.signal.is_some() {
            return Err(refused(StartPolicyRefusal::Signal));
        }
        let (kind, version) = (Name::new(&start.kind)?, start.version.as_deref().map(Name::new).transpose()?);
        start.onward.check_known(&kind, version.as_ref())?;
        let input = start.input.map_err(|why| Error::Convert { what: "the input", why })?;
        let request = StartWithPolicyRequest {
            version,
            attributes: super::attributes(start.attributes)?,
            budget: start.budget,
            deadline_ms: start.deadline.map(millis),
            trace: start.trace,
            // A request that is sent again over a broken connection counts once.
            request_id: Some(Name::new(request_id.unwrap_or_else(|| format!("{:016x}", random_u64())))?),
            ..StartWithPolicyRequest::new(start.onward.namespace().clone(), kind, policy, input)
        };
        let reply = start.onward.call(start.onward.inner.client.start_with_policy(request)).await?;
        let run = start.onward.held_run(reply.run.as_str())?;
        Ok(StartedWithPolicy { run, outcome: reply.outcome, due_at: reply.due_at, repeated: reply.repeated })
    }
}

awaitable!(StartWithPolicy<O> => StartedWithPolicy<O>);

impl Onward {
    /// Returns a handle to a run that a start with a policy has promised: its result also waits for the start.
    pub fn held_run<O>(&self, id: &str) -> Result<RunHandle<O>, Error> {
        let run = self.run(id)?;
        let outcome = HeldOutcome { client: self.inner.client.clone(), key: run.key.clone() };
        Ok(RunHandle { outcome: Some(Arc::new(outcome)), ..run })
    }
}

/// The result of a run that starts later.
struct HeldOutcome {
    client: Arc<dyn Client>,
    key: RunKey,
}

impl HeldOutcome {
    async fn wait(&self) -> Result<Result<Payload, Failure>, RuntimeError> {
        let mut delay = POLL_MIN;
        loop {
            match self.client.wait_for_outcome(self.key.clone()).await {
                Err(error) if error.code() == ErrorCode::RunNotFound.as_str() => {
                    tokio::time::sleep(delay).await; // nothing announces the start of a run that does not exist
                    delay = (delay * 2).min(POLL_MAX);
                }
                outcome => return outcome,
            }
        }
    }
}

impl Outcome for HeldOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(self.wait())
    }
}
