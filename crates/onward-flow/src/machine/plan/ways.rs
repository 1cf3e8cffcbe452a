//! The ways between the steps of a list: `next`, `catch`, and the join to which a fork goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::compile::{PlannedList, Problems};
use super::kinds::{Form, KindPlan};
use super::{Place, StepPlan};
use crate::document::{END, Edge, Next, OneOrMany};
use crate::expression::Expression;

/// Where a path goes after a step.
#[derive(Debug)]
pub enum Ways {
    Follow,
    /// The first edge that matches, or the step that follows.
    First(Vec<EdgePlan>),
    /// All edges that match start branches, and the path goes to the join, or ends without one.
    All {
        edges: Vec<EdgePlan>,
        join: Place,
    },
}

#[derive(Debug)]
pub struct EdgePlan {
    pub when: Option<Expression>,
    pub goto: Place,
    /// The name of the branch.
    pub branch: String,
    pub may_be_joined: bool,
}

#[derive(Debug)]
pub struct CatchPlan {
    pub on: Vec<String>,
    pub goto: Place,
    pub store: Option<String>,
}

/// How many branches deep the search for the join of a fork goes.
const DEPTH_MAX: usize = 64;

/// The places that all searches for joins may visit, which bounds the time that a hostile document takes.
const VISITS_MAX: usize = 2_000_000;

/// The steps of a list by name.
pub struct Places<'a> {
    first: usize,
    len: usize,
    numbers: BTreeMap<&'a str, usize>,
    /// Whether a join without names joins any branch.
    joins_any: bool,
    joined: BTreeSet<&'a str>,
}

impl<'a> Places<'a> {
    pub fn new(list: &'a PlannedList<'a>, problems: &mut Problems) -> Places<'a> {
        let mut numbers = BTreeMap::new();
        for (at, step) in list.steps.iter().enumerate() {
            if numbers.insert(step.name.as_str(), list.first + at).is_some() {
                problems.add(&format!("{}[{at}].name", list.path), format!("another step of the list is named `{}`", step.name));
            }
        }
        let joins = list.steps.iter().filter_map(|step| step.join.as_ref());
        let joins_any = joins.clone().any(|join| join.branches.is_empty());
        let joined = joins.flat_map(|join| &join.branches).map(String::as_str).collect();
        Places { first: list.first, len: list.steps.len(), numbers, joins_any, joined }
    }

    /// Returns the place after the step at this place of the list.
    pub fn follow(&self, at: usize) -> Place {
        if at + 1 < self.len { Place::Step(self.first + at + 1) } else { Place::End }
    }

    pub fn find(&self, name: &str, path: &str, problems: &mut Problems) -> Place {
        match self.numbers.get(name) {
            _ if name == END => Place::End,
            Some(step) => Place::Step(*step),
            None => {
                problems.add(path, format!("no step of the list is named `{name}`"));
                Place::End
            }
        }
    }

    /// Returns whether a join of the list can join a branch of this name.
    pub fn may_join(&self, branch: &str) -> bool {
        self.joins_any || self.joined.contains(branch)
    }
}

pub fn compiled(form: &Form<'_>, problems: &mut Problems) -> Ways {
    let path = format!("{}.next", form.path);
    if form.step.switch.is_some() && form.step.next.is_some() {
        problems.add(&path, "a switch chooses the next step itself");
    }
    match &form.step.next {
        None => Ways::Follow,
        Some(Next::Goto(goto)) => Ways::First(vec![EdgePlan {
            when: None,
            goto: form.places.find(goto, &path, problems),
            branch: goto.clone(),
            may_be_joined: false,
        }]),
        Some(Next::First(edges)) => Ways::First(compiled_edges(edges, form, &path, problems)),
        Some(Next::All(all)) => {
            let path = format!("{path}.all");
            let edges = compiled_edges(&all.all, form, &path, problems);
            let mut names = BTreeSet::new();
            if let Some(twice) = edges.iter().find(|edge| !names.insert(&edge.branch)) {
                problems.add(&path, format!("two branches are named `{}`; name them with `branch`", twice.branch));
            }
            Ways::All { edges, join: Place::End }
        }
    }
}

fn compiled_edges(edges: &[Edge], form: &Form<'_>, path: &str, problems: &mut Problems) -> Vec<EdgePlan> {
    let mut compiled = Vec::new();
    for (at, edge) in edges.iter().enumerate() {
        let when = edge.when.as_ref().and_then(|when| problems.expression(&format!("{path}[{at}].when"), when));
        let goto = form.places.find(&edge.goto, &format!("{path}[{at}].goto"), problems);
        let branch = edge.branch.clone().unwrap_or_else(|| edge.goto.clone());
        let may_be_joined = form.places.may_join(&branch);
        compiled.push(EdgePlan { when, goto, branch, may_be_joined });
    }
    compiled
}

pub fn compiled_catch(form: &Form<'_>, problems: &mut Problems) -> Vec<CatchPlan> {
    let mut compiled = Vec::new();
    for (at, catch) in form.step.catch.iter().enumerate() {
        let on = match &catch.on {
            OneOrMany::One(word) => vec![word.clone()],
            OneOrMany::Many(words) => words.clone(),
        };
        let goto = form.places.find(&catch.goto, &format!("{}.catch[{at}].goto", form.path), problems);
        compiled.push(CatchPlan { on, goto, store: catch.store.clone() });
    }
    compiled
}

/// Finds the join of every fork: the nearest one in the graph that is not the join of branches started on the way.
pub fn find_joins(steps: &mut [StepPlan], problems: &mut Problems) {
    let mut visits = VISITS_MAX;
    for number in 0..steps.len() {
        let Ways::All { edges, .. } = &steps[number].ways else { continue };
        let found = nearest_join(steps, edges.iter().map(|edge| edge.goto), &mut visits);
        if let Ways::All { join, .. } = &mut steps[number].ways {
            *join = found;
        }
    }
    if visits == 0 {
        problems.add("steps", "too many ways lead from the branches of `next: {all: ..}` to joins");
    }
}

/// Searches breadth first. A place has a depth: the number of branches that were started on the way and not joined.
fn nearest_join(steps: &[StepPlan], from: impl Iterator<Item = Place>, visits: &mut usize) -> Place {
    let mut queue: VecDeque<(Place, usize)> = from.map(|place| (place, 0)).collect();
    let mut seen = BTreeSet::new();
    while let Some((place, depth)) = queue.pop_front()
        && *visits > 0
    {
        *visits -= 1;
        let Place::Step(number) = place else { continue };
        if depth > DEPTH_MAX || !seen.insert((number, depth)) {
            continue;
        }
        let step = &steps[number];
        let depth = match &step.kind {
            KindPlan::Join(_) if depth == 0 => return place,
            KindPlan::Join(_) => depth - 1,
            KindPlan::Parallel(_) => depth + 1,
            _ => depth,
        };
        match &step.ways {
            // Branches of an inner fork end at its join, after which its path goes on.
            Ways::All { edges, .. } => queue.extend(edges.iter().map(|edge| (edge.goto, depth + 1))),
            Ways::First(edges) => queue.extend(edges.iter().map(|edge| (edge.goto, depth))),
            Ways::Follow => {}
        }
        if let KindPlan::Switch { cases, default, .. } = &step.kind {
            queue.extend(cases.values().chain(default).map(|goto| (*goto, depth)));
        }
        if step.may_be_followed() {
            queue.push_back((step.follow, depth));
        }
        queue.extend(step.catch.iter().map(|catch| (catch.goto, depth)));
    }
    Place::End
}

impl StepPlan {
    /// Returns whether the step that follows in the list may come next: always if it may be skipped.
    fn may_be_followed(&self) -> bool {
        let may_fall_through = match (&self.ways, &self.kind) {
            (_, KindPlan::Switch { default, .. }) => default.is_none(),
            (Ways::Follow, _) => true,
            (Ways::First(edges) | Ways::All { edges, .. }, _) => edges.iter().all(|edge| edge.when.is_some()),
        };
        self.when.is_some() || may_fall_through
    }
}
