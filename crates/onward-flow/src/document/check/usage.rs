//! Names that may not exist where the flow runs, failures that are caught before, and modifiers without effect.

use std::collections::BTreeSet;

use super::Checker;
use super::steps::Listed;
use crate::document::problem::Problem;
use crate::document::yaml::Place;
use crate::document::{JoinCount, OneOrMany};
use crate::suggest::{nearest, shown};

impl<'a> Checker<'a, '_> {
    pub fn usage(&mut self, listed: &Listed<'a>) {
        let (step, place) = (listed.step, &listed.place);
        self.problems.step = (!step.name.is_empty()).then(|| step.name.clone());
        let known = self.known;
        self.known(place.field("task"), known.tasks.as_deref(), "unknown_task", "no worker serves the task");
        self.known(place.field("child"), known.kinds.as_deref(), "unknown_kind", "no worker serves the kind");
        self.known(place.field("model"), known.models.as_deref(), "unknown_model", "no worker serves the model");
        self.known(place.field("agent"), known.agents.as_deref(), "unknown_agent", "no worker serves the agent");
        let undo = place.field("on_failure").and_then(|undo| undo.field("task"));
        self.known(undo, known.tasks.as_deref(), "unknown_task", "no worker serves the task");
        self.catches(listed);
        if let Some(join) = &step.join
            && let JoinCount::Count(count) = join.wait
            && !join.branches.is_empty()
            && count as usize > join.branches.len()
        {
            let wait = place.field_or_self("join").field_or_self("wait");
            let message = format!("the join waits for {count} of {} branches", join.branches.len());
            self.problems.add(Problem::error("out_of_range", &wait, message));
        }
        let is_inner = step.set.is_some() || step.switch.is_some() || step.parallel.is_some();
        let useless: &[&str] = match (is_inner, step.join.is_some()) {
            (true, _) => &["retry", "timeout"],
            (_, true) => &["retry"],
            _ => &[],
        };
        for place in useless.iter().filter_map(|field| place.field(field)) {
            let field = place.path.rsplit('.').next().unwrap_or_default();
            let message = format!("`{field}` has no effect on this kind of step");
            self.problems.add(Problem::warning("no_effect", &place, message).hint("remove it"));
        }
        self.problems.step = None;
    }

    fn known(&mut self, place: Option<Place<'a>>, known: Option<&[String]>, code: &'static str, what: &str) {
        let (Some(place), Some(known)) = (place, known) else { return };
        let Some(name) = place.node.as_text().filter(|name| !known.iter().any(|known| known == name)) else { return };
        let near = nearest(name, known.iter().map(String::as_str));
        self.problems.add(Problem::warning(code, &place, format!("{what} `{}` now", shown(name))).suggest(near));
    }

    /// Lists catches whose failures are all caught before.
    fn catches(&mut self, listed: &Listed<'a>) {
        let catches = listed.place.field_or_self("catch");
        let mut caught: BTreeSet<&str> = BTreeSet::new();
        for (at, catch) in listed.step.catch.iter().enumerate() {
            let codes: Vec<&str> = match &catch.on {
                OneOrMany::One(code) => vec![code],
                OneOrMany::Many(codes) => codes.iter().map(String::as_str).collect(),
            };
            let is_caught = |code: &&str| {
                caught.contains(code)
                    || (caught.contains("any") && *code != "canceled")
                    || (caught.contains("timeout") && *code == "timed_out")
            };
            if !codes.is_empty() && codes.iter().all(is_caught) {
                let place = catches.item_or_self(at);
                let problem = Problem::warning("unreachable_catch", &place, "all its failures are caught before");
                self.problems.add(problem.hint("move it up, or remove it"));
            }
            caught.extend(codes);
        }
    }
}
