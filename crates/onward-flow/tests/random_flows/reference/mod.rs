//! A plain interpreter of flows: recursive async functions, straight from the semantics. A call is a future, and dropping a future
//! cancels its calls. Shares no code with the machine but the types of documents, calls and expressions.

mod executor;
mod joins;
mod step;
mod work;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use onward_flow::document::{Flow, Step};
use onward_flow::expression::{Expression, ExpressionError, Scope, Template};
use onward_flow::machine::{Call, CallId, CallRequest, FlowFailure, MachineLimits};
use serde_json::{Map, Value, json};

use executor::Executor;

/// What the reference did in a turn.
#[derive(Debug, Default, PartialEq)]
pub struct Turn {
    pub cancels: Vec<CallId>,
    pub calls: Vec<Call>,
    pub end: Option<Result<Value, FlowFailure>>,
}

type Failed<T> = Result<T, FlowFailure>;

/// The limits of the cases, which are small, so that random flows reach them.
pub const LIMITS: MachineLimits = MachineLimits {
    items: 5,
    begins_in_turn: 200,
    operations_in_turn: 2_000_000,
    begins: 2_000,
    paths: 12,
    state_bytes: 2_000,
    open_bytes: 1_000_000,
    depth: 8,
};

/// A run of a flow.
pub struct Reference<'f> {
    flow: Rc<Context<'f>>,
    main: Option<PathRef>,
    has_ended: bool,
}

/// What all paths share.
struct Context<'f> {
    flow: &'f Flow,
    limits: MachineLimits,
    executor: Executor<'f>,
    inputs: Value,
    run: Value,
    /// The failure of the flow.
    failure: RefCell<Option<FlowFailure>>,
    undoes: RefCell<Vec<(String, String, Failed<CallRequest>)>>,
    failures: RefCell<u64>,
    begins_in_turn: RefCell<u32>,
    begins: RefCell<u32>,
    paths: RefCell<Vec<PathRef>>,
    undone: RefCell<Option<Vec<Value>>>,
}

/// A path: the run itself or a branch.
struct Path {
    task: usize,
    limits: MachineLimits,
    name: String,
    is_fork: bool,
    parent: Option<PathRef>,
    may_be_joined: bool,
    state: Map<String, Value>,
    error: Option<Value>,
    last: Value,
    /// Branches that are not joined yet, by the step that started them.
    groups: Vec<Vec<PathRef>>,
    over: Option<Over>,
    /// Whether it was canceled or joined.
    is_gone: bool,
}

#[derive(Clone)]
enum Over {
    Ended,
    Failed(FlowFailure, u64),
}

type PathRef = Rc<RefCell<Path>>;

impl<'f> Reference<'f> {
    pub fn start(flow: &'f Flow, input: Value, id: &str, limits: MachineLimits) -> (Reference<'f>, Turn) {
        let inputs = inputs(flow, input);
        let context = Rc::new(Context {
            flow,
            limits,
            executor: Executor::default(),
            inputs: inputs.clone().unwrap_or_default(),
            run: json!({ "id": id }),
            failure: RefCell::default(),
            undoes: RefCell::default(),
            failures: RefCell::default(),
            begins_in_turn: RefCell::default(),
            begins: RefCell::default(),
            paths: RefCell::default(),
            undone: RefCell::default(),
        });
        let mut reference = Reference { flow: context, main: None, has_ended: false };
        if let Err(failure) = inputs {
            reference.has_ended = true;
            return (reference, Turn { end: Some(Err(failure)), ..Turn::default() });
        }
        let first = (!flow.steps.is_empty()).then_some(0);
        let main = start_path(&reference.flow, &flow.steps, first, String::new(), false, None);
        reference.main = Some(main);
        let turn = reference.turn();
        (reference, turn)
    }

    pub fn answer(&mut self, call: CallId, answer: Failed<Value>) -> Turn {
        self.flow.executor.answer(call, answer);
        self.turn()
    }

    pub fn state(&self) -> Value {
        self.main.as_ref().map_or_else(|| json!({}), |main| Value::Object(main.borrow().state.clone()))
    }

    fn turn(&mut self) -> Turn {
        let flow = self.flow.clone();
        *flow.begins_in_turn.borrow_mut() = 0;
        let mut end = None;
        loop {
            let goes_on = flow.executor.run(|| flow.failure.borrow().is_some());
            if flow.undone.borrow().is_some() {
                if !flow.executor.any_open() {
                    end = Some(Err(self.failure()));
                }
                break;
            }
            if flow.failure.borrow().is_none() {
                if goes_on {
                    break;
                }
                let state = self.state();
                let scope = Scope::new().with("inputs", &flow.inputs).with("run", &flow.run).with("state", &state);
                match flow.flow.output.as_ref().map_or(Ok(state), |output| render(output, &scope)) {
                    Ok(output) => {
                        end = Some(Ok(output));
                        break;
                    }
                    Err(failure) => *flow.failure.borrow_mut() = Some(failure),
                }
            }
            // The flow has failed: everything else is dropped, and compensation begins.
            flow.executor.drop_all();
            *flow.undone.borrow_mut() = Some(Vec::new());
            flow.executor.spawn(compensate(flow.clone()));
        }
        self.has_ended = end.is_some();
        let (cancels, calls) = flow.executor.take();
        Turn { cancels, calls, end }
    }

    /// Returns the failure of the flow with the failures of compensation.
    fn failure(&self) -> FlowFailure {
        let mut failure = self.flow.failure.borrow().clone().expect("the flow has failed");
        let undone = self.flow.undone.borrow().clone().unwrap_or_default();
        if !undone.is_empty() {
            failure.details = Some(match failure.details {
                Some(Value::Object(mut details)) => {
                    details.insert("compensation".to_owned(), json!(undone));
                    Value::Object(details)
                }
                None => json!({ "compensation": undone }),
                Some(other) => json!({ "compensation": undone, "details": other }),
            });
        }
        failure
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        // The futures hold the context, which holds them.
        self.flow.executor.drop_all();
    }
}

async fn compensate(flow: Rc<Context<'_>>) {
    loop {
        let Some((step, label, request)) = flow.undoes.borrow_mut().pop() else { return };
        let result = match request {
            Ok(request) => flow.executor.call(label, request).await,
            Err(failure) => Err(failure),
        };
        if let (Err(failure), Some(undone)) = (result, flow.undone.borrow_mut().as_mut()) {
            undone.push(json!({ "step": step, "code": failure.code, "message": failure.message }));
        }
    }
}

fn start_path<'f>(
    flow: &Rc<Context<'f>>,
    list: &'f [Step],
    first: Option<usize>,
    name: String,
    is_fork: bool,
    parent: Option<&PathRef>,
) -> PathRef {
    let may_be_joined = parent.is_some() && !name.is_empty();
    let (state, error) = parent.map(|parent| (parent.borrow().state.clone(), parent.borrow().error.clone())).unwrap_or_default();
    let path = Path {
        task: 0,
        limits: flow.limits,
        name,
        is_fork,
        parent: parent.cloned(),
        may_be_joined,
        state,
        error,
        last: Value::Null,
        groups: Vec::new(),
        over: None,
        is_gone: false,
    };
    let path = Rc::new(RefCell::new(path));
    let task = flow.executor.spawn(step::run(flow.clone(), path.clone(), list, first));
    path.borrow_mut().task = task;
    flow.paths.borrow_mut().push(path.clone());
    path
}

/// Checks that there is room for more branches.
fn check_room(flow: &Context<'_>, branches: usize) -> Failed<()> {
    let is_there = |path: &&PathRef| {
        let path = path.borrow();
        path.parent.is_none() || (!path.is_gone && (path.over.is_none() || path.may_be_joined))
    };
    if flow.paths.borrow().iter().filter(is_there).count() + branches > flow.limits.paths {
        let message = format!("more than {} branches at the same time", flow.limits.paths);
        return Err(FlowFailure::permanent("too_many_branches", message));
    }
    Ok(())
}

/// Sets a name of the state, which is limited in size.
fn set(path: &PathRef, name: &str, value: Value) -> Failed<()> {
    let too_large = |message: String| Err(FlowFailure::permanent("value_too_large", message));
    let limits = path.borrow().limits;
    if depth(&value) > limits.depth {
        return too_large(format!("the value of `{name}` has more than {} levels", limits.depth));
    }
    let mut state = path.borrow().state.clone();
    state.insert(name.to_owned(), value);
    let bytes = state_bytes(&state);
    if bytes > limits.state_bytes {
        return too_large(format!("with `{name}` the state has {bytes} bytes, more than {}", limits.state_bytes));
    }
    path.borrow_mut().state = state;
    Ok(())
}

/// Returns the bytes of a state as JSON, with a comma after each entry.
fn state_bytes(state: &Map<String, Value>) -> usize {
    json!(state).to_string().len() + usize::from(!state.is_empty())
}

fn depth(value: &Value) -> usize {
    let of = |value: Option<usize>| 1 + value.unwrap_or(0);
    match value {
        Value::Array(items) => of(items.iter().map(depth).max()),
        Value::Object(fields) => of(fields.values().map(depth).max()),
        _ => 0,
    }
}

fn inputs(flow: &Flow, input: Value) -> Failed<Value> {
    let mut problems = Vec::new();
    let mut given = match input {
        Value::Null => Map::new(),
        Value::Object(given) => given,
        _ => return Err(invalid_input(vec!["the input is not an object".to_owned()])),
    };
    for name in given.keys().filter(|name| !flow.inputs.contains_key(*name)) {
        problems.push(format!("`{name}` is not an input"));
    }
    for (name, input) in &flow.inputs {
        let value = given.get(name).or(input.default.as_ref()).cloned();
        let Some(value) = value else {
            problems.push(format!("`{name}` is missing"));
            continue;
        };
        problems.extend(schema_problems(name, &json!(input.schema), &value));
        given.insert(name.clone(), value);
    }
    if problems.is_empty() { Ok(Value::Object(given)) } else { Err(invalid_input(problems)) }
}

fn invalid_input(problems: Vec<String>) -> FlowFailure {
    let message = format!("the input is invalid: {}", problems.join("; "));
    FlowFailure { details: Some(json!({ "problems": problems })), ..FlowFailure::permanent("invalid_input", message) }
}

fn schema_problems(name: &str, schema: &Value, value: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).expect("the generator makes valid schemas");
    let problem = |error: jsonschema::ValidationError<'_>| {
        let part = schema.pointer(error.schema_path().as_str()).map(Value::to_string).unwrap_or_default();
        format!("`{name}{}` does not fit `{}: {part}`", error.instance_path(), error.kind().keyword())
    };
    validator.iter_errors(value).map(problem).collect()
}

fn of_expression(error: ExpressionError) -> FlowFailure {
    FlowFailure {
        details: Some(json!({ "expression": error.source.clone() })),
        ..FlowFailure::permanent("expression_failed", error.to_string())
    }
}

fn is_true(source: &str, scope: &Scope) -> Failed<bool> {
    Expression::compile(source).and_then(|compiled| compiled.is_true(scope)).map_err(of_expression)
}

fn eval(source: &str, scope: &Scope) -> Failed<Value> {
    Expression::compile(source).and_then(|compiled| compiled.eval(scope)).map_err(of_expression)
}

fn render(template: &Value, scope: &Scope) -> Failed<Value> {
    Template::compile(template).and_then(|compiled| compiled.render(scope)).map_err(of_expression)
}

fn text(template: &str, scope: &Scope) -> Failed<String> {
    Template::of_text(template).and_then(|compiled| compiled.text(scope)).map_err(of_expression)
}

fn error_value(failure: &FlowFailure) -> Value {
    json!({ "code": failure.code, "message": failure.message, "step": failure.step, "details": failure.details })
}

/// The names of a step by its name, as a map that grows.
type Steps = BTreeMap<String, usize>;

fn find(list: &[Step], name: &str) -> Option<usize> {
    let names: Steps = list.iter().enumerate().map(|(at, step)| (step.name.clone(), at)).collect();
    names.get(name).copied()
}
