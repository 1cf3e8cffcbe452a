//! Checks of what a schedule starts, and the delivery of its starts.

use onward_core::api::{WorkerInfo, upcoming};
use onward_core::event::RunStarted;
use onward_core::run::{NewRun, answer_to};
use onward_core::schedule::{Firing, FiringCause, ScheduleDefinition, ScheduleRefusal, ScheduleTarget, SlotContext, run_of};
use onward_core::schedule_run::schedule_of;
use onward_core::{Failure, Name, Namespace, Payload};
use onward_store::StoreError;

use super::template;
use crate::schemas::depth::check_payload;
use crate::schemas::kinds::is_reserved;
use crate::{Runtime, RuntimeError};

impl Runtime {
    /// Checks the target of a definition (SZ2). A kind that no worker is known to have is refused, and a template whose next input
    /// does not match the schema of the kind, unless forced; before the first worker connects, every kind may be served later.
    pub(super) async fn check_schedule_target(
        &self,
        namespace: &Namespace,
        schedule: &Name,
        definition: &ScheduleDefinition,
        force: bool,
    ) -> Result<(), RuntimeError> {
        let ScheduleTarget { kind, input, is_template, version, .. } = &definition.target;
        if is_reserved(kind) {
            return Err(RuntimeError::KindReserved { kind: kind.clone() });
        }
        if !force && !self.is_known_kind(namespace, kind).await? {
            return Err(RuntimeError::KindNotFound { kind: kind.clone() });
        }
        check_payload(input)?;
        let key = (false, kind.clone(), self.current_version(namespace, kind, version.clone()).await?);
        match is_template {
            true => {
                self.check_startable(namespace, &key).await?;
                let rendered = self.render_next(schedule, definition)?;
                if force { Ok(()) } else { self.check_new_input(namespace, &key, &rendered).await }
            }
            false => self.check_new_input(namespace, &key, input).await,
        }
    }

    /// Renders the input of the next slot.
    fn render_next(&self, schedule: &Name, definition: &ScheduleDefinition) -> Result<Payload, RuntimeError> {
        let (spec, now) = (&definition.spec, self.clock().now());
        let next = upcoming(spec, schedule.as_str(), now, 1).map_err(ScheduleRefusal::from)?;
        let slot = next.first().map_or(now, |next| next.slot);
        let firing = Firing::new(0, slot, FiringCause::Clock, run_of(schedule, slot));
        let context = SlotContext { schedule: schedule.clone(), firing, time_zone: spec.time_zone.clone() };
        template::render(&definition.target.input, &context.firing.run, &context)
    }

    async fn is_known_kind(&self, namespace: &Namespace, kind: &Name) -> Result<bool, RuntimeError> {
        let known = self.known_kinds(namespace).await?;
        if known.has_runs_of(kind) {
            return Ok(true);
        }
        let workers = self.workers(namespace).await?.workers;
        let has = |worker: &WorkerInfo| worker.kinds.iter().any(|known| known.kind == *kind);
        Ok(workers.is_empty() || workers.iter().any(has))
    }

    /// Delivers the start of the run of a slot. A start that can never succeed ends the firing with the code of its failure.
    pub(crate) async fn carry_scheduled(&self, run: NewRun, slot: Option<&SlotContext>) -> Result<bool, StoreError> {
        let (key, parent) = (run.key.clone(), run.started.parent.clone());
        let prepared = match self.prepare_scheduled(run, slot).await {
            Ok(prepared) => return self.carry_start(prepared).await,
            Err(RuntimeError::Store(error)) => return Err(error),
            Err(refused) => refused,
        };
        let Some(parent) = parent else { return Ok(false) };
        tracing::warn!(run = %key.id, namespace = %key.namespace, code = prepared.code(), "a slot has no run: {prepared}");
        let failure = Failure { retryable: false, ..Failure::new(prepared.code(), prepared.to_string()) };
        Box::pin(self.carry(answer_to(&parent, &key.id, Err(failure)))).await?;
        Ok(false)
    }

    /// Renders the input, checks it, and selects the version. A run that exists already is left to the store to compare.
    async fn prepare_scheduled(&self, mut run: NewRun, slot: Option<&SlotContext>) -> Result<NewRun, RuntimeError> {
        let namespace = run.key.namespace.clone();
        if let Some(slot) = slot {
            run.started.input = template::render(&run.started.input, &run.key.id, slot)?;
        }
        let RunStarted { kind, version, input, .. } = &run.started;
        let version = self.current_version(&namespace, kind, version.clone()).await?;
        if self.store().read_run(run.key.clone(), None).await?.is_none() {
            self.check_new_input(&namespace, &(false, kind.clone(), version.clone()), input).await?;
        }
        run.started.version = version;
        let ceiling = self.ceiling(&namespace);
        if !ceiling.is_unlimited() {
            run.started.budget.get_or_insert_default().lower(ceiling); // SZ3
        }
        Ok(run)
    }
}

/// Returns true if a schedule starts the run.
pub(crate) fn is_scheduled(run: &NewRun) -> bool {
    run.started.parent.as_ref().is_some_and(|parent| schedule_of(&parent.run.id).is_some())
}

/// Fails if a payload cannot be a template on this server.
pub(super) fn unreadable(input: &Payload) -> Option<&'static str> {
    (!input.is_json()).then_some("a template is JSON that the server can read: it cannot be encrypted or binary")
}
