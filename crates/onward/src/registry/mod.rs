//! The registry of a worker: workflows by kind and version, tasks by kind, and shared dependencies.

mod schemas;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::{BoxError, ErrorCode, ErrorInfo, Failure, Name, NameError, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::agent::AgentCtx;
use crate::ctx::{Ctx, payload_or_failure};
use crate::host::cell::Deps;
use crate::host::code::{Handler, RunFuture, UserFunction};
use crate::middleware::{Middleware, Middlewares};
use crate::shell::Shell;
use crate::task::TaskCtx;

pub(crate) use schemas::{Checks, Latest, Message, Schemas, check_output};

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = Result<Payload>> + Send>>;
pub(crate) type TaskHandler = Arc<dyn Fn(TaskCtx, Payload) -> TaskFuture + Send + Sync>;

/// A workflow kind: the version of new runs, and the code of all versions.
#[derive(Clone, Default)]
pub(crate) struct WorkflowKind {
    pub current: Option<Name>,
    pub versions: BTreeMap<Option<Name>, Handler>,
    /// Steps of all versions record their inputs.
    pub record_inputs: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Registry {
    pub workflows: BTreeMap<Name, WorkflowKind>,
    pub tasks: BTreeMap<Name, TaskHandler>,
    pub schemas: BTreeMap<Latest, Schemas>,
    pub deps: Deps,
    pub middlewares: Middlewares,
    /// The kinds of model calls.
    pub models: BTreeSet<Name>,
    /// The first invalid registration, reported by `start`.
    pub mistake: Option<RegisterError>,
}

/// An invalid registration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{what} `{name}` was registered twice")]
    Twice { what: &'static str, name: String },
    #[error("`.{call}(..)` must follow a workflow")]
    NoWorkflow { call: &'static str },
    #[error("`.{call}(..)` must follow a workflow or task")]
    NothingBefore { call: &'static str },
    #[error("workflow `{workflow}` has two versions at once: `{first}` and `{second}`")]
    TwoVersions { workflow: String, first: String, second: String },
    #[error("a default is invalid: {why}")]
    Defaults { why: String },
    #[error("the lease of {lease:?} is shorter than {min:?}")]
    LeaseTooShort { lease: Duration, min: Duration },
    #[cfg(feature = "agents")]
    #[error("the agent `{agent}` has no model")]
    NoModel { agent: String },
    #[cfg(feature = "agents")]
    #[error(transparent)]
    Tool(#[from] crate::agent::ToolMistake),
    #[cfg(feature = "flows")]
    #[error("the flow `{flow}` cannot run: {problems}")]
    Flow { flow: String, problems: String },
    #[cfg(feature = "flows")]
    #[error(transparent)]
    FlowHost(#[from] crate::flow::HostError),
    #[cfg(feature = "flows")]
    #[error(transparent)]
    FlowDocuments(#[from] crate::flow::DocumentsError),
}

impl RegisterError {
    pub(crate) fn info(&self) -> ErrorInfo {
        ErrorCode::RegisterInvalid.info().with_hint(self.hint())
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            RegisterError::Name(_) => "use 1 to 255 bytes of UTF-8 without control characters",
            RegisterError::Twice { .. } => "register each name once, and earlier versions of a workflow with `.previous(..)`",
            RegisterError::Defaults { .. } => "leave the option out for no limit",
            RegisterError::NoWorkflow { .. } => "call it directly after `.workflow(..)` or `.agent(..)`",
            RegisterError::NothingBefore { .. } => "call it directly after the workflow, earlier version or task",
            RegisterError::TwoVersions { .. } => {
                "call `.version(..)` once per workflow, and register older code with `.previous(..)`"
            }
            #[cfg(feature = "agents")]
            RegisterError::NoModel { .. } => "set a model with `.model(..)`, by a name that is registered on a worker's builder",
            #[cfg(feature = "agents")]
            RegisterError::Tool(mistake) => mistake.hint(),
            #[cfg(feature = "flows")]
            RegisterError::Flow { .. } => "run `onward flow validate` on the document, which shows where its problems are",
            #[cfg(feature = "flows")]
            RegisterError::FlowHost(_) => "list the hosts that flows may reach one by one, for example `api.example.com`",
            #[cfg(feature = "flows")]
            RegisterError::FlowDocuments(_) => "name a folder that exists and that this process may read",
            RegisterError::LeaseTooShort { .. } => "set a longer lease; the default of 30 seconds leaves time for heartbeats",
        }
    }
}

impl Registry {
    pub fn workflow(&mut self, name: &str, handler: Handler) -> Option<Name> {
        let name = self.name(name)?;
        let kind = WorkflowKind { versions: BTreeMap::from([(None, handler)]), ..WorkflowKind::default() };
        if self.workflows.insert(name.clone(), kind).is_some() {
            self.wrong(RegisterError::Twice { what: "workflow", name: name.to_string() });
        }
        Some(name)
    }

    /// Sets the version of the workflow registered last. Runs without a version use the same code.
    pub fn version(&mut self, workflow: Option<&Name>, version: &str) {
        let Some(version) = self.name(version) else { return };
        let Some(kind) = workflow.and_then(|name| self.workflows.get_mut(name)) else {
            return self.wrong(RegisterError::NoWorkflow { call: "version" });
        };
        if let Some(first) = &kind.current {
            let (workflow, first) = (workflow.map(Name::to_string).unwrap_or_default(), first.to_string());
            return self.wrong(RegisterError::TwoVersions { workflow, first, second: version.to_string() });
        }
        let Some(handler) = kind.versions.get(&None).cloned() else { return };
        kind.current = Some(version.clone());
        if kind.versions.insert(Some(version.clone()), handler).is_some() {
            self.wrong(RegisterError::Twice { what: "version", name: version.to_string() });
        }
    }

    /// Registers the code of an earlier version.
    pub fn previous(&mut self, workflow: Option<&Name>, version: &str, handler: Handler) -> Option<Name> {
        let version = self.name(version)?;
        let Some(kind) = workflow.and_then(|name| self.workflows.get_mut(name)) else {
            self.wrong(RegisterError::NoWorkflow { call: "previous" });
            return None;
        };
        if kind.versions.insert(Some(version.clone()), handler).is_some() {
            self.wrong(RegisterError::Twice { what: "version", name: version.to_string() });
        }
        Some(version)
    }

    /// Registers the code of one version of a workflow that has no current one.
    #[cfg(feature = "flows")]
    pub fn pinned(&mut self, name: &str, version: &str, handler: Handler) -> Option<(Name, Name)> {
        let name = self.name(name)?;
        self.workflows.entry(name.clone()).or_default();
        let version = self.previous(Some(&name), version, handler)?;
        Some((name, version))
    }

    /// Lets the steps of the workflow registered last record their inputs.
    pub fn record_inputs(&mut self, workflow: Option<&Name>) {
        match workflow.and_then(|name| self.workflows.get_mut(name)) {
            Some(kind) => kind.record_inputs = true,
            None => self.wrong(RegisterError::NoWorkflow { call: "record_inputs" }),
        }
    }

    pub fn task(&mut self, name: &str, handler: TaskHandler) -> Option<Name> {
        let name = self.name(name)?;
        if self.tasks.insert(name.clone(), handler).is_some() {
            self.wrong(RegisterError::Twice { what: "task", name: name.to_string() });
        }
        Some(name)
    }

    pub fn dep<T: Any + Send + Sync>(&mut self, dep: T) {
        self.deps.insert(TypeId::of::<T>(), Arc::new(dep));
    }

    pub fn middleware(&mut self, middleware: impl Middleware) {
        self.middlewares = self.middlewares.with(middleware);
    }

    pub fn handler(&self, name: &Name, version: Option<&Name>) -> Option<Handler> {
        let kind = self.workflows.get(name)?;
        let handler = kind.versions.get(&version.cloned())?.clone();
        let checks = self.checks(&kind.described(name, version));
        Some(Handler { record_inputs: kind.record_inputs, checks, ..handler })
    }

    /// Returns the kinds with their versions, as claims list them.
    pub fn knows(&self) -> BTreeMap<Name, Vec<Option<Name>>> {
        self.workflows.iter().map(|(name, kind)| (name.clone(), kind.versions.keys().cloned().collect())).collect()
    }

    /// Returns the version of new runs by kind.
    pub fn current(&self) -> BTreeMap<Name, Name> {
        self.workflows.iter().filter_map(|(name, kind)| Some((name.clone(), kind.current.clone()?))).collect()
    }

    /// Returns the version of new runs of this kind.
    pub fn current_of(&self, kind: &Name) -> Option<&Name> {
        self.workflows.get(kind)?.current.as_ref()
    }

    /// Returns a valid name, or notes the mistake.
    pub fn name(&mut self, name: &str) -> Option<Name> {
        Name::new(name).map_err(|error| self.wrong(error.into())).ok()
    }

    pub fn wrong(&mut self, mistake: RegisterError) {
        self.mistake.get_or_insert(mistake);
    }
}

/// Wraps the function of a workflow or agent as a handler with an untyped payload as input and output.
pub(crate) fn erase_code<C, I, O, F, Fut>(f: F) -> Handler
where
    C: CodeCtx,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(C, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let call = move |ctx: Ctx, payload: Payload| {
        let input = payload.read().map_err(|error| {
            Failure::fatal(format!("the input does not fit the workflow: {error}")).with_code("invalid_input")
        })?;
        let future = f(C::of(ctx), input);
        let future: RunFuture =
            Box::pin(async move { future.await.and_then(|output| payload_or_failure("the output", &output)) });
        Ok(future)
    };
    Handler {
        function: UserFunction::Future(Arc::new(call)),
        is_agent: C::IS_AGENT,
        record_inputs: false,
        checks: Checks::default(),
    }
}

/// Returns the handler of a function in another language.
pub(crate) fn foreign_code(shell: Arc<dyn Shell>, is_agent: bool) -> Handler {
    Handler { function: UserFunction::Shell(shell), is_agent, record_inputs: false, checks: Checks::default() }
}

/// The context that workflow code takes: [`Ctx`], or [`AgentCtx`] for an agent.
pub trait CodeCtx: 'static {
    #[doc(hidden)]
    const IS_AGENT: bool;
    #[doc(hidden)]
    fn of(ctx: Ctx) -> Self;
}

impl CodeCtx for Ctx {
    const IS_AGENT: bool = false;
    fn of(ctx: Ctx) -> Ctx {
        ctx
    }
}

impl CodeCtx for AgentCtx {
    const IS_AGENT: bool = true;
    fn of(ctx: Ctx) -> AgentCtx {
        AgentCtx::new(ctx)
    }
}

/// An async function that executes a task: of its input, or of a [`TaskCtx`] and its input.
pub trait TaskFunction<Arguments>: Send + Sync + 'static {
    type Input: DeserializeOwned + Send + 'static;
    type Output: Serialize + 'static;
    type Error: Into<BoxError> + 'static;
    #[doc(hidden)]
    type Future: Future<Output = Result<Self::Output, Self::Error>> + Send + 'static;
    #[doc(hidden)]
    fn call(&self, ctx: TaskCtx, input: Self::Input) -> Self::Future;
}

impl<I, O, E, F, Fut> TaskFunction<(I,)> for F
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Into<BoxError> + 'static,
    F: Fn(I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    type Input = I;
    type Output = O;
    type Error = E;
    type Future = Fut;
    fn call(&self, _: TaskCtx, input: I) -> Fut {
        self(input)
    }
}

impl<I, O, E, F, Fut> TaskFunction<(TaskCtx, I)> for F
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Into<BoxError> + 'static,
    F: Fn(TaskCtx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    type Input = I;
    type Output = O;
    type Error = E;
    type Future = Fut;
    fn call(&self, ctx: TaskCtx, input: I) -> Fut {
        self(ctx, input)
    }
}

/// Wraps a task function as an untyped handler.
pub(crate) fn erase_task<Arguments>(function: impl TaskFunction<Arguments>) -> TaskHandler {
    let function = Arc::new(function);
    Arc::new(move |ctx, payload| {
        let function = function.clone();
        Box::pin(async move {
            let input = payload.read().map_err(|error| {
                Failure::fatal(format!("the input does not fit the task: {error}")).with_code("invalid_input")
            })?;
            let output = function.call(ctx, input).await.map_err(|error| Failure::from_box(error.into()))?;
            payload_or_failure("the output", &output)
        })
    })
}
