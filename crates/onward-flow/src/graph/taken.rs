//! How far a run of a flow is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Edge, EdgeKind, Graph, NodeKind};
use crate::document::END;
use crate::machine::{Progress, ProgressState};

/// The progress of a run: what is drawn over the graph of its flow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taken {
    /// The last progress of each step.
    pub steps: BTreeMap<String, Progress>,
    /// The ways that were taken: from a step to the one that came next, or `end`.
    pub edges: BTreeSet<(String, String)>,
    /// Whether the run has completed.
    pub is_completed: bool,
}

impl Taken {
    /// Takes the progress of a step. Ways that a loop took before are kept.
    pub fn add(&mut self, progress: Progress) {
        for next in &progress.next {
            self.edges.insert((progress.step.clone(), next.clone()));
        }
        self.steps.insert(progress.step.clone(), progress);
    }

    /// Returns whether the run has taken an edge.
    pub(super) fn has_taken(&self, graph: &Graph, edge: &Edge) -> bool {
        let (from, to) = (&graph.nodes[edge.from], &graph.nodes[edge.to]);
        if from.kind == NodeKind::Start {
            return self.steps.contains_key(&to.name) || (to.kind == NodeKind::End && self.is_completed);
        }
        let Some(step) = self.steps.get(&from.name) else { return false };
        let is_over = matches!(step.state, ProgressState::Done | ProgressState::Skipped);
        let target = if to.kind == NodeKind::End { END } else { &to.name };
        match edge.kind {
            EdgeKind::Branch => is_over && self.steps.contains_key(&to.name),
            EdgeKind::Join => is_over && (step.next.is_empty() || step.next.iter().any(|next| next == target || next == END)),
            EdgeKind::Skip => step.state == ProgressState::Skipped,
            EdgeKind::Catch => step.state != ProgressState::Done && self.went(&from.name, target),
            EdgeKind::Next => self.went(&from.name, target),
        }
    }

    fn went(&self, from: &str, to: &str) -> bool {
        self.edges.contains(&(from.to_owned(), to.to_owned()))
    }
}
