//! Definitions of flows: documents that are stored as versions of a kind, for the workers that execute flows.
//!
//! Determines which document is current, and how long old ones are stored. A document is executed by a worker that has the
//! plan of its version; this module never executes one.
//!
//! Invariants:
//! - DF1: a document with errors is not stored.
//! - DF2: the definition that was stored last is current, unless it was imported; a start without a version is pinned to it. Of
//!   several requests that expect the same current version, one succeeds.
//! - DF3: a version that open runs are pinned to is deleted only on request (`force`).
//! - DF4: workers neither write nor replace definitions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use onward_core::api::{DeleteFlowRequest, FlowQuery, FlowVersion, PutFlowReply, PutFlowRequest, WorkerInfo};
use onward_core::{FLOW_KIND_PREFIX, KindSchemas, Name, Namespace, Timestamp};
use onward_store::{KindCondition, Registration, StoreError};

use crate::{Runtime, RuntimeError, Violation};

/// Maximum number of versions of a flow, not counting those of open runs; the oldest are deleted.
pub(super) const VERSIONS_MAX: usize = 100;

/// Number of times that a request without `expected` reads the versions again because another one was stored meanwhile.
const ATTEMPTS: u32 = 100;

impl Runtime {
    /// Stores a document as the current version of its flow (DF1, DF2), or only checks it.
    pub async fn put_flow(&self, request: PutFlowRequest) -> Result<PutFlowReply, RuntimeError> {
        let PutFlowRequest { namespace, flow, document, expected, dry_run } = request;
        let (workers, mut all) = (self.workers(&namespace).await?.workers, self.all_flows(&namespace).await?);
        let served = Served { workers, flows: all.iter().map(|version| version.flow.clone()).collect() };
        all.retain(|version| version.flow == flow);
        if current_of(&all).is_none() && served.has_code(&flow, &all) {
            return Err(kind_taken(flow));
        }
        let checked = checked::check(flow.clone(), document, served).await?;
        for _ in 0..ATTEMPTS {
            all.retain(|version| version.flow == flow);
            let current = current_of(&all);
            if expected.as_ref().is_some_and(|expected| current.map_or("", |current| current.version.as_str()) != expected) {
                return Err(RuntimeError::FlowChanged { flow, current: current.map(|current| current.version.clone()) });
            }
            let is_same = current.is_some_and(|current| current.document.as_deref() == Some(checked.document.as_str()));
            if dry_run || is_same {
                return Ok(checked.reply(flow, &all, !dry_run, is_same, self.clock().now()));
            }
            match self.store_flow(&namespace, &flow, &checked, &all).await {
                Err(StoreError::KindChanged { .. }) => all = self.all_flows(&namespace).await?,
                stored => return Ok(checked.reply(flow, &all, true, false, stored?)),
            }
        }
        Err(StoreError::Unavailable { why: format!("flow `{flow}` changes all the time") }.into())
    }

    /// Stores a document if the version that was read as the current one is still current (DF2); returns the time.
    async fn store_flow(
        &self,
        namespace: &Namespace,
        flow: &Name,
        checked: &CheckedFlow,
        stored: &[FlowVersion],
    ) -> Result<Timestamp, StoreError> {
        let mut rows = checked.rows(namespace, flow, false);
        rows.extend(outdated(stored, &checked.version).flat_map(|old| removed(namespace, old)));
        let (kind, version) = (definition_kind(flow), current_of(stored).map(|current| current.version.clone()));
        let condition = KindCondition { namespace: namespace.clone(), kind, version };
        let at = self.store().register_kinds(rows, Registration::If(condition)).await?;
        self.kinds_changed(namespace);
        Ok(at)
    }

    /// Lists the current versions of all flows by name, without documents, or all versions of one: the current one first, then the
    /// newest.
    pub async fn list_flows(&self, query: &FlowQuery) -> Result<Vec<FlowVersion>, RuntimeError> {
        let mut found = self.all_flows(&query.namespace).await?;
        match &query.flow {
            Some(name) => found.retain(|flow| flow.flow == *name),
            None => {
                found.retain(|flow| flow.is_current);
                found.iter_mut().for_each(|flow| flow.document = None);
            }
        }
        Ok(found)
    }

    /// Returns the definitions that workers of flows need, with documents: all current ones, and those of open runs.
    pub async fn needed_flows(&self, namespace: &Namespace) -> Result<Vec<FlowVersion>, RuntimeError> {
        let mut found = self.all_flows(namespace).await?;
        found.retain(|flow| flow.is_current || flow.open_runs > 0);
        Ok(found)
    }

    /// Deletes a flow with all its versions; fails if open runs are pinned to one, unless forced (DF3).
    pub async fn delete_flow(&self, request: DeleteFlowRequest) -> Result<(), RuntimeError> {
        let DeleteFlowRequest { namespace, flow, force } = request;
        let stored = self.list_flows(&FlowQuery { namespace: namespace.clone(), flow: Some(flow.clone()) }).await?;
        if stored.is_empty() {
            return Err(RuntimeError::FlowNotFound { flow });
        }
        let open_runs = stored.iter().map(|version| version.open_runs).sum();
        if open_runs > 0 && !force {
            return Err(RuntimeError::FlowInUse { flow, open_runs });
        }
        self.store()
            .register_kinds(stored.iter().flat_map(|version| removed(&namespace, version)).collect(), Registration::Always)
            .await?;
        self.kinds_changed(&namespace);
        Ok(())
    }

    /// Returns all versions of all flows by name, the current one first, then the newest (DF2).
    pub(super) async fn all_flows(&self, namespace: &Namespace) -> Result<Vec<FlowVersion>, RuntimeError> {
        let stored = self.store().list_kinds(namespace.clone()).await?;
        let mut found: Vec<FlowVersion> = stored.into_iter().filter_map(stored_flow).collect();
        if found.is_empty() {
            return Ok(found);
        }
        let open = self.open_by_version(namespace).await?;
        let newest = |flow: &FlowVersion| Reverse((flow.applied_at, flow.version.clone()));
        found.sort_by_cached_key(|flow| (flow.flow.clone(), flow.is_imported, newest(flow)));
        let mut last = None;
        for flow in &mut found {
            flow.is_current = last.as_ref() != Some(&flow.flow) && !flow.is_imported;
            last = Some(flow.flow.clone());
            flow.open_runs = open.get(&(flow.flow.clone(), flow.version.clone())).copied().unwrap_or_default();
        }
        Ok(found)
    }

    async fn open_by_version(&self, namespace: &Namespace) -> Result<BTreeMap<(Name, Name), u64>, StoreError> {
        let counts = self.store().count_versions(namespace.clone()).await?;
        Ok(counts.into_iter().filter_map(|count| Some(((count.kind, count.version?), count.open))).collect())
    }
}

/// Returns the current one of a flow's versions, which comes first; imported versions are not current.
fn current_of(stored: &[FlowVersion]) -> Option<&FlowVersion> {
    stored.first().filter(|newest| newest.is_current)
}

/// Returns the versions that are deleted when a new one is stored: the oldest without open runs (DF3).
fn outdated<'a>(stored: &'a [FlowVersion], new: &'a Name) -> impl Iterator<Item = &'a FlowVersion> {
    let unused = stored.iter().filter(move |old| old.version != *new && old.open_runs == 0);
    unused.skip(VERSIONS_MAX - 1)
}

/// Reads the definition in a row of the table of kinds, if it is one.
fn stored_flow(row: KindSchemas) -> Option<FlowVersion> {
    let flow = Name::new(row.kind.as_str().strip_prefix(FLOW_KIND_PREFIX)?).ok()?;
    let (version, document, is_imported) = (row.version?, Some(row.flow?), row.is_imported);
    let (applied_at, is_current, open_runs) = (row.registered_at, false, 0);
    Some(FlowVersion { flow, version, document, applied_at, is_current, open_runs, is_imported })
}

/// Builds the row of a definition; without a document it removes the stored one.
fn row(namespace: &Namespace, flow: &Name, version: &Name, document: Option<String>) -> KindSchemas {
    KindSchemas { flow: document, ..KindSchemas::empty(namespace.clone(), definition_kind(flow), Some(version.clone())) }
}

/// Returns the kind of the rows that have the definitions of a flow.
fn definition_kind(flow: &Name) -> Name {
    Name::new(format!("{FLOW_KIND_PREFIX}{flow}")).expect("the name of a stored flow leaves space for the prefix")
}

/// Returns the rows that remove a definition and the schema of its inputs.
pub(super) fn removed(namespace: &Namespace, flow: &FlowVersion) -> [KindSchemas; 2] {
    let schemas = KindSchemas::empty(namespace.clone(), flow.flow.clone(), Some(flow.version.clone()));
    [row(namespace, &flow.flow, &flow.version, None), schemas]
}

/// What exists in a namespace: a document that names something else has warnings.
#[cfg_attr(not(feature = "flows"), allow(dead_code, reason = "without the feature no document is checked"))]
#[derive(Default)]
pub(super) struct Served {
    workers: Vec<WorkerInfo>,
    flows: BTreeSet<Name>,
}

impl Served {
    /// Returns true if a worker has code for the kind that is none of the stored definitions.
    fn has_code(&self, kind: &Name, stored: &[FlowVersion]) -> bool {
        let is_stored = |version: &Name| stored.iter().any(|flow| flow.version == *version);
        let mut known = self.workers.iter().flat_map(|worker| &worker.kinds).filter(|known| known.kind == *kind);
        known.any(|known| !known.version.as_ref().is_some_and(is_stored))
    }
}

/// Returns the error of a flow that would replace the code of a worker.
fn kind_taken(flow: Name) -> RuntimeError {
    let message = format!("a worker serves the kind `{flow}` with code of its own; give the flow another name");
    let violation = Violation { path: "/flow".to_owned(), keyword: "kind_taken".to_owned(), message };
    RuntimeError::FlowInvalid { flow, violations: vec![violation] }
}

/// A document without errors.
pub(super) struct CheckedFlow {
    document: String,
    pub version: Name,
    /// The kinds of the runs that it starts.
    pub called: BTreeSet<Name>,
    #[cfg_attr(not(feature = "flows"), allow(dead_code, reason = "without the feature no document is checked"))]
    input: Option<onward_core::Payload>,
    warnings: Vec<onward_core::api::FlowWarning>,
}

impl CheckedFlow {
    /// Returns the reply for a document beside the versions that were stored before.
    fn reply(self, flow: Name, before: &[FlowVersion], is_current: bool, is_same: bool, at: Timestamp) -> PutFlowReply {
        let current = current_of(before);
        let is_changed = current.is_none_or(|current| current.version != self.version);
        let open_runs = before.iter().find(|old| old.version == self.version).map_or(0, |old| old.open_runs);
        let applied_at = current.filter(|_| is_same).map_or(at, |current| current.applied_at);
        let (version, document) = (self.version, Some(self.document));
        let flow = FlowVersion { flow, version, document, applied_at, is_current, open_runs, is_imported: false };
        PutFlowReply { flow, is_changed, warnings: self.warnings }
    }

    /// Returns the row of the definition, and that of the input's schema, so that a start is checked from now on.
    pub fn rows(&self, namespace: &Namespace, flow: &Name, is_imported: bool) -> Vec<KindSchemas> {
        let schemas = KindSchemas::empty(namespace.clone(), flow.clone(), Some(self.version.clone()));
        vec![
            KindSchemas { is_imported, ..row(namespace, flow, &self.version, Some(self.document.clone())) },
            KindSchemas { input: self.input.clone(), ..schemas },
        ]
    }
}

#[cfg(not(feature = "flows"))]
pub(super) mod checked {
    use super::*;

    pub async fn check(_: Name, _: String, _: Served) -> Result<CheckedFlow, RuntimeError> {
        Err(RuntimeError::RequestInvalid {
            why: "this program stores no flows: it was built without the feature `flows`".to_owned(),
        })
    }

    pub fn called(_: &Name, _: &str) -> BTreeSet<Name> {
        BTreeSet::new()
    }
}

#[cfg(feature = "flows")]
pub(super) mod checked {
    use onward_core::api::FlowWarning;
    use onward_core::task::MODEL_CALL;
    use onward_core::{NAME_BYTES_MAX, Payload};
    use onward_flow::document::{self, Flow, Known, Problem, Severity};

    use super::*;

    /// Checks a document in a thread of its own: a large one takes a while.
    pub async fn check(flow: Name, document: String, served: Served) -> Result<CheckedFlow, RuntimeError> {
        if flow.as_str().len() + FLOW_KIND_PREFIX.len() > NAME_BYTES_MAX {
            let why = format!("the name of a flow has at most {} bytes", NAME_BYTES_MAX - FLOW_KIND_PREFIX.len());
            return Err(RuntimeError::RequestInvalid { why });
        }
        let checked = tokio::task::spawn_blocking(move || check_now(&flow, document, &served.known(&flow))).await;
        checked.unwrap_or_else(|_| Err(RuntimeError::RequestInvalid { why: "the document cannot be checked".to_owned() }))
    }

    fn check_now(flow: &Name, document: String, known: &Known) -> Result<CheckedFlow, RuntimeError> {
        let parsed = document::parse(&document, flow.as_str());
        let problems = document::check(&parsed, known);
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        let mut violations: Vec<Violation> = problems.iter().filter(is_error).map(violation).collect();
        let named = parsed.flow.as_ref().filter(|_| violations.is_empty());
        if let Some(named) = named.filter(|named| named.flow != flow.as_str()) {
            let message = format!("the document defines flow `{}`", named.flow);
            violations.push(Violation { path: "/flow".to_owned(), keyword: "name".to_owned(), message });
        }
        let Some(parsed) = named.filter(|_| violations.is_empty()) else {
            return Err(RuntimeError::FlowInvalid { flow: flow.clone(), violations });
        };
        let input = Payload::from_json_text(document::input_schema(parsed).to_string());
        let version = Name::new(parsed.version()).expect("hex digits are a name");
        let (warnings, called) = (problems.iter().map(warning).collect(), called_by(parsed));
        Ok(CheckedFlow { document, version, called, input: Some(input), warnings })
    }

    /// Returns the kinds that a stored document calls.
    pub fn called(flow: &Name, document: &str) -> BTreeSet<Name> {
        document::parse(document, flow.as_str()).flow.as_ref().map(called_by).unwrap_or_default()
    }

    fn called_by(flow: &Flow) -> BTreeSet<Name> {
        flow.called_kinds().into_iter().filter_map(|kind| Name::new(kind).ok()).collect()
    }

    impl Served {
        /// Returns the names that documents may use. Before the first worker connects, all may be served later.
        fn known(&self, own: &Name) -> Known {
            if self.workers.is_empty() {
                return Known::default();
            }
            let tasks = || self.workers.iter().flat_map(|worker| &worker.task_kinds).map(Name::as_str);
            let kinds = self.workers.iter().flat_map(|worker| &worker.kinds).map(|known| &known.kind);
            let kinds: Vec<String> = kinds.chain(&self.flows).chain([own]).map(Name::to_string).collect();
            Known {
                tasks: Some(tasks().map(str::to_owned).collect()),
                models: Some(tasks().filter_map(|kind| kind.strip_prefix(MODEL_CALL)).map(str::to_owned).collect()),
                agents: Some(kinds.clone()),
                kinds: Some(kinds),
            }
        }
    }

    fn violation(problem: &Problem) -> Violation {
        let hint = problem.hint.iter().map(|hint| format!("; {hint}")).collect::<String>();
        let message = format!("line {}, column {}: {}{hint}", problem.line, problem.column, problem.message);
        Violation { path: problem.path.clone(), keyword: problem.code.to_string(), message }
    }

    fn warning(problem: &Problem) -> FlowWarning {
        let (line, column) = (problem.line as u32, problem.column as u32);
        FlowWarning { line, column, code: problem.code.to_string(), message: problem.message.clone() }
    }
}
