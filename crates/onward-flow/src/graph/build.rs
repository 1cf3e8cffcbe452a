//! Builds the graph of a flow.

use std::collections::HashMap;

use super::text::{clean, condition};
use super::{Badge, BadgeKind, Edge, EdgeKind, Graph, GraphNode, NodeKind};
use crate::document::{END, Flow, Join, JoinCount, JoinWord, Next, OneOrMany, Retry, Step};

/// The longest text of a badge or label, in characters.
const WORDS_MAX: usize = 60;

impl Graph {
    /// Builds the graph of a flow. Names that no step has become nodes of the kind [`NodeKind::Unknown`].
    pub fn of(flow: &Flow) -> Graph {
        let graph = Graph {
            name: clean(&flow.flow),
            description: flow.description.as_deref().map(clean),
            nodes: Vec::new(),
            edges: Vec::new(),
        };
        let mut builder = Builder { graph, edges: HashMap::new(), unknown: HashMap::new() };
        let inputs = flow.inputs.keys().map(|name| clean(name)).collect::<Vec<_>>().join(", ");
        let start = builder.node(NodeKind::Start, &flow.flow, Some(inputs).filter(|inputs| !inputs.is_empty()));
        let steps = builder.place(&flow.steps);
        let end = builder.node(NodeKind::End, END, None);
        builder.edge(start, steps.first().map_or(end, |first| first.node), EdgeKind::Next, None);
        builder.connect(&steps, end, EdgeKind::Next);
        builder.graph
    }
}

/// A step with its node, and its branches.
struct Placed<'a> {
    step: &'a Step,
    node: usize,
    branches: Vec<(&'a str, Vec<Placed<'a>>)>,
}

struct Builder {
    graph: Graph,
    /// The position of each edge.
    edges: HashMap<(usize, usize, EdgeKind), usize>,
    /// The nodes of names that no step has.
    unknown: HashMap<String, usize>,
}

/// Where the paths of a list of steps go.
struct StepList {
    names: HashMap<String, usize>,
    /// Where a path goes that ends.
    end: usize,
    /// The kind of the edges to the end.
    arrival: EdgeKind,
}

impl Builder {
    fn node(&mut self, kind: NodeKind, name: &str, detail: Option<String>) -> usize {
        self.graph.nodes.push(GraphNode { kind, name: clean(name), detail, text: None, badges: Vec::new() });
        self.graph.nodes.len() - 1
    }

    /// Adds an edge. Several edges of a kind between the same nodes are one.
    fn edge(&mut self, from: usize, to: usize, kind: EdgeKind, label: Option<String>) {
        let label = label.map(|label| label.chars().take(WORDS_MAX).collect::<String>());
        match self.edges.get(&(from, to, kind)) {
            None => {
                self.edges.insert((from, to, kind), self.graph.edges.len());
                self.graph.edges.push(Edge { from, to, kind, label });
            }
            Some(&at) => {
                let existing = &mut self.graph.edges[at].label;
                *existing = match (existing.take(), label) {
                    (Some(first), Some(second)) if first.len() < WORDS_MAX => Some(format!("{first}, {second}")),
                    (first, second) => second.and(first),
                };
            }
        }
    }

    fn place<'a>(&mut self, steps: &'a [Step]) -> Vec<Placed<'a>> {
        let mut placed = Vec::with_capacity(steps.len());
        for step in steps {
            let (kind, detail, text) = describe(step);
            let node = self.node(kind, &step.name, detail);
            self.graph.nodes[node].text = text.map(clean);
            self.graph.nodes[node].badges = badges(step);
            let branches = step.parallel.iter().flatten();
            let branches = branches.map(|(name, steps)| (name.as_str(), self.place(steps))).collect();
            placed.push(Placed { step, node, branches });
        }
        placed
    }

    fn connect(&mut self, steps: &[Placed], end: usize, arrival: EdgeKind) {
        let mut names = HashMap::new();
        for placed in steps {
            names.entry(placed.step.name.clone()).or_insert(placed.node);
        }
        let list = StepList { names, end, arrival };
        for (at, placed) in steps.iter().enumerate() {
            let following = steps.get(at + 1).map_or(end, |next| next.node);
            self.connect_branches(placed, &steps[at + 1..], &list);
            self.connect_next(placed, following, &list);
            for catch in &placed.step.catch {
                let on = match &catch.on {
                    OneOrMany::One(on) => clean(on),
                    OneOrMany::Many(all) => all.iter().map(|on| clean(on)).collect::<Vec<_>>().join(", "),
                };
                self.go(
                    placed.node,
                    &catch.goto,
                    EdgeKind::Catch,
                    Some(if on == "any" { "failure".to_owned() } else { on }),
                    &list,
                );
            }
        }
    }

    /// Connects the branches of `parallel`, each with the join that waits for it.
    fn connect_branches(&mut self, placed: &Placed, later: &[Placed], list: &StepList) {
        for (name, steps) in &placed.branches {
            let waits = |join: &Join| join.branches.is_empty() || join.branches.iter().any(|branch| branch == name);
            let join = later.iter().find(|later| later.step.join.as_ref().is_some_and(waits)).map(|later| later.node);
            let arrival = if join.is_some() { EdgeKind::Join } else { list.arrival };
            let end = join.unwrap_or(list.end);
            let first = steps.first().map_or(end, |first| first.node);
            self.edge(placed.node, first, EdgeKind::Branch, Some(clean(name)));
            self.connect(steps, end, arrival);
        }
    }

    fn connect_next(&mut self, placed: &Placed, following: usize, list: &StepList) {
        let (step, node) = (placed.step, placed.node);
        let before = self.graph.edges.len();
        let is_open = match (&step.next, &step.switch) {
            (Some(Next::Goto(goto)), _) => {
                self.go(node, goto, EdgeKind::Next, None, list);
                false
            }
            (Some(Next::First(edges)), _) => {
                let until = edges.iter().position(|edge| edge.when.is_none());
                for edge in edges.iter().take(until.map_or(edges.len(), |at| at + 1)) {
                    let label = edge.when.as_deref().map(condition).or((edges.len() > 1).then(|| "else".to_owned()));
                    self.go(node, &edge.goto, EdgeKind::Next, label, list);
                }
                until.is_none()
            }
            (Some(Next::All(all)), _) => {
                for edge in &all.all {
                    let label = edge.when.as_deref().map(condition).or(edge.branch.as_deref().map(clean));
                    self.go(node, &edge.goto, EdgeKind::Branch, label, list);
                }
                all.all.iter().all(|edge| edge.when.is_some())
            }
            (None, Some(switch)) => {
                for (case, goto) in &switch.cases {
                    self.go(node, goto, EdgeKind::Next, Some(clean(case)), list);
                }
                switch.default.iter().for_each(|goto| self.go(node, goto, EdgeKind::Next, Some("else".to_owned()), list));
                switch.default.is_none()
            }
            (None, None) => true,
        };
        let has_edges = self.graph.edges.len() > before;
        let kind = if following == list.end { list.arrival } else { EdgeKind::Next };
        if is_open && !self.is_joined(placed, following) {
            self.edge(node, following, kind, has_edges.then(|| "else".to_owned()));
        } else if step.when.is_some() && !self.graph.edges[before..].iter().any(|edge| edge.to == following) {
            self.edge(node, following, EdgeKind::Skip, Some("skipped".to_owned()));
        }
    }

    /// Returns whether the branches of `parallel` lead to the step that follows, so that an edge of its own would say nothing.
    fn is_joined(&self, placed: &Placed, following: usize) -> bool {
        let is_join = self.graph.nodes.get(following).is_some_and(|node| node.kind == NodeKind::Join);
        is_join
            && self.graph.edges.iter().any(|edge| edge.to == following && edge.kind == EdgeKind::Join)
            && !placed.branches.is_empty()
    }

    fn go(&mut self, from: usize, goto: &str, kind: EdgeKind, label: Option<String>, list: &StepList) {
        let (to, kind) = match list.names.get(goto) {
            Some(to) => (*to, kind),
            None if goto == END && kind == EdgeKind::Next => (list.end, list.arrival),
            None if goto == END => (list.end, kind),
            None => (self.unknown(goto), kind),
        };
        self.edge(from, to, kind, label);
    }

    fn unknown(&mut self, name: &str) -> usize {
        if let Some(node) = self.unknown.get(name) {
            return *node;
        }
        let node = self.node(NodeKind::Unknown, name, Some("no such step".to_owned()));
        self.unknown.insert(name.to_owned(), node);
        node
    }
}

/// Returns the kind of a step, what it calls, and the text that it sends.
fn describe(step: &Step) -> (NodeKind, Option<String>, Option<&str>) {
    let prompt = step.prompt.as_deref();
    if let Some(agent) = &step.agent {
        return (NodeKind::Agent, Some(clean(agent)), prompt);
    }
    if prompt.is_some() {
        return (NodeKind::Prompt, step.model.as_deref().map(clean), prompt);
    }
    if let Some(title) = step.approval.as_deref() {
        return (NodeKind::Approval, Some(clean(title)), Some(title));
    }
    let named = |kind, name: &Option<String>| name.as_deref().map(|name| (kind, clean(name)));
    let found = named(NodeKind::Task, &step.task)
        .or_else(|| step.action.map(|action| (NodeKind::Action, serde_word(&action))))
        .or_else(|| named(NodeKind::Wait, &step.wait))
        .or_else(|| named(NodeKind::Sleep, &step.sleep))
        .or_else(|| named(NodeKind::Child, &step.child))
        .or_else(|| step.set.as_ref().map(|set| (NodeKind::Set, list(set.keys()))))
        .or_else(|| step.parallel.as_ref().map(|branches| (NodeKind::Parallel, list(branches.keys()))))
        .or_else(|| step.join.as_ref().map(|join| (NodeKind::Join, describe_join(join))))
        .or_else(|| step.switch.as_ref().map(|switch| (NodeKind::Switch, condition(&switch.on))));
    match found {
        Some((kind, detail)) => (kind, Some(detail), None),
        None => (NodeKind::Unknown, Some("no kind".to_owned()), None),
    }
}

fn describe_join(join: &Join) -> String {
    let count = match join.wait {
        JoinCount::Word(JoinWord::All) => "all".to_owned(),
        JoinCount::Word(JoinWord::Any) => "any".to_owned(),
        JoinCount::Count(count) => count.to_string(),
    };
    if join.branches.is_empty() {
        format!("{count} of its branches")
    } else {
        format!("{count} of {}", list(join.branches.iter()))
    }
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| clean(name)).collect::<Vec<_>>().join(", ")
}

/// Returns the word of a value that is written as one.
fn serde_word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn badges(step: &Step) -> Vec<Badge> {
    let mut badges = Vec::new();
    let mut add = |kind, text: String| badges.push(Badge { kind, text: text.chars().take(WORDS_MAX).collect() });
    if let Some(when) = &step.when {
        add(BadgeKind::When, format!("if {}", condition(when)));
    }
    if let Some(each) = &step.each {
        add(
            BadgeKind::Each,
            if each.concurrency > 1 { format!("each, {} at once", each.concurrency) } else { "each".to_owned() },
        );
    }
    let attempts = step.retry.as_ref().map(|retry| match retry {
        Retry::Attempts(attempts) => *attempts,
        Retry::Policy(policy) => policy.attempts,
    });
    if let Some(attempts) = attempts.filter(|attempts| *attempts > 1) {
        add(BadgeKind::Retry, format!("{attempts} attempts"));
    }
    if let Some(timeout) = step.timeout {
        add(BadgeKind::Timeout, format!("timeout {timeout}"));
    }
    if let Some(within) = step.within {
        add(BadgeKind::Within, format!("within {within}"));
    }
    if !step.catch.is_empty() {
        add(BadgeKind::Catch, "catch".to_owned());
    }
    if step.on_failure.is_some() {
        add(BadgeKind::Undo, "undo".to_owned());
    }
    badges
}
