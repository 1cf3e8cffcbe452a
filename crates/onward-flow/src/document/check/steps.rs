//! The steps of all lists in one, and the ways between them.

use std::collections::{BTreeSet, HashMap};

use super::{Checker, END};
use crate::document::problem::Problem;
use crate::document::yaml::Place;
use crate::document::{Flow, Next, Step};
use crate::suggest::{nearest, shown};

/// A step with its place in the flow.
pub struct Listed<'a> {
    pub step: &'a Step,
    pub place: Place<'a>,
    pub list: usize,
    /// The step that follows in its list.
    pub following: Option<usize>,
    /// Whether its ways or names could not be read: they are not known then.
    pub unclear: bool,
}

/// A list of steps.
#[derive(Default)]
pub struct CheckedList<'a> {
    /// The step with `parallel` and the branch, unless it is the list of the flow.
    pub owner: Option<(usize, &'a str)>,
    pub steps: Vec<usize>,
    /// The first step of each name.
    names: HashMap<&'a str, usize>,
}

/// All steps of a flow.
pub struct Steps<'a> {
    pub all: Vec<Listed<'a>>,
    pub lists: Vec<CheckedList<'a>>,
    /// The first step of each name.
    pub names: HashMap<&'a str, usize>,
}

impl<'a> Steps<'a> {
    pub fn new(flow: &'a Flow, root: &Place<'a>, unclear: &BTreeSet<String>) -> Steps<'a> {
        let mut steps = Steps { all: Vec::new(), lists: Vec::new(), names: HashMap::new() };
        if let Some(place) = root.field("steps") {
            steps.list(&flow.steps, &place, None, unclear);
        }
        steps
    }

    fn list(&mut self, list: &'a [Step], place: &Place<'a>, owner: Option<(usize, &'a str)>, unclear: &BTreeSet<String>) {
        let number = self.lists.len();
        self.lists.push(CheckedList { owner, ..CheckedList::default() });
        for (step, place) in list.iter().zip(place.items()) {
            let id = self.all.len();
            let before = self.lists[number].steps.last().copied();
            if let Some(before) = before {
                self.all[before].following = Some(id);
            }
            self.lists[number].steps.push(id);
            if !step.name.is_empty() {
                self.lists[number].names.entry(&step.name).or_insert(id);
                self.names.entry(&step.name).or_insert(id);
            }
            let unclear_here = unclear.contains(&place.path);
            let branches = place.field("parallel");
            self.all.push(Listed { step, place, list: number, following: None, unclear: unclear_here });
            let (Some(parallel), Some(branches)) = (&step.parallel, branches) else { continue };
            for entry in branches.entries() {
                if let Some((name, list)) = parallel.get_key_value(&entry.key) {
                    self.list(list, &branches.below(&entry.key, &entry.node), Some((id, name)), unclear);
                }
            }
        }
    }
}

/// Where a way goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GotoTarget {
    Step(usize),
    End,
}

/// An edge of `next: {all: ..}`.
pub struct ForkEdge {
    pub branch: String,
    pub target: GotoTarget,
    pub is_sure: bool,
}

/// The ways from a step.
#[derive(Default)]
pub struct Ways {
    /// After the step, in `next` or `switch`.
    pub next: Vec<GotoTarget>,
    /// Whether the step that follows in the list may come next.
    pub follows: bool,
    /// After a failure, with the name under which it is stored.
    pub catches: Vec<(GotoTarget, Option<String>)>,
    pub fork: Option<Vec<ForkEdge>>,
}

impl Ways {
    /// Returns all steps that may come next, without branches of `parallel`.
    pub fn targets(&self, following: Option<usize>) -> Vec<usize> {
        let forks = self.fork.iter().flatten().map(|edge| edge.target);
        let named = self.next.iter().copied().chain(self.catches.iter().map(|(target, _)| *target)).chain(forks);
        let named = named.filter_map(|target| match target {
            GotoTarget::Step(step) => Some(step),
            GotoTarget::End => None,
        });
        named.chain(following.filter(|_| self.follows)).collect()
    }
}

impl<'a> Checker<'a, '_> {
    /// Returns the ways from each step, and lists those that lead nowhere.
    pub fn ways(&mut self, steps: &Steps<'a>) -> Vec<Ways> {
        steps.all.iter().map(|listed| self.ways_of(steps, listed)).collect()
    }

    fn ways_of(&mut self, steps: &Steps<'a>, listed: &Listed<'a>) -> Ways {
        let (step, place) = (listed.step, &listed.place);
        let mut ways = Ways { follows: true, ..Ways::default() };
        let next = place.field_or_self("next");
        match &step.next {
            Some(Next::Goto(name)) => {
                ways.follows = false;
                ways.next.extend(self.target(steps, listed, &next, name));
            }
            Some(Next::First(edges)) => {
                for (at, edge) in edges.iter().enumerate() {
                    let edge_place = next.item_or_self(at);
                    if !ways.follows {
                        let problem = Problem::warning("unreachable_way", &edge_place, "a way before this one is always taken");
                        self.problems.add(problem.hint("add `when` to it").of_step(&step.name));
                    }
                    ways.follows &= edge.when.is_some();
                    ways.next.extend(self.target(steps, listed, &edge_place.field_or_self("goto"), &edge.goto));
                }
            }
            Some(Next::All(all)) => {
                let place = next.field_or_self("all");
                let mut edges: Vec<ForkEdge> = Vec::new();
                for (at, edge) in all.all.iter().enumerate() {
                    let place = place.item_or_self(at);
                    let branch = edge.branch.clone().unwrap_or_else(|| edge.goto.clone());
                    if edges.iter().any(|edge| edge.branch == branch) {
                        let place = place.field("branch").unwrap_or_else(|| place.field_or_self("goto"));
                        let problem =
                            Problem::error("duplicate_branch", &place, format!("two branches have the name `{branch}`"));
                        self.problems.add(problem.hint("add `branch: NAME`").of_step(&step.name));
                    }
                    if let Some(target) = self.target(steps, listed, &place.field_or_self("goto"), &edge.goto) {
                        edges.push(ForkEdge { branch, target, is_sure: edge.when.is_none() });
                    }
                }
                ways.follows = !edges.iter().any(|edge| edge.is_sure);
                ways.fork = Some(edges);
            }
            None => {}
        }
        if let Some(switch) = &step.switch {
            let place = place.field_or_self("switch");
            let cases = place.field_or_self("cases");
            for entry in cases.entries() {
                if let Some(name) = switch.cases.get(&entry.key) {
                    ways.next.extend(self.target(steps, listed, &cases.below(&entry.key, &entry.node), name));
                }
            }
            if let Some(name) = &switch.default {
                ways.follows = false;
                ways.next.extend(self.target(steps, listed, &place.field_or_self("default"), name));
            }
        }
        let catches = place.field_or_self("catch");
        for (at, catch) in step.catch.iter().enumerate() {
            let place = catches.item_or_self(at).field_or_self("goto");
            if let Some(target) = self.target(steps, listed, &place, &catch.goto) {
                ways.catches.push((target, catch.store.clone()));
            }
        }
        ways
    }

    /// Returns the step of a name in the same list. For an unknown name, it is the one that was probably meant.
    fn target(&mut self, steps: &Steps<'a>, listed: &Listed<'a>, place: &Place, name: &str) -> Option<GotoTarget> {
        let names = &steps.lists[listed.list].names;
        if name == END {
            return Some(GotoTarget::End);
        }
        if let Some(step) = names.get(name) {
            return Some(GotoTarget::Step(*step));
        }
        if let Some(other) = steps.names.get(name) {
            let (here, there) = (listed.list, steps.all[*other].list);
            let part = |list: usize| match steps.lists[list].owner {
                Some((_, branch)) => format!("the branch `{branch}`"),
                None => "the steps of the flow".to_owned(),
            };
            let message = format!("`{name}` is in {}, which cannot be entered from {}", part(there), part(here));
            let problem = Problem::error("goto_across_branches", place, message);
            self.problems.add(problem.hint("go to a step of the same list").of_step(&listed.step.name));
            self.has_lost_way = true;
            return None;
        }
        let near = nearest(name, names.keys().copied().chain([END]));
        let message = format!("there is no step `{}`", shown(name));
        self.problems.add(Problem::error("unknown_step", place, message).suggest(near).of_step(&listed.step.name));
        self.has_lost_way |= near.is_none();
        match near {
            Some(END) => Some(GotoTarget::End),
            near => near.and_then(|near| names.get(near)).map(|step| GotoTarget::Step(*step)),
        }
    }
}
