//! Finds the problems of a document beyond its form: names, ways, texts, and what does not exist.
//!
//! Works on what could be read, so that errors of form hide no others (FY2).

mod bits;
mod cycles;
mod names;
mod paths;
mod steps;
mod texts;
mod usage;

use super::parse::Parsed;
use super::problem::{Problem, Problems, Severity};
use super::source::Source;
use super::yaml::{Kind, Place};
use super::{END, Flow};
use crate::machine::{Plan, PlanProblem};
use steps::Steps;

/// Number of steps from which a flow should be several.
const STEPS_MANY: usize = 1_000;
/// Maximum number of steps.
const STEPS_MAX: usize = 10_000;

/// The names that exist where the flow will run. Without a list, names of its kind are not checked.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The kinds of tasks that workers serve.
    pub tasks: Option<Vec<String>>,
    /// The kinds of runs that workers serve, flows included.
    pub kinds: Option<Vec<String>>,
    pub models: Option<Vec<String>>,
    pub agents: Option<Vec<String>>,
}

/// Returns all problems of a document, those of [`Parsed::problems`] included, in the order of the document.
pub fn check(parsed: &Parsed, known: &Known) -> Vec<Problem> {
    let mut problems = Problems::after(&parsed.file, parsed.problems.clone());
    if let (Some(flow), Some(root), Some(source)) = (&parsed.draft, &parsed.positions.root, &parsed.positions.source) {
        let root = Place::root(root);
        let mut checker = Checker { flow, root, source, problems: &mut problems, known, has_lost_way: false };
        checker.flow(parsed);
    }
    if let Some(flow) = parsed.flow.as_ref().filter(|_| !problems.has_errors()) {
        plan(parsed, flow, &mut problems);
    }
    problems.finish()
}

/// Lists what keeps a flow without other errors from being prepared for runs.
fn plan(parsed: &Parsed, flow: &Flow, problems: &mut Problems) {
    for PlanProblem { path, message } in Plan::new(flow).err().into_iter().flatten() {
        let (at, step) = parsed.positions.nearest(&path);
        problems.add(Problem::new(Severity::Error, "plan", at, &path, message).of_step(step.unwrap_or_default()));
    }
}

/// What the checks share.
struct Checker<'a, 'p> {
    flow: &'a Flow,
    root: Place<'a>,
    source: &'a Source,
    problems: &'p mut Problems,
    known: &'p Known,
    /// Whether a way leads to a step that was not found: it is not known then which steps are reached.
    has_lost_way: bool,
}

impl<'a> Checker<'a, '_> {
    fn flow(&mut self, parsed: &Parsed) {
        let steps = Steps::new(self.flow, &self.root, &parsed.unclear);
        let count = steps.all.len();
        let place = self.root.field_or_self("steps");
        if count > STEPS_MAX {
            let message = format!("the flow has {count} steps, more than {STEPS_MAX}");
            self.problems
                .add(Problem::error("too_many_steps", &place, message).hint("move steps into flows of their own, with `child`"));
            return;
        }
        if count > STEPS_MANY {
            let message = format!("the flow has {count} steps; more than {STEPS_MANY} are hard to follow");
            self.problems
                .add(Problem::warning("many_steps", &place, message).hint("move steps into flows of their own, with `child`"));
        }
        if count == 0 && matches!(place.node.kind, Kind::List(_)) {
            self.problems.add(Problem::warning("no_steps", &place, "the flow has no steps"));
        }
        self.names(&steps);
        let ways = self.ways(&steps);
        let reads: Vec<Vec<texts::Read>> = steps.all.iter().map(|listed| self.texts(listed)).collect();
        let last = self.output_texts();
        for listed in &steps.all {
            self.usage(listed);
        }
        self.cycles(&steps, &ways);
        self.paths(&steps, &ways, &reads, &last);
    }
}
