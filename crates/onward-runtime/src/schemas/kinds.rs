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
//! - KI3 (S35): no schema and no input can make a check run forever, exhaust the stack, or load anything.

#[cfg(feature = "schema")]
mod budget;
#[cfg(feature = "schema")]
mod compiled;
#[cfg(feature = "schema")]
mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use onward_core::{KindSchemas, Name, Namespace, Payload, RunKey, Timestamp, is_internal_task};
use onward_store::StoreError;

use crate::{Runtime, RuntimeError};
#[cfg(feature = "schema")]
use compiled::Compiled;
use onward_store::sync::lock;

/// Number of namespaces in the cache; beyond it, the cache is cleared.
const NAMESPACES_MAX: usize = 10_000;

/// One violation of a schema by an input.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Position as a JSON pointer; empty for the whole input.
    pub path: String,
    /// The keyword of the schema that is violated.
    pub keyword: String,
    /// The problem, without the value.
    pub message: String,
}

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
    /// When its schemas were registered, if it has any.
    pub registered_at: Option<Timestamp>,
    /// Number of workers of this runtime that have code for it.
    pub workers: usize,
}

type KindKey = (bool, Name, Option<Name>);

/// Cache of kinds, by namespace.
#[derive(Default)]
pub(crate) struct Kinds {
    known: Mutex<BTreeMap<Namespace, Arc<NamespaceKinds>>>,
}

struct NamespaceKinds {
    read_at: Timestamp,
    kinds: BTreeMap<KindKey, Arc<KindEntry>>,
    /// Kinds of tasks and of workflows with an internal version.
    internal: BTreeSet<(bool, Name)>,
}

struct KindEntry {
    schemas: KindSchemas,
    #[cfg(feature = "schema")]
    compiled: OnceLock<Result<Compiled, String>>,
    #[cfg(not(feature = "schema"))]
    #[allow(dead_code, reason = "without the feature nothing is checked")]
    compiled: OnceLock<()>,
}

impl KindEntry {
    fn new(schemas: KindSchemas) -> KindEntry {
        KindEntry { schemas, compiled: OnceLock::new() }
    }
}

impl Runtime {
    /// Registers the schemas of kinds. Each entry replaces the stored one of its kind and version, also one without schemas
    /// (KI2). Writes nothing if nothing changes or if a schema is unusable.
    pub async fn register_kinds(&self, namespace: &Namespace, schemas: Vec<KindSchemas>) -> Result<(), RuntimeError> {
        for kind in &schemas {
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
            lock(&self.shared.kinds.known).remove(namespace);
        }
        Ok(())
    }

    /// Removes the schemas of a kind and its internal flag (KI4). Connected workers register them again when they restart.
    pub async fn forget_kind(&self, namespace: &Namespace, kind: &Name) -> Result<bool, RuntimeError> {
        let mut kept = self.store().list_kinds(namespace.clone()).await?;
        kept.retain(|schemas| schemas.kind == *kind);
        let is_known = !kept.is_empty();
        for schemas in &mut kept {
            (schemas.input, schemas.output, schemas.is_internal) = (None, None, false);
        }
        if is_known {
            self.store().register_kinds(kept).await?;
            lock(&self.shared.kinds.known).remove(namespace);
        }
        Ok(is_known)
    }

    /// Lists the kinds of a namespace that callers may start and that have schemas or workers here, workflows first (KI4).
    pub async fn list_kinds(&self, namespace: &Namespace) -> Result<Vec<KindView>, RuntimeError> {
        let mut found: BTreeMap<(bool, Name), BTreeMap<Option<Name>, KindVersion>> = BTreeMap::new();
        let empty = |version| KindVersion { version, input: None, output: None, registered_at: None, workers: 0 };
        let mut internal = BTreeSet::new();
        for schemas in self.store().list_kinds(namespace.clone()).await? {
            let KindSchemas { is_task, kind, version, input, output, registered_at, is_internal, .. } = schemas;
            if is_internal {
                internal.insert((is_task, kind.clone()));
            }
            let entry = KindVersion { input, output, registered_at: Some(registered_at), ..empty(version.clone()) };
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
        let known = self.known_kinds(&run.namespace).await?;
        if known.internal.contains(&(key.0, key.1.clone())) {
            return Err(RuntimeError::KindInternal { kind: key.1 });
        }
        let Some(entry) = known.kinds.get(&key).filter(|_| cfg!(feature = "schema")) else { return Ok(()) };
        let violations = entry.violations(input).await?;
        if violations.is_empty() || self.store().read_run(run.clone(), None).await?.is_some() {
            return Ok(());
        }
        Err(RuntimeError::InputInvalid { kind: key.1, violations })
    }

    /// Returns the stored kinds, at most one fallback old: another process may register some.
    async fn known_kinds(&self, namespace: &Namespace) -> Result<Arc<NamespaceKinds>, StoreError> {
        let now = self.clock().now();
        let known = lock(&self.shared.kinds.known).get(namespace).cloned();
        let known = match known {
            Some(known) if now.since(known.read_at) < self.options().fallback => known,
            stale => self.read_kinds(namespace, stale, now).await?,
        };
        Ok(known)
    }

    async fn read_kinds(
        &self,
        namespace: &Namespace,
        stale: Option<Arc<NamespaceKinds>>,
        now: Timestamp,
    ) -> Result<Arc<NamespaceKinds>, StoreError> {
        let (mut kinds, mut internal) = (BTreeMap::new(), BTreeSet::new());
        for schemas in self.store().list_kinds(namespace.clone()).await? {
            let key = (schemas.is_task, schemas.kind.clone(), schemas.version.clone());
            if schemas.is_internal {
                internal.insert((schemas.is_task, schemas.kind.clone()));
            }
            // Compiled schemas are reused.
            let same = stale.as_ref().and_then(|stale| stale.kinds.get(&key)).filter(|entry| entry.schemas.agrees(&schemas));
            kinds.insert(key, same.cloned().unwrap_or_else(|| Arc::new(KindEntry::new(schemas))));
        }
        let known = Arc::new(NamespaceKinds { read_at: now, kinds, internal });
        let mut all = lock(&self.shared.kinds.known);
        if all.len() >= NAMESPACES_MAX {
            all.clear();
        }
        all.insert(namespace.clone(), known.clone());
        Ok(known)
    }
}

#[cfg(not(feature = "schema"))]
async fn check_usable(_: &KindSchemas) -> Result<(), RuntimeError> {
    Ok(())
}

#[cfg(not(feature = "schema"))]
impl KindEntry {
    async fn violations(self: &Arc<KindEntry>, _: &Payload) -> Result<Vec<Violation>, RuntimeError> {
        Ok(Vec::new())
    }
}

#[cfg(feature = "schema")]
pub(crate) use checking::check_usable;

/// Compiles and checks; long work runs on the blocking pool.
#[cfg(feature = "schema")]
mod checking {
    use std::sync::Arc;

    use onward_core::{KindSchemas, Payload};
    use tokio::sync::Semaphore;

    use super::compiled::{Checked, Compiled};
    use super::{KindEntry, Violation, budget};
    use crate::RuntimeError;

    /// Bound on concurrent long checks, so that they do not take all cores.
    static LONG: Semaphore = Semaphore::const_new(2);

    async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let _permit = LONG.acquire().await; // never closed
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Fails if a schema cannot be used.
    pub async fn check_usable(schemas: &KindSchemas) -> Result<(), RuntimeError> {
        for (which, schema) in [("input", &schemas.input), ("output", &schemas.output)] {
            let Some(schema) = schema.clone() else { continue };
            let compiled = apart(move || Compiled::new(&schema).map(drop)).await;
            compiled.map_err(|why| RuntimeError::SchemaInvalid { kind: schemas.kind.clone(), which, why })?;
        }
        Ok(())
    }

    impl KindEntry {
        pub(crate) async fn violations(self: &Arc<KindEntry>, input: &Payload) -> Result<Vec<Violation>, RuntimeError> {
            let Some(schema) = &self.schemas.input else { return Ok(Vec::new()) };
            // A payload that is not JSON may be encrypted, so it is not checked.
            if !input.is_json() {
                return Ok(Vec::new());
            }
            if let Some(Ok(compiled)) = self.compiled.get()
                && input.data().len() <= budget::SMALL_BYTES_MAX
                && let Checked::Done(violations) = compiled.check(input, budget::SMALL)
            {
                return Ok(violations);
            }
            let (entry, schema, input) = (self.clone(), schema.clone(), input.clone());
            let checked = apart(move || {
                let compiled = entry.compiled.get_or_init(|| Compiled::new(&schema)).as_ref()?;
                Ok::<_, &String>(compiled.check(&input, budget::of(input.data().len()))).map_err(String::clone)
            });
            match checked.await {
                Ok(Checked::Done(violations)) => Ok(violations),
                Ok(Checked::TooLong) => Ok(vec![Violation {
                    path: String::new(),
                    keyword: String::new(),
                    message: "the check against the schema takes too long".to_owned(),
                }]),
                Err(why) => Err(RuntimeError::SchemaInvalid { kind: self.schemas.kind.clone(), which: "input", why }),
            }
        }
    }
}
