//! Schemas of the inputs and results of kinds: registered by workers, stored, checked before a run or standalone task starts.
//!
//! Determines which schemas are in force, and caches their compiled form. Inputs of children are not checked: they pass from
//! code to code.
//!
//! Invariants:
//! - KI4: a kind that a worker declared internal can neither be started by callers nor is it listed; one version counts for
//!   all. It stays internal whatever other workers declare, until an admin removes the stored kind.
//! - KI1: an input that does not fit the schema of its kind and version starts nothing; but a repeated start finds the existing
//!   run.
//! - KI2: the latest registration of a kind and version counts, also one without schemas, and also while no worker is
//!   connected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use onward_core::internal::InternalRuns;
use onward_core::queue::QUEUE_KIND_PREFIX;
use onward_core::quota::{QUOTA_KIND, QuotaSettings};
use onward_core::{
    DEFAULTS_KIND_PREFIX, FLOW_KIND_PREFIX, KindDefaults, KindSchemas, Name, NamedSchema, Namespace, Payload, RunKey,
    TASK_KIND_PREFIX, Timestamp, is_internal_task,
};
use onward_store::StoreError;

use super::check::{self, ValueSchema};
use super::defaults::{check_registered, defaults_kind};
use crate::{Runtime, RuntimeError};
use onward_store::sync::lock;

/// Number of namespaces in the cache; beyond it, the cache is cleared.
const NAMESPACES_MAX: usize = 10_000;

/// A kind as this runtime knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindView {
    pub kind: Name,
    pub is_task: bool,
    /// By version, the one without a version first; a task has one.
    pub versions: Vec<KindVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindVersion {
    pub version: Option<Name>,
    pub input: Option<Payload>,
    pub output: Option<Payload>,
    pub signals: Vec<NamedSchema>,
    pub updates: Vec<NamedSchema>,
    /// When its schemas were registered, if it has any.
    pub registered_at: Option<Timestamp>,
    /// Number of workers of this runtime that have code for it.
    pub workers: usize,
}

pub(crate) type KindKey = (bool, Name, Option<Name>);

/// Cache of kinds, by namespace.
#[derive(Default)]
pub(crate) struct Kinds {
    known: Mutex<BTreeMap<Namespace, Arc<NamespaceKinds>>>,
}

/// The kinds of a namespace at one time.
#[derive(Default)]
pub(crate) struct NamespaceKinds {
    read_at: Timestamp,
    kinds: BTreeMap<KindKey, Arc<KindEntry>>,
    /// Kinds of tasks and of workflows with an internal version.
    internal: BTreeSet<(bool, Name)>,
    /// The current versions of flows that have definitions, with the times of their registration.
    flows: BTreeMap<Name, (Timestamp, Option<Name>)>,
    /// For explanations; the stores read it themselves.
    quota: Option<QuotaSettings>,
    /// Defaults that were set live.
    defaults: BTreeMap<Name, KindDefaults>,
    /// Some kind has schemas of signals or updates.
    pub(crate) has_messages: bool,
}

impl NamespaceKinds {
    /// Returns the schema of a signal, or of an update, of a kind.
    pub(crate) fn message_schema(&self, key: &KindKey, is_update: bool, name: &Name) -> Option<&Arc<ValueSchema>> {
        let kind = self.kinds.get(key)?;
        if is_update { kind.updates.get(name) } else { kind.signals.get(name) }
    }

    /// Returns true if a flow or a workflow of the kind is stored.
    pub(crate) fn has_runs_of(&self, kind: &Name) -> bool {
        self.flows.contains_key(kind) || self.kinds.keys().any(|(is_task, own, _)| !is_task && own == kind)
    }

    pub(crate) fn quota(&self) -> Option<&QuotaSettings> {
        self.quota.as_ref()
    }

    pub(crate) fn live_defaults(&self, kind: &Name) -> Option<&KindDefaults> {
        self.defaults.get(kind)
    }

    /// Returns the defaults that a worker registered for a kind and version.
    pub(crate) fn registered_defaults(&self, is_task: bool, kind: &Name, version: Option<&Name>) -> Option<&KindDefaults> {
        self.kinds.get(&(is_task, kind.clone(), version.cloned()))?.schemas.defaults.as_deref()
    }
}

struct KindEntry {
    schemas: KindSchemas,
    input: Option<Arc<ValueSchema>>,
    signals: BTreeMap<Name, Arc<ValueSchema>>,
    updates: BTreeMap<Name, Arc<ValueSchema>>,
}

impl KindEntry {
    fn new(schemas: KindSchemas) -> KindEntry {
        let input = schemas.input.clone().map(ValueSchema::new);
        let named = |all: &[NamedSchema]| all.iter().map(|of| (of.name.clone(), ValueSchema::new(of.schema.clone()))).collect();
        let (signals, updates) = (named(&schemas.signals), named(&schemas.updates));
        KindEntry { schemas, input, signals, updates }
    }
}

impl Runtime {
    /// Registers the schemas of kinds. Each entry replaces the stored one of its kind and version, also one without schemas
    /// (KI2). Writes nothing if nothing changes or if a schema is unusable.
    pub async fn register_kinds(&self, namespace: &Namespace, schemas: Vec<KindSchemas>) -> Result<(), RuntimeError> {
        for kind in &schemas {
            if is_definition(&kind.kind) {
                return Err(RuntimeError::KindReserved { kind: kind.kind.clone() });
            }
            check_registered(kind)?;
            check_usable(kind).await?;
        }
        let kept = self.store().list_kinds(namespace.clone()).await?;
        // A worker that does not declare the kind internal may be an older one (KI4).
        let stays_internal = |kind: &KindSchemas| kept.iter().any(|other| other.key() == kind.key() && other.is_internal);
        let is_changed = |kind: &KindSchemas| match kept.iter().find(|other| other.key() == kind.key()) {
            Some(other) => !other.agrees(kind),
            None => kind.has_schemas(),
        };
        let schemas = schemas.into_iter().map(|kind| KindSchemas { namespace: namespace.clone(), ..kind });
        let changed: Vec<KindSchemas> = schemas
            .map(|kind| KindSchemas { is_internal: kind.is_internal || stays_internal(&kind), ..kind })
            .filter(is_changed)
            .collect();
        if !changed.is_empty() {
            self.store().register_kinds(changed).await?;
            self.kinds_changed(namespace);
        }
        Ok(())
    }

    /// Drops the cached kinds of a namespace, after a change.
    pub(crate) fn kinds_changed(&self, namespace: &Namespace) {
        lock(&self.shared.kinds.known).remove(namespace);
    }

    /// Removes the schemas of a kind and its internal flag (KI4). Connected workers register them again when they restart.
    pub async fn forget_kind(&self, namespace: &Namespace, kind: &Name) -> Result<bool, RuntimeError> {
        let mut kept = self.store().list_kinds(namespace.clone()).await?;
        kept.retain(|schemas| schemas.kind == *kind);
        let is_known = !kept.is_empty();
        for schemas in &mut kept {
            *schemas = KindSchemas {
                is_task: schemas.is_task,
                ..KindSchemas::empty(namespace.clone(), kind.clone(), schemas.version.take())
            };
        }
        if is_known {
            self.store().register_kinds(kept).await?;
            self.kinds_changed(namespace);
        }
        Ok(is_known)
    }

    /// Lists the kinds of a namespace that callers may start and that have schemas or workers here, workflows first (KI4).
    pub async fn list_kinds(&self, namespace: &Namespace) -> Result<Vec<KindView>, RuntimeError> {
        let mut found: BTreeMap<(bool, Name), BTreeMap<Option<Name>, KindVersion>> = BTreeMap::new();
        let empty = |version| KindVersion {
            version,
            input: None,
            output: None,
            signals: Vec::new(),
            updates: Vec::new(),
            registered_at: None,
            workers: 0,
        };
        let mut internal = BTreeSet::new();
        for schemas in self.store().list_kinds(namespace.clone()).await?.into_iter().filter(|row| !is_definition(&row.kind)) {
            let KindSchemas { is_task, kind, version, input, output, signals, updates, registered_at, is_internal, .. } = schemas;
            if is_internal {
                internal.insert((is_task, kind.clone()));
            }
            let registered_at = Some(registered_at);
            let entry = KindVersion { input, output, signals, updates, registered_at, ..empty(version.clone()) };
            found.entry((is_task, kind)).or_default().insert(version, entry);
        }
        for worker in self.hub().workers.list().iter().filter(|worker| worker.profile.namespace == *namespace) {
            let workflows =
                worker.profile.knows.iter().flat_map(|(kind, versions)| versions.iter().map(move |v| (false, kind, v)));
            let tasks = worker.profile.task_kinds.iter().map(|kind| (true, kind, &None));
            for (is_task, kind, version) in workflows.chain(tasks) {
                let versions = found.entry((is_task, kind.clone())).or_default();
                versions.entry(version.clone()).or_insert_with(|| empty(version.clone())).workers += 1;
            }
        }
        let view = |((is_task, kind), versions): (_, BTreeMap<_, _>)| KindView {
            kind,
            is_task,
            versions: versions.into_values().collect(),
        };
        let is_offered = |(is_task, kind): &(bool, Name)| {
            let is_internal = (*is_task && is_internal_task(kind)) || internal.contains(&(*is_task, kind.clone()));
            !is_internal
        };
        Ok(found.into_iter().filter(|(key, _)| is_offered(key)).map(view).collect())
    }

    /// Fails for an internal kind (KI4), and for an input that does not fit, unless the run exists: then the store decides
    /// whether the start is a repeat (KI1).
    pub(crate) async fn check_input(&self, run: &RunKey, key: KindKey, input: &Payload) -> Result<(), RuntimeError> {
        match self.check_new_input(&run.namespace, &key, input).await {
            Err(RuntimeError::InputInvalid { .. }) if self.store().read_run(run.clone(), None).await?.is_some() => Ok(()),
            checked => checked,
        }
    }

    /// Fails if callers may not start runs of the kind.
    pub(crate) async fn check_startable(&self, namespace: &Namespace, key: &KindKey) -> Result<(), RuntimeError> {
        let known = self.known_kinds(namespace).await?;
        match known.internal.contains(&(key.0, key.1.clone())) {
            true => Err(RuntimeError::KindInternal { kind: key.1.clone() }),
            false => Ok(()),
        }
    }

    /// Compares the input of a new run with the schema of its kind.
    pub(crate) async fn check_new_input(
        &self,
        namespace: &Namespace,
        key: &KindKey,
        input: &Payload,
    ) -> Result<(), RuntimeError> {
        self.check_startable(namespace, key).await?;
        let known = self.known_kinds(namespace).await?;
        let Some(schema) = known.kinds.get(key).and_then(|entry| entry.input.as_ref()) else { return Ok(()) };
        let invalid = |why| RuntimeError::SchemaInvalid { kind: key.1.clone(), which: "input", why };
        let violations = schema.violations(input).await.map_err(invalid)?;
        match violations.is_empty() {
            true => Ok(()),
            false => Err(RuntimeError::InputInvalid { kind: key.1.clone(), violations }),
        }
    }

    /// Returns the version that a new run is pinned to: the requested one, or the current one of its flow or its workers.
    pub(crate) async fn current_version(
        &self,
        namespace: &Namespace,
        kind: &Name,
        requested: Option<Name>,
    ) -> Result<Option<Name>, StoreError> {
        let version = match requested {
            None => self.current_flow(namespace, kind).await?,
            version => version,
        };
        Ok(version.or_else(|| self.hub().workers.current_version(namespace, kind)))
    }

    /// Returns the version that new runs of a flow are pinned to, if the flow has a definition.
    pub(crate) async fn current_flow(&self, namespace: &Namespace, kind: &Name) -> Result<Option<Name>, StoreError> {
        Ok(self.known_kinds(namespace).await?.flows.get(kind).and_then(|(_, version)| version.clone()))
    }

    /// Returns the stored kinds, at most one fallback old: another process may register some.
    pub(crate) async fn known_kinds(&self, namespace: &Namespace) -> Result<Arc<NamespaceKinds>, StoreError> {
        let now = self.clock().now();
        let known = match self.stale_kinds(namespace) {
            Some(known) if now.since(known.read_at) < self.options().fallback => known,
            stale => self.read_kinds(namespace, stale, now).await?,
        };
        Ok(known)
    }

    /// Returns the kinds that were read last, however long ago.
    pub(crate) fn stale_kinds(&self, namespace: &Namespace) -> Option<Arc<NamespaceKinds>> {
        lock(&self.shared.kinds.known).get(namespace).cloned()
    }

    async fn read_kinds(
        &self,
        namespace: &Namespace,
        stale: Option<Arc<NamespaceKinds>>,
        now: Timestamp,
    ) -> Result<Arc<NamespaceKinds>, StoreError> {
        let mut known = NamespaceKinds { read_at: now, ..NamespaceKinds::default() };
        for schemas in self.store().list_kinds(namespace.clone()).await? {
            if schemas.flow.is_some() {
                note_flow(&mut known.flows, schemas);
                continue;
            }
            if let Some(quota) = schemas.quota {
                known.quota = Some(QuotaSettings { part: None, ..*quota });
                continue;
            }
            if schemas.queue.is_some() {
                continue; // read by the stores
            }
            if let Some(kind) = defaults_kind(&schemas) {
                known.defaults.insert(kind, schemas.defaults.map(|defaults| *defaults).unwrap_or_default());
                continue;
            }
            let key = (schemas.is_task, schemas.kind.clone(), schemas.version.clone());
            if schemas.is_internal {
                known.internal.insert((schemas.is_task, schemas.kind.clone()));
            }
            known.has_messages |= schemas.has_messages();
            // Compiled schemas are reused.
            let same = stale.as_ref().and_then(|stale| stale.kinds.get(&key)).filter(|entry| entry.schemas.agrees(&schemas));
            known.kinds.insert(key, same.cloned().unwrap_or_else(|| Arc::new(KindEntry::new(schemas))));
        }
        let known = Arc::new(known);
        let mut all = lock(&self.shared.kinds.known);
        if all.len() >= NAMESPACES_MAX {
            all.clear();
        }
        all.insert(namespace.clone(), known.clone());
        Ok(known)
    }
}

/// Returns true if no caller starts runs of the kind: standalone tasks, internal runs and definitions have it. Lists, counts and
/// the retention treat such kinds apart.
pub(crate) fn is_reserved(kind: &Name) -> bool {
    kind.as_str().starts_with(TASK_KIND_PREFIX) || InternalRuns::of_kind(kind).is_some() || is_definition(kind)
}

/// Returns true for the names under which definitions of flows, defaults, settings of queues and quotas are stored.
pub(crate) fn is_definition(kind: &Name) -> bool {
    [FLOW_KIND_PREFIX, DEFAULTS_KIND_PREFIX, QUEUE_KIND_PREFIX, QUOTA_KIND].iter().any(|prefix| kind.as_str().starts_with(prefix))
}

/// Notes a stored definition; the newest one is current (DF2).
fn note_flow(flows: &mut BTreeMap<Name, (Timestamp, Option<Name>)>, stored: KindSchemas) {
    let plain = stored.kind.as_str().strip_prefix(FLOW_KIND_PREFIX).and_then(|name| Name::new(name).ok());
    let Some(name) = plain else { return };
    let found = (stored.registered_at, stored.version);
    let newest = flows.entry(name).or_insert_with(|| found.clone());
    *newest = found.max(newest.clone());
}

/// Fails if a schema of the kind cannot be used.
async fn check_usable(schemas: &KindSchemas) -> Result<(), RuntimeError> {
    let own = [("input", &schemas.input), ("output", &schemas.output)];
    let signals = schemas.signals.iter().map(|of| ("signal", &of.schema));
    let updates = schemas.updates.iter().map(|of| ("update", &of.schema));
    for (which, schema) in
        own.into_iter().filter_map(|(which, schema)| Some((which, schema.as_ref()?))).chain(signals).chain(updates)
    {
        let invalid = |why| RuntimeError::SchemaInvalid { kind: schemas.kind.clone(), which, why };
        check::check_usable(schema).await.map_err(invalid)?;
    }
    Ok(())
}
