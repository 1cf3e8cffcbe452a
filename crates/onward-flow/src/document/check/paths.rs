//! Follows all paths through a flow: which steps they reach, which branches they have started, and which names they have stored.
//!
//! A path is the path of a list of steps, or a branch of `next: {all: ..}`, which runs in the same list until a join. What is
//! known at a step of a path is merged over all ways there: names that are stored on every way, and on some way.

mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::Checker;
use super::bits::Bits;
use super::steps::{GotoTarget, Steps, Ways};
use super::texts::Read;
use crate::document::Step;
use crate::document::problem::Problem;

/// Most words of memory that the search may merge. A flow of 1,000 steps needs a hundredth.
const WORK_MAX: usize = 20_000_000;
/// Most words of memory that it may hold.
const MEMORY_MAX: usize = 8_000_000;

/// The number of the name of the failure that was caught.
const ERROR: usize = 0;

/// A branch of a step with `parallel` or `next: {all: ..}`.
pub struct BranchPath {
    pub step: usize,
    pub name: String,
    target: GotoTarget,
    /// Whether it runs in the list of its step.
    is_fork: bool,
}

/// What is known at a point of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Names that are stored on every way.
    pub sure: Bits,
    /// Names that are stored on some way.
    pub maybe: Bits,
    /// Branches that every way has started and not joined.
    open_sure: Bits,
    /// Branches that some way has started and not joined.
    pub open: Bits,
}

impl Facts {
    fn merge(&mut self, other: &Facts) -> bool {
        let mut changed = self.sure.intersect(&other.sure);
        changed |= self.maybe.unite(&other.maybe);
        changed |= self.open_sure.intersect(&other.open_sure);
        changed | self.open.unite(&other.open)
    }

    fn store(&mut self, name: usize) {
        self.sure.insert(name);
        self.maybe.insert(name);
    }
}

/// A step on a path: 0 is the path of the list, others are branches by number.
type Point = (usize, usize);

/// The search, and what it has found.
pub struct Paths<'s, 'a> {
    steps: &'s Steps<'a>,
    ways: &'s [Ways],
    pub names: BTreeMap<String, usize>,
    pub branches: Vec<BranchPath>,
    branches_of: HashMap<usize, Vec<usize>>,
    /// Before each step of each path.
    pub facts: HashMap<Point, Facts>,
    /// At the ends of branches, and of the flow.
    pub ends: HashMap<Option<usize>, Facts>,
    /// The joins that the branches of a step reach.
    joins: HashMap<usize, BTreeSet<usize>>,
    /// The paths on which a step was reached.
    paths_of: HashMap<usize, BTreeSet<usize>>,
    /// Branches that a join has joined.
    pub joined: Bits,
    queue: VecDeque<Point>,
    queued: BTreeSet<Point>,
    work: usize,
}

impl<'a> Checker<'a, '_> {
    pub fn paths(&mut self, steps: &Steps<'a>, ways: &[Ways], reads: &[Vec<Read>], last: &[Read]) {
        let mut paths = Paths::new(steps, ways);
        if paths.search() {
            self.report(&paths, steps, reads, last);
        } else {
            let place = self.root.field_or_self("steps");
            let problem = Problem::warning("not_checked", &place, "the flow has too many ways to check which names are stored");
            self.problems.add(problem.hint("move steps into flows of their own, with `child`"));
        }
    }
}

impl<'s, 'a> Paths<'s, 'a> {
    fn new(steps: &'s Steps<'a>, ways: &'s [Ways]) -> Paths<'s, 'a> {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let mut branches: Vec<BranchPath> = Vec::new();
        let mut add = |name: &str| {
            let next = names.len() + 1;
            names.entry(name.to_owned()).or_insert(next);
        };
        for (listed, ways) in steps.all.iter().zip(ways) {
            stored(listed.step).for_each(&mut add);
            ways.catches.iter().filter_map(|(_, store)| store.as_deref()).for_each(&mut add);
        }
        for (list, of) in steps.lists.iter().enumerate() {
            if let Some((step, name)) = of.owner {
                let target = steps.lists[list].steps.first().map_or(GotoTarget::End, |first| GotoTarget::Step(*first));
                branches.push(BranchPath { step, name: name.to_owned(), target, is_fork: false });
            }
        }
        for (step, ways) in ways.iter().enumerate() {
            for edge in ways.fork.iter().flatten() {
                branches.push(BranchPath { step, name: edge.branch.clone(), target: edge.target, is_fork: true });
            }
        }
        let mut branches_of: HashMap<usize, Vec<usize>> = HashMap::new();
        branches.iter().enumerate().for_each(|(number, branch)| branches_of.entry(branch.step).or_default().push(number));
        Paths {
            steps,
            ways,
            joined: Bits::none(branches.len()),
            names,
            branches,
            branches_of,
            facts: HashMap::new(),
            ends: HashMap::new(),
            joins: HashMap::new(),
            paths_of: HashMap::new(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            work: 0,
        }
    }

    /// Follows all paths; whether it has come to an end within its limits.
    fn search(&mut self) -> bool {
        let (names, branches) = (self.names.len() + 1, self.branches.len());
        let words = 2 * (names.div_ceil(64) + branches.div_ceil(64)) + 8;
        let none = Facts {
            sure: Bits::none(names),
            maybe: Bits::none(names),
            open_sure: Bits::none(branches),
            open: Bits::none(branches),
        };
        let first = self
            .steps
            .lists
            .first()
            .and_then(|list| list.steps.first())
            .map_or(GotoTarget::End, |first| GotoTarget::Step(*first));
        self.go(0, None, first, &none);
        while let Some(point) = self.queue.pop_front() {
            self.queued.remove(&point);
            self.step(point);
            if self.work * words > WORK_MAX || self.facts.len() * words > MEMORY_MAX {
                return false;
            }
        }
        true
    }

    /// Merges what a way brings to its target. `from` is the step whose way it is.
    fn go(&mut self, path: usize, from: Option<usize>, target: GotoTarget, facts: &Facts) {
        self.work += 1;
        match target {
            GotoTarget::Step(step) => {
                let point = (step, path);
                let changed = match self.facts.get_mut(&point) {
                    Some(known) => known.merge(facts),
                    None => {
                        self.facts.insert(point, facts.clone());
                        self.paths_of.entry(step).or_default().insert(path);
                        true
                    }
                };
                if changed && self.queued.insert(point) {
                    self.queue.push_back(point);
                }
            }
            GotoTarget::End => {
                let end = match from.map(|step| self.steps.all[step].list) {
                    _ if path > 0 => Some(path - 1),
                    Some(list) => self.steps.lists[list].owner.and_then(|(step, name)| self.branch(step, name)),
                    None => None,
                };
                self.end(end, facts);
            }
        }
    }

    fn branch(&self, step: usize, name: &str) -> Option<usize> {
        self.branches_of.get(&step)?.iter().copied().find(|number| {
            let branch = &self.branches[*number];
            branch.name == name && !branch.is_fork
        })
    }

    fn end(&mut self, branch: Option<usize>, facts: &Facts) {
        match self.ends.get_mut(&branch) {
            Some(known) => {
                known.merge(facts);
            }
            None => {
                self.ends.insert(branch, facts.clone());
            }
        }
    }

    fn follow(&mut self, path: usize, step: usize, facts: &Facts) {
        let target = self.steps.all[step].following.map_or(GotoTarget::End, GotoTarget::Step);
        self.go(path, Some(step), target, facts);
    }

    /// Brings what is known before a step to all that may come after it.
    fn step(&mut self, (step, path): Point) {
        let (steps, ways) = (self.steps, self.ways);
        let (listed, ways) = (&steps.all[step], &ways[step]);
        let before = self.facts[&(step, path)].clone();
        let mut after = before.clone();
        if listed.unclear {
            return self.unclear(step, path, after);
        }
        if listed.step.join.is_some() && !self.join(step, path, &mut after) {
            return;
        }
        for (target, store) in &ways.catches {
            let mut failed = after.clone();
            failed.store(ERROR);
            if let Some(name) = store {
                failed.store(self.names[name]);
            }
            self.go(path, Some(step), *target, &failed);
        }
        if listed.step.when.is_some() {
            self.follow(path, step, &before);
        }
        stored(listed.step).for_each(|name| after.store(self.names[name]));
        self.take(step, &mut after);
        let mut started = after.clone();
        for number in self.branches_of.get(&step).cloned().unwrap_or_default() {
            let branch = &self.branches[number];
            let (target, branch_path) = (branch.target, if branch.is_fork { number + 1 } else { 0 });
            let mut facts = after.clone();
            facts.open = Bits::none(self.branches.len());
            facts.open_sure = facts.open.clone();
            match target {
                GotoTarget::Step(_) => self.go(branch_path, Some(step), target, &facts),
                GotoTarget::End => self.end(Some(number), &facts),
            }
            started.open.insert(number);
            started.open_sure.insert(number);
        }
        if ways.fork.is_some() {
            for join in self.joins.get(&step).cloned().unwrap_or_default() {
                self.go(path, Some(step), GotoTarget::Step(join), &started);
            }
        } else if listed.step.parallel.is_some() {
            after = started;
        }
        for target in &ways.next {
            self.go(path, Some(step), *target, &after);
        }
        if ways.follows {
            self.follow(path, step, &after);
        }
    }

    /// Goes everywhere from a step that could not be read, with all names.
    fn unclear(&mut self, step: usize, path: usize, mut facts: Facts) {
        let size = self.names.len() + 1;
        (facts.sure, facts.maybe) = (Bits::all(size), Bits::all(size));
        facts.open.unite(&Bits::all(self.branches.len()));
        for number in self.branches_of.get(&step).cloned().unwrap_or_default() {
            let target = self.branches[number].target;
            self.go(0, Some(step), target, &facts);
        }
        for other in self.steps.lists[self.steps.all[step].list].steps.clone() {
            self.go(path, Some(step), GotoTarget::Step(other), &facts);
        }
        self.follow(path, step, &facts);
    }

    /// Joins branches; whether the path goes on.
    fn join(&mut self, step: usize, path: usize, facts: &mut Facts) -> bool {
        if path > 0 && facts.open_sure.is_empty() {
            // The branch arrives.
            self.end(Some(path - 1), facts);
            let fork = self.branches[path - 1].step;
            if self.joins.entry(fork).or_default().insert(step) {
                for path in self.paths_of.get(&fork).cloned().unwrap_or_default() {
                    if self.queued.insert((fork, path)) {
                        self.queue.push_back((fork, path));
                    }
                }
            }
            if facts.open.is_empty() {
                return false;
            }
        }
        let wanted = self.steps.all[step].step.join.as_ref().map(|join| join.branches.as_slice()).unwrap_or_default();
        for number in 0..self.branches.len() {
            let is_wanted = wanted.is_empty() || wanted.contains(&self.branches[number].name);
            if is_wanted && facts.open.contains(number) {
                facts.open.remove(number);
                facts.open_sure.remove(number);
                self.joined.insert(number);
            }
        }
        true
    }

    /// Stores what a join takes from branches.
    fn take(&self, step: usize, facts: &mut Facts) {
        let Some(join) = &self.steps.all[step].step.join else { return };
        join.take.keys().for_each(|name| facts.store(self.names[name]));
    }
}

/// Returns the names that a step stores if it succeeds.
fn stored(step: &Step) -> impl Iterator<Item = &str> {
    let set = step.set.iter().flat_map(|set| set.keys());
    let take = step.join.iter().flat_map(|join| join.take.keys());
    step.store.iter().chain(set).chain(take).map(String::as_str)
}
