//! Reads steps.

use std::collections::BTreeMap;

use serde_json::Value;

use super::FlowReader;
use super::object::Object;
use crate::document::problem::Problem;
use crate::document::yaml::{Kind, Place};
use crate::document::{
    Action, AllEdges, Catch, Each, Edge, Join, JoinCount, JoinWord, Memo, MemoRule, MemoScope, Next, OneOrMany, Retry,
    RetryPolicy, Step, Switch, Undo,
};
use crate::suggest::{nearest, shown};

/// The kinds of steps, with the fields that belong to each. A prompt to an agent is the kind `agent`.
const KINDS: &[(&str, &[&str])] = &[
    ("agent", &["prompt", "output"]),
    ("prompt", &["model", "system", "output", "memo"]),
    ("task", &["with", "output", "queue", "memo"]),
    ("action", &["with", "memo"]),
    ("approval", &["show", "deciders", "answer", "within", "output"]),
    ("wait", &["within", "output"]),
    ("sleep", &[]),
    ("child", &["with", "output"]),
    ("set", &[]),
    ("parallel", &[]),
    ("join", &[]),
    ("switch", &[]),
];

/// The fields that all steps have.
const MODIFIERS: &[&str] = &["name", "each", "when", "retry", "timeout", "catch", "store", "next", "on_failure"];

/// All fields of steps.
const FIELDS: &[&str] = &[
    "name",
    "prompt",
    "agent",
    "task",
    "action",
    "approval",
    "wait",
    "sleep",
    "child",
    "set",
    "parallel",
    "join",
    "switch",
    "model",
    "system",
    "output",
    "with",
    "show",
    "deciders",
    "answer",
    "within",
    "queue",
    "each",
    "when",
    "retry",
    "timeout",
    "memo",
    "catch",
    "store",
    "next",
    "on_failure",
];

const ACTIONS: &[(&str, Action, &[&str])] = &[
    ("http", Action::Http, &["method", "url", "headers", "query", "body", "json"]),
    ("read", Action::Read, &["path", "as"]),
    ("write", Action::Write, &["path", "text", "json"]),
    ("json", Action::Json, &["text"]),
    ("fail", Action::Fail, &["message", "code", "details"]),
    ("print", Action::Print, &["message"]),
    ("now", Action::Now, &[]),
    ("random", Action::Random, &["min", "max"]),
    ("uuid", Action::Uuid, &[]),
];

const ATTEMPTS_MAX: u32 = 1_000_000;
const CONCURRENCY_MAX: u32 = 10_000;

impl FlowReader {
    pub fn steps(&mut self, place: &Place) -> Vec<Step> {
        let items = self.items(place, "a list of steps", "begin each step with `- name: ..`");
        items.iter().map(|item| self.step(item)).collect()
    }

    /// Returns the step; an empty one if it cannot be read, so that the others keep their places.
    fn step(&mut self, place: &Place) -> Step {
        let outer = self.problems.step.take();
        self.problems.step = place.node.get("name").and_then(|name| name.as_text()).map(str::to_owned);
        let step = self.object(place, "a step", FIELDS).map(|object| self.step_of(place, &object));
        self.problems.step = outer;
        if step.is_none() {
            self.unclear.insert(place.path.clone());
        }
        step.unwrap_or_default()
    }

    fn step_of(&mut self, place: &Place, object: &Object) -> Step {
        let name = self.required_text(object, "name").unwrap_or_default();
        self.kind(place, object);
        let (ways, before) = (place.path.clone(), self.problems.count());
        let parallel = object.get("parallel").map(|branches| self.branches(&branches));
        let (join, switch) = (object.get("join").and_then(|join| self.join(&join)), object.get("switch"));
        let unclear = ["parallel", "join", "switch", "next", "catch", "store", "set"];
        let is_broken = |field: &&str| place.node.get(field).is_some_and(|node| matches!(node.kind, Kind::Broken));
        let mut is_unclear = unclear.iter().any(is_broken) || parallel.as_ref().is_some_and(BTreeMap::is_empty);
        is_unclear |= join.is_none() && object.has("join");
        let before_ways = self.problems.count();
        let switch = switch.and_then(|switch| self.switch(&switch));
        let next = object.get("next").and_then(|next| self.next(&next));
        let catch = object.get("catch").map(|catch| self.catches(&catch)).unwrap_or_default();
        let store = self.text(object, "store");
        let set = object.get("set").and_then(|set| self.values(&set));
        if is_unclear || self.problems.count() > before_ways || (parallel.is_some() && self.problems.count() > before) {
            self.unclear.insert(ways);
        }
        Step {
            name,
            parallel,
            join,
            switch,
            next,
            catch,
            store,
            set,
            prompt: self.text(object, "prompt"),
            agent: self.text(object, "agent"),
            task: self.text(object, "task"),
            action: object.get("action").and_then(|action| self.action(&action, object.get("with").as_ref())),
            approval: self.text(object, "approval"),
            wait: self.text(object, "wait"),
            sleep: self.sleep(object),
            child: self.text(object, "child"),
            model: self.text(object, "model"),
            system: self.text(object, "system"),
            output: object.get("output").map(|output| self.output(&output)),
            with: object.get("with").map(|with| with.node.to_value()),
            show: object.get("show").map(|show| show.node.to_value()),
            deciders: self.texts(object, "deciders"),
            answer: object.get("answer").map(|answer| self.output(&answer)),
            within: self.span(object, "within"),
            queue: self.text(object, "queue"),
            each: object.get("each").and_then(|each| self.each(&each)),
            when: self.text(object, "when"),
            retry: object.get("retry").and_then(|retry| self.retry(&retry)),
            timeout: self.span(object, "timeout"),
            memo: object.get("memo").and_then(|memo| self.memo(&memo)),
            on_failure: object.get("on_failure").and_then(|undo| self.undo(&undo)),
        }
    }

    /// Checks that the step has one kind, and only fields of it.
    fn kind(&mut self, place: &Place, object: &Object) {
        let mut kinds: Vec<&(&str, &[&str])> = KINDS.iter().filter(|(kind, _)| object.has(kind)).collect();
        if object.has("agent") {
            kinds.retain(|(kind, _)| *kind != "prompt");
        }
        let [(kind, fields)] = kinds.as_slice() else {
            if kinds.is_empty() {
                let names: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
                let problem = Problem::error("no_kind", place, "the step does nothing");
                self.problems.add(problem.hint(format!("add one of {}", names.join(", "))));
            } else {
                let names: Vec<String> = kinds.iter().map(|(kind, _)| format!("`{kind}`")).collect();
                let problem = Problem::error("several_kinds", place, format!("the step has several kinds: {}", names.join(", ")));
                self.problems.add(problem.hint("make one step of each"));
            }
            return;
        };
        let not_for = match *kind {
            "switch" => &["next", "each"][..],
            "parallel" | "join" => &["each"],
            _ => &[],
        };
        for entry in place.entries() {
            let field = entry.key.as_str();
            let is_allowed = field == *kind || fields.contains(&field) || MODIFIERS.contains(&field);
            if !FIELDS.contains(&field) || (is_allowed && !not_for.contains(&field)) {
                continue;
            }
            let kinds: Vec<&str> = KINDS.iter().filter(|(_, fields)| fields.contains(&field)).map(|(kind, _)| *kind).collect();
            let inner = place.below(field, &entry.node);
            let message = format!("`{field}` does not belong to a step with `{kind}`");
            let problem = Problem::error("wrong_field", &inner, message).at(entry.key_at);
            self.problems.add(match kinds.is_empty() {
                true => problem.hint("remove it"),
                false => problem.hint(format!("it belongs to {}", kinds.join(", "))),
            });
        }
        match *kind {
            "agent" if !object.has("prompt") => self.missing(place, "a step with `agent`", "prompt"),
            "prompt" if !object.has("model") => {
                let message = "a step with `prompt` needs the field `model` or `agent`";
                self.problems.add(Problem::error("missing_field", place, message));
            }
            _ => {}
        }
    }

    fn branches(&mut self, place: &Place) -> BTreeMap<String, Vec<Step>> {
        if !self.is_map(place, "a map of branches") {
            return BTreeMap::new();
        }
        if place.entries().is_empty() {
            self.problems.add(Problem::error("missing_field", place, "`parallel` needs a branch").hint("write NAME: [STEP, ..]"));
        }
        let steps = |entry: &crate::document::yaml::Entry| {
            let place = place.below(&entry.key, &entry.node);
            (entry.key.clone(), self.steps(&place))
        };
        place.entries().iter().map(steps).collect()
    }

    fn values(&mut self, place: &Place) -> Option<BTreeMap<String, Value>> {
        let value = |entry: &crate::document::yaml::Entry| (entry.key.clone(), entry.node.to_value());
        self.is_map(place, "a map of names and values").then(|| place.entries().iter().map(value).collect())
    }

    fn texts(&mut self, object: &Object, field: &str) -> Vec<String> {
        let Some(place) = object.get(field) else { return Vec::new() };
        let items = self.items(&place, "a list of texts", "write [ .. ]");
        items.iter().filter_map(|item| self.text_of(item)).collect()
    }

    fn output(&mut self, place: &Place) -> Value {
        let value = place.node.to_value();
        self.schema(place, &value);
        value
    }

    fn sleep(&mut self, object: &Object) -> Option<String> {
        let place = object.get("sleep")?;
        if place.node.as_text().is_none_or(|text| !text.contains("{{")) {
            self.span(object, "sleep")?;
        }
        self.text_of(&place)
    }

    fn action(&mut self, place: &Place, with: Option<&Place>) -> Option<Action> {
        let name = self.text_of(place)?;
        let Some((_, action, arguments)) = ACTIONS.iter().find(|(known, ..)| *known == name) else {
            let names: Vec<&str> = ACTIONS.iter().map(|(name, ..)| *name).collect();
            let problem = Problem::error("unknown_action", place, format!("there is no action `{}`", shown(&name)));
            self.problems.add(match nearest(&name, names.iter().copied()) {
                Some(name) => problem.suggest(Some(name)),
                None => problem.hint(format!("actions are {}", names.join(", "))),
            });
            return None;
        };
        if let Some(with) = with.filter(|with| with.node.as_text().is_none_or(|text| !text.contains("{{"))) {
            self.object(with, &format!("the action `{name}`"), arguments);
        }
        let required: &[&str] = match action {
            Action::Http => &["url"],
            Action::Read | Action::Write => &["path"],
            Action::Json => &["text"],
            Action::Print | Action::Fail => &["message"],
            Action::Now | Action::Random | Action::Uuid => &[],
        };
        for argument in required {
            let is_missing = match with {
                Some(with) => matches!(with.node.kind, Kind::Map(_)) && with.node.get(argument).is_none(),
                None => true,
            };
            if is_missing {
                let message = format!("the action `{name}` needs the argument `{argument}`");
                self.problems.add(Problem::error("missing_field", with.unwrap_or(place), message));
            }
        }
        Some(*action)
    }

    fn each(&mut self, place: &Place) -> Option<Each> {
        if !matches!(place.node.kind, Kind::Map(_)) {
            let message = format!("expected a map with `in`, found {}", place.node.describe());
            self.problems.add(Problem::error("wrong_type", place, message).hint("write { in: LIST, as: item }"));
            return None;
        }
        let object = self.object(place, "`each`", &["in", "as", "concurrency", "collect_errors"])?;
        let items = match object.get("in") {
            Some(items) => match items.node.to_value() {
                value @ (Value::String(_) | Value::Array(_)) => Some(value),
                _ => {
                    self.wrong(&items, "an expression or a list");
                    None
                }
            },
            None => {
                self.missing(place, "`each`", "in");
                None
            }
        };
        Some(Each {
            items: items.unwrap_or_else(|| Value::Array(Vec::new())),
            name: self.text(&object, "as").unwrap_or_else(|| "item".to_owned()),
            concurrency: object.get("concurrency").and_then(|count| self.count_of(&count, CONCURRENCY_MAX)).unwrap_or(1),
            collect_errors: self.flag(&object, "collect_errors"),
        })
    }

    fn retry(&mut self, place: &Place) -> Option<Retry> {
        if !matches!(place.node.kind, Kind::Map(_)) {
            return self.count_of(place, ATTEMPTS_MAX).map(Retry::Attempts);
        }
        let object = self.object(place, "`retry`", &["attempts", "backoff", "backoff_max", "on"])?;
        if !object.has("attempts") {
            self.missing(place, "`retry`", "attempts");
        }
        let attempts = object.get("attempts").and_then(|count| self.count_of(&count, ATTEMPTS_MAX));
        let (backoff, backoff_max) = (self.span(&object, "backoff"), self.span(&object, "backoff_max"));
        if let (Some(first), Some(most), Some(place)) = (backoff, backoff_max, object.get("backoff_max"))
            && first > most
        {
            let message = format!("`backoff_max` is shorter than `backoff` ({most} and {first})");
            self.problems.add(Problem::error("out_of_range", &place, message));
        }
        let on = self.texts(&object, "on");
        Some(Retry::Policy(RetryPolicy { attempts: attempts.unwrap_or(1), backoff, backoff_max, on }))
    }

    fn memo(&mut self, place: &Place) -> Option<Memo> {
        if !matches!(place.node.kind, Kind::Map(_)) {
            let text = self.text_of(place)?;
            return self.span_of(place, &text).map(Memo::For);
        }
        let object = self.object(place, "`memo`", &["for", "key", "scope"])?;
        if !object.has("for") {
            self.missing(place, "`memo`", "for");
        }
        let scope = match object.get("scope") {
            None => MemoScope::default(),
            Some(scope) => match scope.node.as_text() {
                Some("namespace") => MemoScope::Namespace,
                Some("tree") => MemoScope::Tree,
                _ => {
                    self.wrong(&scope, "`namespace` or `tree`");
                    MemoScope::default()
                }
            },
        };
        let (ttl, key) = (self.span(&object, "for")?, self.text(&object, "key"));
        Some(Memo::Rule(MemoRule { ttl, key, scope }))
    }

    fn catches(&mut self, place: &Place) -> Vec<Catch> {
        let items = self.items(place, "a list of catches", "write [{ on: CODE, goto: STEP }]");
        items.iter().filter_map(|item| self.catch(item)).collect()
    }

    fn catch(&mut self, place: &Place) -> Option<Catch> {
        let object = self.object(place, "`catch`", &["on", "goto", "store"])?;
        let on = object.get("on").and_then(|on| match &on.node.kind {
            Kind::List(_) => Some(OneOrMany::Many(self.texts(&object, "on"))),
            _ => self.text_of(&on).map(OneOrMany::One),
        });
        let goto = self.required_text(&object, "goto")?;
        Some(Catch { on: on.unwrap_or_else(|| OneOrMany::One("any".to_owned())), goto, store: self.text(&object, "store") })
    }

    fn next(&mut self, place: &Place) -> Option<Next> {
        match &place.node.kind {
            Kind::List(_) => Some(Next::First(self.edges(place, &["when", "goto"]))),
            Kind::Map(_) if place.node.get("goto").is_some() => {
                let problem = Problem::error("wrong_type", place, "expected a list of ways, found one way");
                self.problems.add(problem.hint("write [{ goto: STEP }], or the name of the step"));
                None
            }
            Kind::Map(_) => {
                let object = self.object(place, "`next`", &["all"])?;
                let Some(all) = object.get("all") else {
                    self.missing(place, "`next`", "all");
                    return None;
                };
                Some(Next::All(AllEdges { all: self.edges(&all, &["when", "goto", "branch"]) }))
            }
            Kind::Scalar { value: Value::String(name), .. } => Some(Next::Goto(name.clone())),
            _ => {
                self.wrong(place, "the name of a step or a list of ways");
                None
            }
        }
    }

    fn edges(&mut self, place: &Place, fields: &[&str]) -> Vec<Edge> {
        let items = self.items(place, "a list of ways", "write [{ when: EXPRESSION, goto: STEP }]");
        let mut edges = Vec::new();
        for item in items {
            if let Some(name) = item.node.as_text() {
                let problem = Problem::error("wrong_type", &item, "expected a way, found a text");
                self.problems.add(problem.hint(format!("write {{ goto: {name} }}")));
                continue;
            }
            let Some(object) = self.object(&item, "a way", fields) else { continue };
            let when = self.text(&object, "when");
            let branch = fields.contains(&"branch").then(|| self.text(&object, "branch")).flatten();
            if let Some(goto) = self.required_text(&object, "goto") {
                edges.push(Edge { when, goto, branch });
            }
        }
        edges
    }

    fn join(&mut self, place: &Place) -> Option<Join> {
        if matches!(&place.node.kind, Kind::Scalar { value: Value::Null, .. }) {
            return Some(Join { branches: Vec::new(), wait: JoinCount::default(), take: BTreeMap::new() });
        }
        let object = self.object(place, "`join`", &["branches", "wait", "take"])?;
        let wait = object.get("wait").and_then(|wait| match wait.node.as_text() {
            Some("all") => Some(JoinCount::Word(JoinWord::All)),
            Some("any") => Some(JoinCount::Word(JoinWord::Any)),
            None if matches!(&wait.node.kind, Kind::Scalar { value: Value::Number(_), .. }) => {
                self.count_of(&wait, CONCURRENCY_MAX).map(JoinCount::Count)
            }
            _ => {
                self.wrong(&wait, "`all`, `any` or a number of branches");
                None
            }
        });
        let take = object.get("take").filter(|take| self.is_map(take, "a map of names"));
        let take = take.map(|take| {
            let read = |entry: &crate::document::yaml::Entry| {
                Some((entry.key.clone(), self.text_of(&take.below(&entry.key, &entry.node))?))
            };
            take.entries().iter().filter_map(read).collect()
        });
        Some(Join { branches: self.texts(&object, "branches"), wait: wait.unwrap_or_default(), take: take.unwrap_or_default() })
    }

    fn switch(&mut self, place: &Place) -> Option<Switch> {
        let object = self.object(place, "`switch`", &["on", "cases", "default"])?;
        if !object.has("on") {
            self.missing(place, "`switch`", "on");
        }
        let on = self.text(&object, "on");
        let Some(cases) = object.get("cases") else {
            self.missing(place, "`switch`", "cases");
            return None;
        };
        if !self.is_map(&cases, "a map of values and steps") {
            return None;
        }
        let read = |entry: &crate::document::yaml::Entry| {
            Some((entry.key.clone(), self.text_of(&cases.below(&entry.key, &entry.node))?))
        };
        let cases = cases.entries().iter().filter_map(read).collect();
        Some(Switch { on: on?, cases, default: self.text(&object, "default") })
    }

    fn undo(&mut self, place: &Place) -> Option<Undo> {
        let object = self.object(place, "`on_failure`", &["task", "action", "with", "retry"])?;
        match (object.has("task"), object.has("action")) {
            (true, true) => {
                self.problems
                    .add(Problem::error("several_kinds", place, "`on_failure` has a task and an action").hint("keep one"));
            }
            (false, false) => {
                let problem = Problem::error("no_kind", place, "`on_failure` does nothing");
                self.problems.add(problem.hint("add `task` or `action`"));
            }
            _ => {}
        }
        let with = object.get("with");
        Some(Undo {
            task: self.text(&object, "task"),
            action: object.get("action").and_then(|action| self.action(&action, with.as_ref())),
            with: with.map(|with| with.node.to_value()),
            retry: object.get("retry").and_then(|retry| self.retry(&retry)),
        })
    }
}
