//! Start policies: the verb of callers, and the delivery of the starts.
//!
//! The cell of a kind, policy and key is an internal run; `onward-core` decides what a start changes. This module checks starts
//! where they enter, finds their cells ([`route`]), and starts the runs.
//!
//! Invariants:
//! - SY1: a start that is refused writes nothing.
//! - SY2: an input is compared with the schema of its kind when the start is accepted, and not again: a held start is not lost to a
//!   later schema. For a batch, a list with the one input is compared, because the run gets a list.
//! - SY3 (SP2): a repeat of a request id gets the first answer, also from the cell before the current one.

use onward_core::api::{StartWithPolicyReply, StartWithPolicyRequest};
use onward_core::attribute;
use onward_core::budget::{Allowance, BudgetHead};
use onward_core::event::StartDecided;
use onward_core::run::{Input, NewRun, Refusal};
use onward_core::start_policy::{
    PolicyAsk, PolicyCell, PolicyInput, RunOptions, StartAnswer, StartOutcome, StartPolicy, policy_of,
};
use onward_core::start_policy_run::{Route, route, start_cell};
use onward_core::trace::TraceContext;
use onward_core::{Event, Index, Name, Namespace, Payload, RunHead, RunId, RunKey};
use onward_store::StoreError;
use onward_store::sync::random_u64;

use crate::api::execute::CallContext;
use crate::api::runs::new_run_id;
use crate::schemas::depth::check_payload;
use crate::schemas::kinds::is_reserved;
use crate::{Runtime, RuntimeError, TickCounts};

/// Number of times that a cell is read again because it changed meanwhile.
const ATTEMPTS: u32 = 100;

impl Runtime {
    /// Starts a run by a policy, or combines the start with another one.
    ///
    /// # Errors
    /// `start_policy_invalid`, and those of the start of a run.
    pub async fn start_with_policy(
        &self,
        request: StartWithPolicyRequest,
        context: CallContext,
    ) -> Result<StartWithPolicyReply, RuntimeError> {
        let StartWithPolicyRequest {
            namespace,
            kind,
            policy,
            input,
            version,
            attributes,
            budget,
            deadline_ms,
            trace,
            request_id,
        } = request;
        if is_reserved(&kind) {
            return Err(RuntimeError::KindReserved { kind });
        }
        let granted = context.allowance.or(budget.map(Allowance::granted)).filter(|granted| !granted.limit.is_unlimited());
        let options = RunOptions {
            version,
            attributes,
            deadline_ms,
            trace: trace.filter(|trace| TraceContext::parse(trace).is_some()),
            requester: context.caller,
            granted: granted.map(|granted| Box::new(BudgetHead::from(granted))),
        };
        let run = RunId::new(new_run_id(self.clock().now()))?;
        let cell = PolicyCell::of(&policy, &kind, options.requester.as_deref());
        let ask = PolicyAsk { policy, run, options, input, request_id };
        self.check_ask(&namespace, &kind, &ask).await?; // SY1
        let (StartAnswer { run, outcome, due_at }, repeated) = self.ask_policy_cell(&namespace, cell, &ask).await?;
        if outcome == StartOutcome::Started {
            // The run is there when the reply is; a failure is repeated by the next tick.
            drop(self.deliver_outbox(&mut TickCounts::default()).await);
        }
        Ok(StartWithPolicyReply { run, outcome, due_at, repeated })
    }

    /// Checks a start like one without a policy (SY2).
    async fn check_ask(&self, namespace: &Namespace, kind: &Name, ask: &PolicyAsk) -> Result<(), RuntimeError> {
        attribute::check(&ask.options.attributes)?;
        check_payload(&ask.input)?;
        ask.check()?;
        let listed = match &ask.policy {
            StartPolicy::Batch(_) if ask.input.is_json() => Some(Payload::list(std::slice::from_ref(&ask.input))),
            StartPolicy::Batch(_) | StartPolicy::Singleton(_) | StartPolicy::Debounce(_) => None,
        };
        let input = listed.as_ref().unwrap_or(&ask.input);
        check_payload(input)?; // a list is one level deeper
        let version = self.current_version(namespace, kind, ask.options.version.clone()).await?;
        self.check_new_input(namespace, &(false, kind.clone(), version), input).await
    }

    /// Appends a start to its cell, which is started if there is none. Returns the answer, and whether it is that of an earlier
    /// request.
    async fn ask_policy_cell(
        &self,
        namespace: &Namespace,
        cell: PolicyCell,
        ask: &PolicyAsk,
    ) -> Result<(StartAnswer, bool), RuntimeError> {
        let keys = cell.ids().map(|id| RunKey::new(namespace.clone(), id));
        for _ in 0..ATTEMPTS {
            let heads = self.policy_cells(&keys).await?;
            let Route { current, is_open, ended, outdated } = route([heads[0].as_ref(), heads[1].as_ref()]);
            if let (Some(ended), Some(_)) = (ended, &ask.request_id)
                && let Some(answer) = self.append_ask(&keys[ended], ask).await?
            {
                return Ok(answer); // SY3
            }
            let key = &keys[current];
            let answer = match is_open {
                true => self.append_ask(key, ask).await?,
                false => self.begin_policy_cell(key, &cell, ask, outdated).await?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        Err(StoreError::Unavailable { why: format!("the cell of start policy `{}` changes all the time", ask.policy.key()) }
            .into())
    }

    /// Starts a cell with its first start; `None` if the cell has changed meanwhile.
    async fn begin_policy_cell(
        &self,
        key: &RunKey,
        cell: &PolicyCell,
        ask: &PolicyAsk,
        outdated: bool,
    ) -> Result<Option<(StartAnswer, bool)>, RuntimeError> {
        if outdated {
            match self.delete_cell(key).await {
                Ok(_) => {}
                // Its last messages are on their way.
                Err(StoreError::RunBusy { .. }) => drop(self.deliver_outbox(&mut TickCounts::default()).await?),
                Err(error) => return Err(error.into()),
            }
        }
        match self.store().start_run(start_cell(key.clone(), cell.clone(), ask.clone(), random_u64()), None).await {
            Ok(started) => {
                let appended = started.signal.expect("a cell is started with its first start");
                Ok(Some((self.read_answer(key, appended.index, ask).await?, appended.repeated)))
            }
            // Another start has begun the cell, or it has ended meanwhile.
            Err(StoreError::Refused(Refusal::Closed { .. }) | StoreError::RunExists { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn policy_cells(&self, keys: &[RunKey; 2]) -> Result<[Option<RunHead>; 2], StoreError> {
        let (first, second) = (self.store().read_run(keys[0].clone(), None), self.store().read_run(keys[1].clone(), None));
        Ok([first.await?, second.await?])
    }

    /// Appends a start to a cell; `None` if the cell has ended, and did not accept the start before.
    async fn append_ask(&self, key: &RunKey, ask: &PolicyAsk) -> Result<Option<(StartAnswer, bool)>, RuntimeError> {
        let input: Input = PolicyInput::Ask(Box::new(ask.clone())).into();
        match self.store().append_input(key.clone(), input).await {
            Ok(appended) => Ok(Some((self.read_answer(key, appended.index, ask).await?, appended.repeated))),
            Err(StoreError::Refused(Refusal::Closed { .. }) | StoreError::RunNotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the answer to a start that the cell accepted at `index` of some generation.
    async fn read_answer(&self, key: &RunKey, index: Index, ask: &PolicyAsk) -> Result<StartAnswer, RuntimeError> {
        let gone = || StoreError::RunNotFound { key: key.clone() };
        let head = self.store().read_run(key.clone(), None).await?.ok_or_else(gone)?;
        for generation in (0..=head.generation).rev() {
            let records = self.store().read_log(key.clone(), Some(generation), index, 1).await?;
            let mut events = records.iter().filter(|record| record.index == index).flat_map(|record| &record.events);
            if let Some(answer) = events.find_map(|event| answer_of(event, ask)) {
                return Ok(answer);
            }
        }
        Err(gone().into())
    }

    /// Returns the open run that a start with this policy may cancel.
    ///
    /// # Errors
    /// Those of reading runs.
    pub async fn run_to_cancel(
        &self,
        namespace: &Namespace,
        kind: &Name,
        policy: &StartPolicy,
    ) -> Result<Option<RunKey>, RuntimeError> {
        if !policy.cancels() {
            return Ok(None);
        }
        let keys = PolicyCell::of(policy, kind, None).ids().map(|id| RunKey::new(namespace.clone(), id));
        let heads = self.policy_cells(&keys).await?;
        let open = heads.into_iter().flatten().filter_map(|head| head.start_policy).find_map(|policy| policy.open);
        Ok(open.map(|open| RunKey::new(namespace.clone(), open.run)))
    }

    /// Delivers the start of a run that a cell held. A run without a version gets the current one.
    pub(crate) async fn carry_held(&self, mut run: NewRun) -> Result<bool, StoreError> {
        let version = run.started.version.take();
        run.started.version = self.current_version(&run.key.namespace, &run.started.kind, version).await?;
        let key = run.key.clone();
        let is_started = self.carry_start(run).await?;
        if !is_started {
            tracing::warn!(run = %key.id, namespace = %key.namespace, "a run of a start policy could not be started");
        }
        Ok(is_started)
    }
}

/// Returns the answer to a start, if the event is its decision.
fn answer_of(event: &Event, ask: &PolicyAsk) -> Option<StartAnswer> {
    let Event::StartDecided(decided) = event else { return None };
    let StartDecided { input: PolicyInput::Ask(own), .. } = &**decided else { return None };
    let is_same = own.run == ask.run || (own.request_id.is_some() && own.request_id == ask.request_id);
    is_same.then(|| decided.answer()).flatten()
}

/// Returns true if the cell of a start policy starts the run.
pub(crate) fn is_held(run: &NewRun) -> bool {
    run.started.parent.as_ref().is_some_and(|parent| policy_of(&parent.run.id).is_some())
}
