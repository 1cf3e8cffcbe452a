//! Definitions of flows that come along with runs: what an export has, and what an import stores.
//!
//! A run of a flow is pinned to the definition that it began with, so it continues in another store only with this definition. The
//! flows that its steps start come along too, because the run may start them later.
//!
//! Invariants:
//! - DF5: an import makes no definition current, and neither replaces nor removes one that is or was current.
//! - DF6: an import with a definition that has errors, another version than it claims, or that no run of the import needs, writes
//!   nothing.
//! - DF7: a run that another run starts without a version is pinned to the current definition of its flow. If the flow has only
//!   imported definitions, it is pinned to the one that was imported last.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onward_core::api::{FlowQuery, FlowVersion};
use onward_core::transfer::{ExportedFlow, ExportedRun, FlowRef};
use onward_core::{Name, Namespace, Record, RunKey};
use onward_store::Registration;

use super::flows::{CheckedFlow, Served, VERSIONS_MAX, checked, removed};
use crate::{Client, Runtime, RuntimeError, Violation};

/// The definitions that runs of an export need; each version is searched once.
#[derive(Default)]
pub(crate) struct ExportedFlows {
    found: BTreeMap<(Namespace, FlowRef), Vec<Arc<ExportedFlow>>>,
}

impl ExportedFlows {
    /// Returns the definitions that a run is pinned to, and those that they call, by name.
    pub async fn of(
        &mut self,
        client: &dyn Client,
        key: &RunKey,
        logs: &[Vec<Record>],
    ) -> Result<Vec<Arc<ExportedFlow>>, RuntimeError> {
        let mut all = BTreeMap::new();
        for name in pinned(logs) {
            let place = (key.namespace.clone(), name.clone());
            if !self.found.contains_key(&place) {
                self.found.insert(place.clone(), with_called(client, &key.namespace, name).await?);
            }
            all.extend(self.found[&place].iter().map(|flow| (flow.name.clone(), flow.clone())));
        }
        Ok(all.into_values().collect())
    }
}

/// Returns the kinds with versions that the generations of a run are pinned to.
fn pinned(logs: &[Vec<Record>]) -> BTreeSet<FlowRef> {
    let started = logs.iter().filter_map(|log| log.first()?.started());
    started.filter_map(|started| Some(FlowRef { flow: started.kind.clone(), version: started.version.clone()? })).collect()
}

/// Returns a stored definition, and those that a child of it would be pinned to (DF7). Empty if the version is code.
async fn with_called(client: &dyn Client, namespace: &Namespace, name: FlowRef) -> Result<Vec<Arc<ExportedFlow>>, RuntimeError> {
    let (mut found, mut wanted) = (BTreeMap::new(), vec![(name.flow, Some(name.version))]);
    while let Some((flow, version)) = wanted.pop() {
        let versions = client.list_flows(FlowQuery { namespace: namespace.clone(), flow: Some(flow) }).await?.flows;
        let is_wanted = |of: &FlowVersion| version.as_ref().is_none_or(|version| of.version == *version);
        let Some(FlowVersion { flow, version, document: Some(document), .. }) = versions.into_iter().find(is_wanted) else {
            continue;
        };
        let name = FlowRef { flow, version };
        if found.contains_key(&name) {
            continue;
        }
        wanted.extend(checked::called(&name.flow, &document).into_iter().map(|called| (called, None)));
        found.insert(name.clone(), Arc::new(ExportedFlow { name, document }));
    }
    Ok(found.into_values().collect())
}

/// The definitions of an import that are not stored yet. Storing them needs the rights that defining a flow needs.
#[derive(Default)]
pub struct MissingFlows {
    flows: Vec<(Namespace, Name, CheckedFlow)>,
    /// The definitions that each run needs.
    needs: BTreeMap<RunKey, Vec<FlowRef>>,
}

impl MissingFlows {
    /// Returns the flows whose definitions the import would store.
    pub fn flows(&self) -> impl Iterator<Item = &Name> {
        self.flows.iter().map(|(_, flow, _)| flow)
    }
}

/// Checks the definitions of an import, without the store (DF6).
pub async fn check_flows(runs: &[ExportedRun]) -> Result<(), RuntimeError> {
    checked_flows(runs).await.map(drop)
}

type CheckedFlows = BTreeMap<(Namespace, FlowRef), CheckedFlow>;

async fn checked_flows(runs: &[ExportedRun]) -> Result<CheckedFlows, RuntimeError> {
    let mut found = CheckedFlows::new();
    for run in runs {
        for flow in &run.flows {
            let place = (run.key.namespace.clone(), flow.name.clone());
            if let Entry::Vacant(vacant) = found.entry(place) {
                vacant.insert(check(flow).await?);
            }
        }
        if let Some(extra) = not_needed(run, &found) {
            let message = format!("run {} neither is pinned to version {} nor calls it", run.key, extra.version);
            return Err(refused(&extra.flow, "not_needed", message));
        }
    }
    Ok(found)
}

async fn check(flow: &ExportedFlow) -> Result<CheckedFlow, RuntimeError> {
    let FlowRef { flow: name, version } = &flow.name;
    let checked = checked::check(name.clone(), flow.document.clone(), Served::default()).await?;
    if checked.version != *version {
        let message = format!("the document has version {}, not {version}", checked.version);
        return Err(refused(name, "version", message));
    }
    Ok(checked)
}

fn refused(flow: &Name, keyword: &str, message: String) -> RuntimeError {
    let violation = Violation { path: String::new(), keyword: keyword.to_owned(), message };
    RuntimeError::FlowInvalid { flow: flow.clone(), violations: vec![violation] }
}

/// Returns a definition that comes with a run and that neither the run nor its other definitions lead to.
fn not_needed<'a>(run: &'a ExportedRun, checked: &CheckedFlows) -> Option<&'a FlowRef> {
    let pinned = pinned(&run.logs);
    let (mut left, mut reached): (Vec<&FlowRef>, Vec<&FlowRef>) =
        run.flows.iter().map(|flow| &flow.name).partition(|name| !pinned.contains(name));
    while let Some(name) = reached.pop() {
        let Some(flow) = checked.get(&(run.key.namespace.clone(), name.clone())) else { continue };
        let (called, others) = left.into_iter().partition(|name| flow.called.contains(&name.flow));
        reached.extend::<Vec<_>>(called);
        left = others;
    }
    left.pop()
}

impl Runtime {
    /// Checks the definitions of an import and returns those that it would store (DF6).
    ///
    /// # Errors
    /// `flow_invalid`.
    pub async fn missing_flows(&self, runs: &[ExportedRun]) -> Result<MissingFlows, RuntimeError> {
        let (checked, mut missing) = (checked_flows(runs).await?, MissingFlows::default());
        if checked.is_empty() {
            return Ok(missing);
        }
        let pinned: BTreeSet<_> =
            runs.iter().flat_map(|run| pinned(&run.logs).into_iter().map(|name| (&run.key.namespace, name))).collect();
        let mut stored = BTreeMap::new();
        for ((namespace, name), flow) in checked {
            if !stored.contains_key(&namespace) {
                stored.insert(namespace.clone(), self.all_flows(&namespace).await?);
            }
            let mut own = stored[&namespace].iter().filter(|stored| stored.flow == name.flow);
            // A child would be pinned to the current definition of this store.
            let is_only_called = !pinned.contains(&(&namespace, name.clone()));
            if !own.any(|stored| stored.version == name.version || is_only_called && stored.is_current) {
                missing.flows.push((namespace, name.flow, flow));
            }
        }
        let needs = |run: &ExportedRun| (run.key.clone(), run.flows.iter().map(|flow| flow.name.clone()).collect());
        missing.needs = runs.iter().map(needs).collect();
        Ok(missing)
    }

    /// Stores the definitions that imported runs need and that are still missing (DF5). Returns their names.
    pub(crate) async fn store_missing(&self, missing: MissingFlows, taken: &[RunKey]) -> Result<Vec<FlowRef>, RuntimeError> {
        let MissingFlows { flows, needs } = missing;
        let needed: BTreeSet<(&Namespace, &FlowRef)> =
            taken.iter().flat_map(|key| needs.get(key).into_iter().flatten().map(|name| (&key.namespace, name))).collect();
        let (mut names, mut by_namespace) = (Vec::new(), BTreeMap::<Namespace, Vec<(FlowRef, CheckedFlow)>>::new());
        for (namespace, flow, checked) in flows {
            let name = FlowRef { flow, version: checked.version.clone() };
            if needed.contains(&(&namespace, &name)) {
                by_namespace.entry(namespace).or_default().push((name, checked));
            }
        }
        for (namespace, flows) in by_namespace {
            let stored = self.all_flows(&namespace).await?;
            let mut rows = Vec::new();
            for (name, checked) in flows {
                let mut own = stored.iter().filter(|stored| stored.flow == name.flow);
                if own.any(|stored| stored.version == name.version) {
                    continue; // stored since it was checked
                }
                rows.extend(checked.rows(&namespace, &name.flow, true));
                names.push(name);
            }
            let of_flows: BTreeSet<&Name> = names.iter().map(|name| &name.flow).collect();
            let old = of_flows.into_iter().flat_map(|flow| outdated(&stored, flow));
            rows.extend(old.flat_map(|old| removed(&namespace, old)));
            self.store().register_kinds(rows, Registration::Always).await?;
            self.kinds_changed(&namespace);
        }
        Ok(names)
    }
}

/// Returns the imported versions of a flow that are deleted when more come: the oldest without open runs (DF3, DF5).
fn outdated<'a>(stored: &'a [FlowVersion], flow: &Name) -> impl Iterator<Item = &'a FlowVersion> {
    let unused = stored.iter().filter(move |old| old.is_imported && old.open_runs == 0 && old.flow == *flow);
    unused.skip(VERSIONS_MAX - 1)
}
