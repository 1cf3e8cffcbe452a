//! Lists what the paths show: steps that none reaches, branches that are not joined, and names that are not stored.

use super::{ERROR, Facts, Paths};
use crate::document::Next;
use crate::document::check::Checker;
use crate::document::check::names::ROOTS;
use crate::document::check::steps::{Listed, Steps};
use crate::document::check::texts::Read;
use crate::document::problem::{Problem, Severity};
use crate::document::yaml::Place;
use crate::suggest::{nearest, shown};

impl<'a> Checker<'a, '_> {
    pub fn report(&mut self, paths: &Paths<'_, 'a>, steps: &Steps<'a>, reads: &[Vec<Read>], last: &[Read]) {
        let is_clear = steps.all.iter().all(|listed| !listed.unclear);
        for (id, listed) in steps.all.iter().enumerate() {
            self.problems.step = (!listed.step.name.is_empty()).then(|| listed.step.name.clone());
            let mut points: Vec<(&usize, &Facts)> = Vec::new();
            for path in paths.paths_of.get(&id).into_iter().flatten() {
                points.extend(paths.facts.get(&(id, *path)).map(|facts| (path, facts)));
            }
            if points.is_empty() {
                self.unreachable(paths, steps, id, listed);
            } else {
                self.branches(paths, id, listed, &points, is_clear);
            }
            let facts: Vec<&Facts> = points.into_iter().map(|(_, facts)| facts).collect();
            reads[id].iter().for_each(|read| self.read(paths, read, Some(listed), &facts, is_clear));
        }
        self.problems.step = None;
        let end: Vec<&Facts> = paths.ends.get(&None).into_iter().collect();
        last.iter().for_each(|read| self.read(paths, read, None, &end, is_clear));
    }

    /// Lists the first of several steps in a row that no path reaches.
    fn unreachable(&mut self, paths: &Paths<'_, 'a>, steps: &Steps<'a>, id: usize, listed: &Listed<'a>) {
        let list = &steps.lists[listed.list];
        let is_reached = |id: &usize| paths.paths_of.contains_key(id);
        let before = list.steps.iter().take_while(|step| **step < id).last();
        let is_first =
            !self.has_lost_way && before.is_none_or(is_reached) && list.owner.is_none_or(|(owner, _)| is_reached(&owner));
        if is_first {
            let problem = Problem::warning("unreachable_step", &listed.place.field_or_self("name"), "no way leads to the step");
            self.problems.add(problem.hint("go to it with `next`, or remove it"));
        }
    }

    fn branches(&mut self, paths: &Paths<'_, 'a>, id: usize, listed: &Listed<'a>, points: &[(&usize, &Facts)], is_clear: bool) {
        let place = &listed.place;
        let own = paths.branches_of.get(&id).map(Vec::as_slice).unwrap_or_default();
        let lost = own.iter().filter(|number| !paths.joined.contains(**number));
        let lost: Vec<&str> = lost.map(|number| paths.branches[*number].name.as_str()).collect();
        if let (Some(first), true) = (lost.first(), is_clear) {
            let names: Vec<String> = lost.iter().take(5).map(|name| format!("`{}`", shown(name))).collect();
            let message = format!(
                "the branches {} are not joined; the flow ends when they have ended, and their state is lost",
                names.join(", ")
            );
            self.problems.add(branch_problem(listed, first, message).hint("add a step with `join`"));
        }
        let Some(join) = &listed.step.join else { return };
        let Some(join_place) = place.field("join") else { return };
        if !is_clear {
            return;
        }
        let is_open = |number: &usize| points.iter().any(|(_, facts)| facts.open.contains(*number));
        let open: Vec<usize> = (0..paths.branches.len()).filter(is_open).collect();
        // A branch of `next: {all: ..}` ends here; its path goes on with the branches.
        if open.is_empty() && points.iter().any(|(path, _)| **path == 0) {
            let problem = Problem::error("join_without_branches", &join_place, "no branches are open at the join");
            self.problems.add(problem.hint("start them with `parallel` or `next: {all: ..}` before it"));
            return;
        }
        let names: Vec<&str> = open.iter().map(|number| paths.branches[*number].name.as_str()).collect();
        for (at, name) in join.branches.iter().enumerate().filter(|(_, name)| !names.contains(&name.as_str())) {
            let place = join_place.field_or_self("branches").item_or_self(at);
            self.unknown_branch(&place, name, &names);
        }
        let take = join_place.field_or_self("take");
        for entry in take.entries() {
            let Some(source) = join.take.get(&entry.key) else { continue };
            let (branch, name) = source.split_once('.').map_or((source.as_str(), None), |(branch, name)| (branch, Some(name)));
            let place = take.below(&entry.key, &entry.node);
            let is_joined = join.branches.is_empty() || join.branches.iter().any(|joined| joined == branch);
            if !names.contains(&branch) {
                self.unknown_branch(&place, branch, &names);
                continue;
            }
            if !is_joined {
                let message = format!("the join does not wait for the branch `{}`", shown(branch));
                self.problems.add(Problem::error("unknown_branch", &place, message).hint("add it to `branches`"));
                continue;
            }
            let Some(name) = name else { continue };
            let numbers = open.iter().filter(|number| paths.branches[**number].name == branch);
            let ends: Vec<&Facts> = numbers.filter_map(|number| paths.ends.get(&Some(*number))).collect();
            if ends.is_empty() {
                continue;
            }
            let stored = Stored::of(paths.names.get(name.split('.').next().unwrap_or(name)).copied(), &ends);
            self.stored(paths, &place, name, stored, &format!("in the branch `{branch}`"));
        }
    }

    fn unknown_branch(&mut self, place: &Place, name: &str, names: &[&str]) {
        let problem = Problem::error("unknown_branch", place, format!("no branch `{}` is open at the join", shown(name)));
        self.problems.add(problem.suggest(nearest(name, names.iter().copied())));
    }

    fn stored(&mut self, paths: &Paths, place: &Place, name: &str, stored: Stored, part: &str) {
        let name = shown(name);
        let problem = match stored {
            Stored::Sure => return,
            Stored::Maybe => Problem::warning("maybe_not_stored", place, format!("`{name}` is not stored on every way {part}")),
            Stored::Never => Problem::error("not_stored", place, format!("`{name}` is never stored {part}")),
            Stored::Nowhere => Problem::error("unknown_name", place, format!("nothing is stored as `{name}`"))
                .suggest(nearest(&name, paths.names.keys().map(String::as_str))),
        };
        self.problems.add(problem);
    }

    /// Checks one name that an expression reads. `facts` are those before its step on all paths, or at the end of the flow.
    fn read(&mut self, paths: &Paths, read: &Read, listed: Option<&Listed<'a>>, facts: &[&Facts], is_clear: bool) {
        let add = |checker: &mut Self, severity: Severity, code: &'static str, message: String, hint: Option<String>| {
            let mut problem = Problem::new(severity, code, read.at, &read.place, message);
            problem.hint = hint;
            checker.problems.add(problem);
        };
        let like = |name: Option<&str>| name.map(|name| format!("did you mean `{name}`?"));
        let error = Severity::Error;
        let Some(root) = read.path.first() else { return };
        let field = read.path.get(1).map(String::as_str);
        let each = listed.and_then(|listed| listed.step.each.as_ref()).filter(|_| read.scope.has_item);
        if each.is_some_and(|each| each.name == *root) || (each.is_some() && root == "key") {
            return;
        }
        match (root.as_str(), field) {
            ("state", Some(name)) => {
                let number = paths.names.get(name).copied();
                if facts.is_empty() && number.is_some() {
                    return;
                }
                let own = listed
                    .filter(|_| read.scope.is_after)
                    .is_some_and(|listed| super::stored(listed.step).any(|stored| stored == name));
                let part = if listed.is_some() { "before the step" } else { "before the flow ends" };
                match Stored::of(number, facts) {
                    _ if own => {}
                    Stored::Sure => {}
                    Stored::Maybe => {
                        let hint = Some(format!("use `state.{name} is defined` or `state.{name} | default(..)`"));
                        let message = format!("`state.{name}` is not stored on every way {part}");
                        add(self, Severity::Warning, "maybe_not_stored", message, hint);
                    }
                    Stored::Never => add(self, error, "not_stored", format!("`state.{name}` is never stored {part}"), None),
                    Stored::Nowhere if !is_clear => {}
                    Stored::Nowhere => {
                        let near = nearest(name, paths.names.keys().map(String::as_str)).map(|near| format!("state.{near}"));
                        let input = self.has_input(name).then(|| format!("inputs.{name}"));
                        let hint = like(input.or(near).as_deref());
                        add(self, error, "unknown_name", format!("nothing is stored as `{}`", shown(name)), hint);
                    }
                }
            }
            ("inputs", Some(name)) if !self.has_input(name) => {
                let inputs = self.root.field_or_self("inputs");
                let names = if inputs.path == "inputs" { inputs.entries() } else { &[] };
                let near = nearest(name, names.iter().map(|entry| entry.key.as_str())).map(|near| format!("inputs.{near}"));
                let state = paths.names.contains_key(name).then(|| format!("state.{name}"));
                let message = format!("the flow has no input `{}`", shown(name));
                add(self, error, "unknown_input", message, like(near.or(state).as_deref()));
            }
            ("inputs" | "state", _) | ("run", None | Some("id")) => {}
            ("run", Some(name)) => {
                add(self, error, "unknown_name", format!("a run has no `{}` in expressions", shown(name)), like(Some("run.id")));
            }
            ("result", _) if read.scope.has_result => {}
            ("result", _) => {
                let hint = "keep the result with `store`, and read it from `state`".to_owned();
                let message = "`result` exists in `next`, `switch.on` and `on_failure` only".to_owned();
                add(self, error, "unknown_name", message, Some(hint));
            }
            ("error", _) => match Stored::of(Some(ERROR), facts) {
                _ if facts.is_empty() => {}
                Stored::Sure => {}
                Stored::Maybe => {
                    let message = "`error` does not exist on every way to the step".to_owned();
                    add(self, Severity::Warning, "maybe_not_stored", message, Some("use `error is defined`".to_owned()));
                }
                _ => {
                    let message = "`error` exists in steps that `catch` leads to only".to_owned();
                    add(self, error, "not_stored", message, None);
                }
            },
            (name, _) => {
                let item = each.map(|each| each.name.as_str());
                let hint = if paths.names.contains_key(name) {
                    Some(format!("state.{name}"))
                } else if self.has_input(name) {
                    Some(format!("inputs.{name}"))
                } else {
                    nearest(name, ROOTS.into_iter().chain(item)).map(str::to_owned)
                };
                let roots = format!("names are {}", ["`inputs`", "`state`", "`run`"].join(", "));
                let hint = like(hint.as_deref()).unwrap_or(roots);
                add(self, error, "unknown_name", format!("there is no name `{}`", shown(name)), Some(hint));
            }
        }
    }

    fn has_input(&self, name: &str) -> bool {
        self.root.node.get("inputs").is_some_and(|inputs| inputs.get(name).is_some())
    }
}

/// Whether a name is stored.
enum Stored {
    Sure,
    Maybe,
    Never,
    /// In no step at all.
    Nowhere,
}

impl Stored {
    fn of(name: Option<usize>, facts: &[&Facts]) -> Stored {
        let Some(name) = name else { return Stored::Nowhere };
        if facts.iter().all(|facts| facts.sure.contains(name)) {
            Stored::Sure
        } else if facts.iter().any(|facts| facts.maybe.contains(name)) {
            Stored::Maybe
        } else {
            Stored::Never
        }
    }
}

/// Creates a warning at a branch that a step starts.
fn branch_problem(listed: &Listed<'_>, branch: &str, message: String) -> Problem {
    let code = "branches_not_joined";
    if let Some(parallel) = listed.place.field("parallel") {
        let Some(entry) = parallel.entries().iter().find(|entry| entry.key == branch) else {
            return Problem::warning(code, &parallel, message);
        };
        return Problem::warning(code, &parallel.below(&entry.key, &entry.node), message).at(entry.key_at);
    }
    let all = listed.place.field_or_self("next").field_or_self("all");
    let edges = match &listed.step.next {
        Some(Next::All(all)) => all.all.as_slice(),
        _ => &[],
    };
    let at = edges.iter().position(|edge| edge.branch.as_ref().unwrap_or(&edge.goto) == branch);
    Problem::warning(code, &at.map_or(all.clone(), |at| all.item_or_self(at)), message)
}
