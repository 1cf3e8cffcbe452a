//! Defaults of kinds: where they are stored, and the one place where they are applied.
//!
//! `onward-core` decides which option applies. This module looks the defaults up and fills requests before the store sees them.
//!
//! Invariants:
//! - KD3: every task and every run that passes through this runtime has the defaults of its kind, whichever way it is started:
//!   by a caller, by a run's code, as a child or standalone.
//! - KD4: defaults never make a commit or a start fail: if the store cannot list them, those that were read last apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::api::{DefaultsQuery, DefaultsReply, DefaultsSource, PutDefaultsRequest, SourcedDefaults};
use onward_core::event::StandaloneTask;
use onward_core::run::run_queue::queue_fault;
use onward_core::run::{Commit, NewRun};
use onward_core::{DEFAULTS_KIND_PREFIX, Event, KindDefaults, KindSchemas, Name, Namespace};

use crate::schemas::kinds::NamespaceKinds;
use crate::schemas::run_queues::{WantedQueue, key_fault, place};
use crate::{Runtime, RuntimeError};

impl Runtime {
    /// Replaces the live defaults of a kind and returns what applies to it now.
    ///
    /// # Errors
    /// `defaults_invalid`.
    pub async fn put_defaults(&self, request: PutDefaultsRequest) -> Result<DefaultsReply, RuntimeError> {
        let PutDefaultsRequest { namespace, kind, defaults } = request;
        check(&kind, &defaults)?;
        let row = KindSchemas::empty(namespace.clone(), Name::new(format!("{DEFAULTS_KIND_PREFIX}{kind}"))?, None);
        let defaults = Some(Box::new(defaults)).filter(|defaults| !defaults.is_empty());
        self.store().register_kinds(vec![KindSchemas { defaults, ..row }]).await?;
        self.kinds_changed(&namespace);
        self.list_defaults(&DefaultsQuery { namespace, kind: Some(kind) }).await
    }

    /// Lists the defaults of kinds from all sources.
    pub async fn list_defaults(&self, query: &DefaultsQuery) -> Result<DefaultsReply, RuntimeError> {
        let stored = self.store().list_kinds(query.namespace.clone()).await?;
        let settings = self.options().defaults.iter().map(|(kind, defaults)| SourcedDefaults {
            kind: kind.clone(),
            source: DefaultsSource::Settings,
            version: None,
            defaults: defaults.clone(),
            stored_at: None,
        });
        let mut found: Vec<SourcedDefaults> = stored.into_iter().filter_map(sourced).chain(settings).collect();
        found.retain(|of| query.kind.as_ref().is_none_or(|kind| of.kind == *kind));
        found.sort_by(|a, b| (&a.kind, a.source, &a.version).cmp(&(&b.kind, b.source, &b.version)));
        Ok(DefaultsReply { defaults: found })
    }

    /// Applies defaults to a run that starts, and to the task of a standalone one (KD3).
    pub(crate) async fn fill_start(&self, run: &mut NewRun) {
        let known = self.last_known_kinds(&run.key.namespace).await;
        let started = &mut run.started;
        if let Some(StandaloneTask { kind, options }) = &mut started.task {
            options.fill(kind, &known.task_defaults(kind, &self.options().defaults));
        } else if started.deadline_ms.is_none() {
            started.deadline_ms =
                known.run_defaults(&started.kind, started.version.as_ref(), &self.options().defaults).deadline_ms;
        }
    }

    /// Sets the place of a run in a queue (KD3). A start that would be refused is left to the store if the run exists already: then
    /// it is a repeat.
    pub(crate) async fn fill_queue(&self, run: &mut NewRun, wanted: WantedQueue) -> Result<(), RuntimeError> {
        let known = self.last_known_kinds(&run.key.namespace).await;
        let started = &run.started;
        let defaults = known.run_defaults(&started.kind, started.version.as_ref(), &self.options().defaults);
        match place(wanted, &run.key, started, &defaults) {
            Ok(place) => run.started.queue = place,
            Err(refused) if self.store().read_run(run.key.clone(), None).await?.is_none() => return Err(refused),
            Err(_) => {}
        }
        Ok(())
    }

    /// Applies defaults to the tasks that a commit schedules (KD3).
    pub(crate) async fn fill_tasks(&self, commit: &mut Commit) {
        let known = self.last_known_kinds(&commit.key.namespace).await;
        for event in &mut commit.events {
            if let Event::TaskScheduled(task) = event {
                let defaults = known.task_defaults(&task.kind, &self.options().defaults);
                task.options.fill(&task.kind, &defaults);
            }
        }
    }

    /// Returns the stored kinds, or those that were read last if the store fails (KD4).
    async fn last_known_kinds(&self, namespace: &Namespace) -> Arc<NamespaceKinds> {
        match self.known_kinds(namespace).await {
            Ok(known) => known,
            Err(_) => self.stale_kinds(namespace).unwrap_or_default(),
        }
    }
}

/// Returns true if the commit has a task that defaults apply to.
pub(crate) fn schedules_tasks(commit: &Commit) -> bool {
    commit.events.iter().any(|event| matches!(event, Event::TaskScheduled(_)))
}

impl NamespaceKinds {
    fn task_defaults(&self, kind: &Name, settings: &BTreeMap<Name, KindDefaults>) -> KindDefaults {
        self.merged(kind, settings, self.registered_defaults(true, kind, None))
    }

    fn run_defaults(&self, kind: &Name, version: Option<&Name>, settings: &BTreeMap<Name, KindDefaults>) -> KindDefaults {
        self.merged(kind, settings, self.registered_defaults(false, kind, version))
    }

    /// Merges the sources in order of precedence (KD2).
    fn merged(&self, kind: &Name, settings: &BTreeMap<Name, KindDefaults>, registered: Option<&KindDefaults>) -> KindDefaults {
        let sources = [self.live_defaults(kind), settings.get(kind), registered];
        sources.into_iter().flatten().fold(KindDefaults::default(), KindDefaults::or)
    }
}

/// Fails if defaults that a worker registers cannot apply to its kind.
pub(crate) fn check_registered(schemas: &KindSchemas) -> Result<(), RuntimeError> {
    let Some(defaults) = &schemas.defaults else { return Ok(()) };
    check(&schemas.kind, defaults)?;
    let wrong = defaults.wrong_for(schemas.is_task);
    wrong.map_or(Ok(()), |why| Err(RuntimeError::DefaultsInvalid { kind: schemas.kind.clone(), why }))
}

fn check(kind: &Name, defaults: &KindDefaults) -> Result<(), RuntimeError> {
    let of_queue = || defaults.queue.as_ref().and_then(queue_fault).map(str::to_owned);
    let why = defaults.problem().or_else(of_queue).or_else(|| defaults.key.as_deref().and_then(key_fault));
    why.map_or(Ok(()), |why| Err(RuntimeError::DefaultsInvalid { kind: kind.clone(), why }))
}

/// Returns the kind that a row of live defaults is about.
pub(crate) fn defaults_kind(row: &KindSchemas) -> Option<Name> {
    Name::new(row.kind.as_str().strip_prefix(DEFAULTS_KIND_PREFIX)?).ok()
}

/// Reads the defaults in a row of the table of kinds, if it has any.
fn sourced(row: KindSchemas) -> Option<SourcedDefaults> {
    let live = defaults_kind(&row);
    let source = if live.is_some() { DefaultsSource::Live } else { DefaultsSource::Registered };
    let KindSchemas { kind, version, defaults, registered_at, .. } = row;
    Some(SourcedDefaults { kind: live.unwrap_or(kind), source, version, defaults: *defaults?, stored_at: Some(registered_at) })
}
