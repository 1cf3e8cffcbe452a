//! Random flows: all kinds and modifiers, valid by construction.

use std::collections::BTreeMap;

use onward_flow::document::{
    self, Action, AllEdges, Catch, Each, Edge, Flow, Input, Join, JoinCount, JoinWord, Known, Memo, MemoRule, MemoScope, Next,
    OneOrMany, Retry, RetryPolicy, Severity, Span, Step, Switch, Undo,
};
use serde_json::{Value, json};

use super::random::Random;

/// The names of the state that have numbers in every flow.
const NUMBERS: [&str; 3] = ["n0", "n1", "n2"];

/// Names with any value.
const ANY: [&str; 4] = ["x0", "x1", "x2", "x3"];

/// The codes and classes of failures.
const CODES: [&str; 8] = ["any", "any", "timeout", "boom", "fatal", "canceled", "output_invalid", "expression_failed"];

pub struct Generator {
    random: Random,
    steps: usize,
    /// How many steps the flow may still have.
    left: usize,
    /// Names of the item, inside of a step with `each`.
    item: Option<&'static str>,
}

/// Makes a flow of up to 20 steps.
pub fn flow(seed: u64) -> Flow {
    of_size(seed, 3, 20)
}

/// Makes a flow of about `least` to `most` steps.
pub fn of_size(seed: u64, least: usize, most: usize) -> Flow {
    let mut random = Random::of(seed, "flow");
    let left = least + random.below(most + 1 - least);
    Generator { random, steps: 0, left, item: None }.flow()
}

/// Problems of a few flows, which the check of documents refuses and a machine bounds: cycles that never wait, and joins without
/// branches.
const BOUNDED: [&str; 4] = ["cycle_without_wait", "join_without_branches", "unknown_branch", "out_of_range"];

/// Asserts that the check of documents finds no error in a flow, but for these.
pub fn assert_valid(flow: &Flow) {
    let text = serde_json::to_string_pretty(flow).expect("a flow is JSON");
    let parsed = document::parse(&text, "random.json");
    let problems = document::check(&parsed, &Known::default());
    let is_error = |problem: &&document::Problem| problem.severity == Severity::Error && !BOUNDED.contains(&problem.code);
    let errors: Vec<_> = problems.iter().filter(is_error).collect();
    assert!(errors.is_empty(), "the generator makes valid flows: {errors:#?}");
    assert_eq!(parsed.flow.as_ref(), Some(flow), "a flow is read as it is written");
}

impl Generator {
    fn flow(&mut self) -> Flow {
        let number =
            Input { default: Some(json!(2)), description: None, schema: BTreeMap::from([("type".into(), json!("integer"))]) };
        let inputs = BTreeMap::from([("k".to_owned(), number)]);
        let mut state: BTreeMap<String, Value> = BTreeMap::new();
        for (at, name) in NUMBERS.iter().enumerate() {
            state.insert((*name).to_owned(), json!(at));
        }
        for name in ANY {
            state.insert(name.to_owned(), if self.random.chance(50) { json!([1, 2, 3]) } else { json!(0) });
        }
        state.insert("l".to_owned(), json!([4, 5, 6, 7]));
        state.insert("m".to_owned(), json!({ "a": 1, "b": [2] }));
        let first = Step { name: "init".to_owned(), set: Some(state), ..Step::default() };
        let mut steps = self.list(0, "");
        steps.insert(0, first);
        let output =
            self.random.chance(50).then(|| json!({ "n": "{{ state.n0 }}", "all": ["{{ state.x0 }}", "{{ inputs.k }}"] }));
        Flow { flow: "random".to_owned(), description: None, inputs, steps, output }
    }

    /// Makes a list of steps: plain ones, and groups that start and join branches.
    fn list(&mut self, depth: usize, prefix: &str) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let wanted = 1 + self.random.below(if depth == 0 { 8 } else { 3 });
        while steps.len() < wanted && self.left > 0 {
            match self.random.below(10) {
                0 | 1 if depth < 3 => self.parallel(depth, prefix, &mut steps),
                2 if depth < 3 => self.fork(prefix, &mut steps),
                _ => {
                    let step = self.plain(prefix);
                    steps.push(step);
                }
            }
        }
        self.add_ways(&mut steps);
        steps
    }

    fn name(&mut self, prefix: &str) -> String {
        self.steps += 1;
        self.left = self.left.saturating_sub(1);
        format!("{prefix}s{}", self.steps)
    }

    fn parallel(&mut self, depth: usize, prefix: &str, steps: &mut Vec<Step>) {
        let name = self.name(prefix);
        let mut branches = BTreeMap::new();
        for branch in ["a", "b", "c"].into_iter().take(1 + self.random.below(3)) {
            let mut list = self.list(depth + 1, &format!("{prefix}{branch}"));
            if list.is_empty() {
                list.push(self.plain(&format!("{prefix}{branch}")));
            }
            branches.insert(branch.to_owned(), list);
        }
        let names: Vec<String> = branches.keys().cloned().collect();
        steps.push(Step { name, parallel: Some(branches), when: self.seldom_when(), ..Step::default() });
        self.between_and_join(prefix, steps, &names);
    }

    /// Makes a step whose edges fork, the steps to which they lead, and a join.
    fn fork(&mut self, prefix: &str, steps: &mut Vec<Step>) {
        let mut fork = self.plain(prefix);
        let mut targets = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            targets.push(self.plain(prefix));
        }
        let join = self.random.chance(90).then(|| self.name(prefix));
        let mut edges = Vec::new();
        for (at, target) in targets.iter_mut().enumerate() {
            let branch = self.random.chance(50).then(|| format!("f{at}"));
            let when = self.random.chance(40).then(|| self.condition());
            edges.push(Edge { when, goto: target.name.clone(), branch });
            if let Some(join) = &join
                && self.random.chance(80)
            {
                target.next = Some(Next::Goto(join.clone()));
            }
        }
        let names: Vec<String> = edges.iter().map(|edge| edge.branch.clone().unwrap_or_else(|| edge.goto.clone())).collect();
        fork.next = Some(Next::All(AllEdges { all: edges }));
        steps.push(fork);
        steps.extend(targets);
        if let Some(join) = join {
            steps.push(self.join(join, &names));
        }
    }

    fn between_and_join(&mut self, prefix: &str, steps: &mut Vec<Step>, names: &[String]) {
        if self.random.chance(30) {
            steps.push(self.plain(prefix));
        }
        if self.random.chance(85) {
            let name = self.name(prefix);
            steps.push(self.join(name, names));
        }
    }

    fn join(&mut self, name: String, names: &[String]) -> Step {
        let wait = match self.random.below(4) {
            0 => JoinCount::Word(JoinWord::Any),
            1 => JoinCount::Count(1 + self.random.below(names.len()) as u32),
            _ => JoinCount::Word(JoinWord::All),
        };
        let branches = match self.random.below(3) {
            0 => names.to_vec(),
            1 if names.len() > 1 => names[1..].to_vec(),
            _ => Vec::new(),
        };
        let of = branches.first().or(names.first()).cloned().unwrap_or_default();
        let take = match self.random.below(3) {
            0 => BTreeMap::from([("n1".to_owned(), format!("{of}.n1")), ("x1".to_owned(), format!("{of}.x2"))]),
            1 => BTreeMap::from([("x2".to_owned(), of)]),
            _ => BTreeMap::new(),
        };
        let timeout = self.random.chance(20).then(|| Span::from_ms(5_000));
        let store = self.random.chance(40).then(|| self.any_name());
        Step { name, join: Some(Join { branches, wait, take }), timeout, store, ..Step::default() }
    }

    fn any_name(&mut self) -> String {
        self.random.pick(&ANY).to_owned()
    }

    fn number_name(&mut self) -> String {
        self.random.pick(&NUMBERS).to_owned()
    }

    /// Makes a step of a kind with calls, or `set`, with modifiers.
    fn plain(&mut self, prefix: &str) -> Step {
        let mut step = Step { name: self.name(prefix), ..Step::default() };
        step.when = self.seldom_when();
        if self.random.chance(25) {
            step.each = Some(self.each());
            self.item = Some("item");
        }
        self.kind(&mut step);
        if step.set.is_none() {
            self.time(&mut step);
        }
        if step.task.is_some() || step.action.is_some() || (step.prompt.is_some() && step.agent.is_none()) {
            step.memo = self.memo(&step.name);
        }
        if self.random.chance(20) {
            step.on_failure = Some(self.undo());
        }
        self.item = None;
        if self.random.chance(40) && step.set.is_none() {
            step.store = Some(self.any_name());
        }
        step
    }

    fn seldom_when(&mut self) -> Option<String> {
        self.random.chance(12).then(|| self.condition())
    }

    fn kind(&mut self, step: &mut Step) {
        let schema = self.schema();
        match self.random.below(10) {
            0 | 1 => {
                step.task = Some("work".to_owned());
                step.with = self.random.chance(80).then(|| json!({ "a": self.template(), "b": [self.template()] }));
                step.queue = self.random.chance(20).then(|| "slow".to_owned());
            }
            2 => {
                step.action = Some(Action::Print);
                step.with = Some(json!({ "message": self.text() }));
            }
            3 => {
                step.prompt = Some(self.text());
                step.model = Some("small".to_owned());
                step.system = self.random.chance(30).then(|| self.text());
                step.output = schema;
            }
            4 => {
                step.prompt = Some(self.text());
                step.agent = Some("writer".to_owned());
                step.output = schema;
            }
            5 => {
                step.approval = Some(self.text());
                step.show = self.random.chance(50).then(|| json!({ "page": self.template() }));
                step.deciders = if self.random.chance(30) { vec![self.text()] } else { Vec::new() };
                step.answer = self.random.chance(30).then(|| json!({ "type": "integer" }));
                step.within = self.random.chance(50).then(|| Span::from_ms(9_000));
            }
            6 => {
                step.wait = Some(self.text());
                step.within = self.random.chance(50).then(|| Span::from_ms(9_000));
                step.output = self.wide_schema();
            }
            7 => {
                step.sleep = Some(self.random.pick(&["5s", "{{ inputs.k }}", "{{ state.n0 / 2 }}", "{{ state.x0 }}"]).to_owned())
            }
            8 => {
                step.child = Some("other".to_owned());
                step.with = Some(json!({ "of": self.template() }));
                step.output = self.wide_schema();
            }
            _ => {
                let name = self.number_name();
                step.set = Some(BTreeMap::from([(name.clone(), json!(format!("{{{{ state.{name} + 1 }}}}")))]));
            }
        }
    }

    /// Makes a schema that most answers of a child or a signal fit.
    fn wide_schema(&mut self) -> Option<Value> {
        self.random.chance(30).then(|| json!({ "type": ["integer", "array", "object", "boolean"] }))
    }

    fn schema(&mut self) -> Option<Value> {
        self.random.chance(40).then(|| {
            if self.random.chance(60) {
                json!({ "type": "integer", "maximum": 9 })
            } else {
                json!({ "type": "array", "items": { "type": "integer" } })
            }
        })
    }

    fn each(&mut self) -> Each {
        let items = match self.random.below(6) {
            0 => json!("state.l"),
            1 => json!("state.m"),
            2 => json!("{{ state.x0 }}"),
            3 => json!("range(state.n0)"),
            4 => json!("{'p': 1, 'q': state.n1}"),
            _ => json!([1, "{{ state.n2 }}", 3]),
        };
        let concurrency = 1 + self.random.below(3) as u32;
        Each { items, name: "item".to_owned(), concurrency, collect_errors: self.random.chance(30) }
    }

    fn time(&mut self, step: &mut Step) {
        if self.random.chance(25) {
            step.retry = Some(if self.random.chance(40) {
                Retry::Attempts(1 + self.random.below(3) as u32)
            } else {
                Retry::Policy(RetryPolicy {
                    attempts: 1 + self.random.below(4) as u32,
                    backoff: self.random.chance(50).then(|| Span::from_ms(100)),
                    backoff_max: self.random.chance(30).then(|| Span::from_ms(300)),
                    on: if self.random.chance(40) { vec![self.random.pick(&CODES).to_owned()] } else { Vec::new() },
                })
            });
        }
        if self.random.chance(25) {
            step.timeout = Some(Span::from_ms(4_000));
        }
    }

    fn memo(&mut self, step: &str) -> Option<Memo> {
        let ttl = Span::from_ms(if self.random.chance(50) { 3_600_000 } else { 2_000 });
        match self.random.below(10) {
            0 => Some(Memo::For(ttl)),
            1 => {
                let scope = if self.random.chance(50) { MemoScope::Namespace } else { MemoScope::Tree };
                let key = self.random.chance(70).then(|| format!("{step}/{}", self.text()));
                Some(Memo::Rule(MemoRule { ttl, key, scope }))
            }
            _ => None,
        }
    }

    fn undo(&mut self) -> Undo {
        let with = Some(json!({ "of": "{{ result }}", "n": self.template() }));
        let retry = self.random.chance(30).then_some(Retry::Attempts(2));
        if self.random.chance(70) {
            Undo { task: Some("undo".to_owned()), action: None, with, retry }
        } else {
            Undo { task: None, action: Some(Action::Print), with: Some(json!({ "message": "{{ result }}" })), retry }
        }
    }

    /// Adds `next`, `switch` and `catch` to the steps of a list. A way back counts, so that most loops end.
    fn add_ways(&mut self, steps: &mut Vec<Step>) {
        if self.random.chance(20) && !steps.is_empty() {
            let at = self.random.below(steps.len());
            let name = self.name(steps[0].name.split('s').next().unwrap_or_default().to_owned().as_str());
            steps.insert(at, Step { name, set: Some(BTreeMap::new()), ..Step::default() });
        }
        let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
        for (at, step) in steps.iter_mut().enumerate() {
            if step.set.as_ref().is_some_and(BTreeMap::is_empty) {
                step.set = None;
                step.switch = Some(self.switch(at, &names));
            } else if step.next.is_none() && self.random.chance(25) {
                step.next = Some(self.next(at, &names));
            }
            for _ in 0..2 {
                if self.random.chance(25) && step.switch.is_none() && step.parallel.is_none() {
                    let catch = self.catch(at, &names);
                    step.catch.push(catch);
                }
            }
        }
    }

    /// Chooses a step after this one, or the end.
    fn forward(&mut self, at: usize, names: &[String]) -> String {
        let later = &names[(at + 1).min(names.len())..];
        if later.is_empty() || self.random.chance(10) { "end".to_owned() } else { later[self.random.below(later.len())].clone() }
    }

    fn next(&mut self, at: usize, names: &[String]) -> Next {
        match self.random.below(10) {
            0..=2 => Next::Goto(self.forward(at, names)),
            3 | 4 => {
                // Back, if the number is small, which some step on the way may increase.
                let back = names[self.random.below(at + 1)].clone();
                let when = Some(format!("state.{} < 3 and result is not none", self.number_name()));
                Next::First(vec![Edge { when, goto: back, branch: None }])
            }
            5 => {
                let (one, two) = (self.forward(at, names), self.forward(at, names));
                let edge = |goto: String, branch: &str| Edge { when: None, goto, branch: Some(branch.to_owned()) };
                let mut edges = vec![edge(one, "g0"), edge(two, "g1")];
                edges[0].when = self.random.chance(50).then(|| self.condition());
                Next::All(AllEdges { all: edges })
            }
            _ => {
                let first = Edge { when: Some(self.condition()), goto: self.forward(at, names), branch: None };
                let second = Edge { when: self.random.chance(50).then(|| self.condition()), ..first.clone() };
                Next::First(vec![first, Edge { goto: self.forward(at, names), ..second }])
            }
        }
    }

    fn switch(&mut self, at: usize, names: &[String]) -> Switch {
        let on = self.random.pick(&["state.n0 % 3", "state.n1 > 1", "state.x0", "result", "inputs.k"]).to_owned();
        let mut cases = BTreeMap::new();
        for value in ["0", "1", "true", "text", "null"].into_iter().take(1 + self.random.below(5)) {
            cases.insert(value.to_owned(), self.forward(at, names));
        }
        let default = self.random.chance(50).then(|| self.forward(at, names));
        Switch { on, cases, default }
    }

    fn catch(&mut self, at: usize, names: &[String]) -> Catch {
        let on = if self.random.chance(70) {
            OneOrMany::One(self.random.pick(&CODES).to_owned())
        } else {
            OneOrMany::Many(vec![self.random.pick(&CODES).to_owned(), self.random.pick(&CODES).to_owned()])
        };
        Catch { on, goto: self.forward(at, names), store: self.random.chance(50).then(|| "x3".to_owned()) }
    }

    fn condition(&mut self) -> String {
        let name = self.number_name();
        let condition = match self.random.below(7) {
            0 => format!("state.{name} % 2 == 0"),
            1 => format!("state.{name} > inputs.k"),
            2 => "state.x0".to_owned(),
            3 => "state.x1 is sequence".to_owned(),
            4 => "error is defined and error.code == 'boom'".to_owned(),
            5 => format!("not (state.{name} == 1)"),
            _ => "true".to_owned(),
        };
        if self.random.chance(10) { format!("{{{{ {condition} }}}}") } else { condition }
    }

    /// Makes a template whose value is anything.
    fn template(&mut self) -> Value {
        if let Some(item) = self.item
            && self.random.chance(50)
        {
            return json!(format!("{{{{ {item} }}}}"));
        }
        match self.random.below(8) {
            0 => json!(7),
            1 => json!("{{ state }}"),
            2 => json!(format!("{{{{ state.{} * 2 }}}}", self.number_name())),
            3 => json!(format!("x {{{{ state.{} }}}}", self.any_name())),
            4 => json!("{{ error.code | default('none') }}"),
            5 => json!("{{ run.id }}"),
            // Fails for most values.
            6 if self.random.chance(20) => json!("{{ state.x1.a }}"),
            _ => json!(format!("{{{{ state.{} }}}}", self.any_name())),
        }
    }

    fn text(&mut self) -> String {
        match (self.random.below(4), self.item) {
            (0, Some(item)) => format!("about {{{{ {item} }}}} at {{{{ key }}}}"),
            (1, _) => format!("n is {{{{ state.{} }}}}", self.number_name()),
            (2, _) => format!("x is {{{{ state.{} }}}} and {{{{ inputs.k }}}}", self.any_name()),
            _ => "plain".to_owned(),
        }
    }
}
