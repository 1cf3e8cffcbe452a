//! Definitions of flows in an export.
//!
//! A run of a flow names the definition that it began with by its version. The definition is a line of its own, once in a file and
//! before the first run that names it.
//!
//! Invariant U8: a run of an export names only definitions that stand before it, and each definition is named by a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ExportedRun;
use crate::Name;

/// The name of a definition: a flow and its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRef {
    pub flow: Name,
    pub version: Name,
}

/// A definition that runs of an export need. Whether the document has this version is checked by the import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportedFlow {
    #[serde(flatten)]
    pub name: FlowRef,
    pub document: String,
}

/// Writes the runs of an export.
#[derive(Debug, Default)]
pub struct ExportWriter {
    written: BTreeSet<FlowRef>,
    runs: u64,
}

impl ExportWriter {
    /// Returns the lines of a run, after those of its definitions that are not written yet (U8).
    pub fn run(&mut self, run: &ExportedRun) -> String {
        self.runs += 1;
        let new = run.flows.iter().filter(|flow| self.written.insert(flow.name.clone()));
        new.map(|flow| super::line(&**flow)).collect::<String>() + &run.to_lines()
    }

    /// Returns the last line; `next` is the start of the next page, if any.
    pub fn footer(&self, next: Option<&str>) -> String {
        super::footer(self.runs, next)
    }
}

/// The definitions that an import has read.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// With true for those that a run has named.
    read: BTreeMap<FlowRef, (Arc<ExportedFlow>, bool)>,
}

impl Definitions {
    /// Adds a definition. Fails if it was there before.
    pub fn add(&mut self, flow: ExportedFlow) -> Result<(), String> {
        let name = flow.name.clone();
        match self.read.insert(name.clone(), (Arc::new(flow), false)) {
            Some(_) => Err(format!("version {} of flow `{}` is defined twice", name.version, name.flow)),
            None => Ok(()),
        }
    }

    /// Returns the definitions that a run names. Fails if one is missing (U8).
    pub fn named(&mut self, names: &[FlowRef]) -> Result<Vec<Arc<ExportedFlow>>, String> {
        let find = |name: &FlowRef| match self.read.get_mut(name) {
            Some((flow, is_named)) => {
                *is_named = true;
                Ok(flow.clone())
            }
            None => Err(format!("version {} of flow `{}` is not defined before the run that needs it", name.version, name.flow)),
        };
        names.iter().map(find).collect()
    }

    /// Fails if no run names one of the definitions (U8).
    pub fn check_named(&self) -> Result<(), String> {
        match self.read.iter().find(|(_, (_, is_named))| !is_named) {
            Some((name, _)) => Err(format!("no run needs version {} of flow `{}`", name.version, name.flow)),
            None => Ok(()),
        }
    }
}
