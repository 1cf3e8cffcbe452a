//! Registered schemas of inputs and outputs by kind.

use std::sync::Arc;

use onward_core::{
    ErrorCode, Failure, KindDefaults, KindSchemas, Name, NamedSchema, Namespace, Payload, Timestamp, is_internal_task,
};

use onward_runtime::{ValueSchema, Violation};

use super::{RegisterError, Registry, WorkflowKind};
use crate::Result;

/// Number of violations that a failure lists.
const VIOLATIONS_MAX: usize = 3;

/// The registration that a following builder call applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Latest {
    /// A workflow, with the version if it is an earlier one.
    Workflow(Name, Option<Name>),
    Task(Name),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Schemas {
    pub input: Option<Payload>,
    pub output: Option<Payload>,
    /// Only runs may start it, callers may not.
    pub is_internal: bool,
    /// Options of its calls that a call does not set itself.
    pub defaults: Option<Box<KindDefaults>>,
    pub signals: Vec<NamedSchema>,
    pub updates: Vec<NamedSchema>,
    /// `output`, compiled by the first check.
    pub output_check: Option<Arc<ValueSchema>>,
}

impl WorkflowKind {
    /// Returns under which key a version is described. Runs without a version use the current code, too.
    pub(super) fn described(&self, name: &Name, version: Option<&Name>) -> Latest {
        Latest::Workflow(name.clone(), version.filter(|version| Some(*version) != self.current.as_ref()).cloned())
    }
}

impl Registry {
    pub fn describe(&mut self, latest: Option<&Latest>, call: &'static str, input: Option<Payload>, output: Option<Payload>) {
        let Some(latest) = latest else { return self.wrong(RegisterError::NothingBefore { call }) };
        let schemas = self.schemas.entry(latest.clone()).or_default();
        schemas.input = input.or(schemas.input.take());
        schemas.output = output.or(schemas.output.take());
        schemas.output_check = schemas.output.clone().map(ValueSchema::new);
    }

    /// Adds the schema of a signal, or of an update, to the latest workflow.
    pub fn describe_message(
        &mut self,
        latest: Option<&Latest>,
        call: &'static str,
        is_update: bool,
        name: &str,
        schema: Payload,
    ) {
        let Some(latest @ Latest::Workflow(..)) = latest else { return self.wrong(RegisterError::NoWorkflow { call }) };
        let Some(name) = self.name(name) else { return };
        let schemas = self.schemas.entry(latest.clone()).or_default();
        let all = if is_update { &mut schemas.updates } else { &mut schemas.signals };
        all.retain(|of| of.name != name);
        all.push(NamedSchema { name, schema });
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Returns the check of the outputs of a task, or of a workflow in a version.
    pub fn output_check(&self, of: &Latest) -> Option<Arc<ValueSchema>> {
        self.schemas.get(of)?.output_check.clone()
    }

    /// Changes the defaults of the latest registration.
    pub fn set_defaults(&mut self, latest: Option<&Latest>, defaults: KindDefaults) {
        let Some(latest) = latest else { return self.wrong(RegisterError::NothingBefore { call: "defaults" }) };
        let defaults = Some(Box::new(defaults)).filter(|defaults| !defaults.is_empty());
        self.schemas.entry(latest.clone()).or_default().defaults = defaults;
    }

    /// Marks the latest registration as internal: callers may not start it.
    pub fn keep_internal(&mut self, latest: Option<&Latest>) {
        let Some(latest) = latest else { return self.wrong(RegisterError::NothingBefore { call: "internal" }) };
        self.schemas.entry(latest.clone()).or_default().is_internal = true;
    }

    /// Returns whether only runs may schedule tasks of this kind (IK1, KI4).
    pub fn is_internal_task(&self, kind: &Name) -> bool {
        is_internal_task(kind) || self.schemas.get(&Latest::Task(kind.clone())).is_some_and(|schemas| schemas.is_internal)
    }

    fn schemas_of(&self, latest: &Latest) -> Schemas {
        self.schemas.get(latest).cloned().unwrap_or_default()
    }

    /// Returns an entry for every registered kind and version, also without schemas.
    pub fn kind_schemas(&self) -> Vec<KindSchemas> {
        let entry = |is_task: bool, kind: &Name, version: Option<&Name>, schemas: Schemas| KindSchemas {
            namespace: Namespace::default(), // set by the registering runtime
            is_task,
            kind: kind.clone(),
            version: version.cloned(),
            input: schemas.input,
            output: schemas.output,
            registered_at: Timestamp(0), // set by the store
            is_internal: schemas.is_internal,
            flow: None,
            defaults: schemas.defaults,
            signals: schemas.signals,
            updates: schemas.updates,
            queue: None,
            quota: None,
        };
        let mut all = Vec::new();
        for (name, kind) in &self.workflows {
            for version in kind.versions.keys() {
                let schemas = self.schemas_of(&kind.described(name, version.as_ref()));
                all.push(entry(false, name, version.as_ref(), schemas));
            }
        }
        all.extend(self.tasks.keys().map(|name| entry(true, name, None, self.schemas_of(&Latest::Task(name.clone())))));
        all
    }

    /// Returns the kinds and task schemas that a worker announces to a server.
    #[cfg(feature = "remote")]
    pub fn offers(&self) -> (Vec<onward_wire::worker::KindOffer>, Vec<onward_wire::worker::TaskSchemas>) {
        use onward_wire::worker::{KindOffer, TaskSchemas, VersionSchemas};
        let schemas = self.kind_schemas();
        let of = |is_task: bool, name: &Name| {
            let schemas = schemas.iter().filter(move |schemas| schemas.is_task == is_task);
            let name = name.clone();
            schemas.filter(move |schemas| schemas.kind == name)
        };
        let word = |version: &Option<Name>| version.as_ref().map(Name::to_string).unwrap_or_default();
        let kinds = self.workflows.iter().map(|(name, kind)| {
            let current = of(false, name).find(|schemas| schemas.version.is_none());
            let others = of(false, name).filter(|schemas| schemas.version != kind.current && schemas.has_schemas());
            KindOffer {
                kind: name.clone(),
                versions: kind.versions.keys().map(word).collect(),
                current: kind.current.clone(),
                input_schema: current.and_then(|schemas| schemas.input.clone()),
                output_schema: current.and_then(|schemas| schemas.output.clone()),
                version_schemas: others
                    .filter_map(|schemas| {
                        let (input_schema, output_schema) = (schemas.input.clone(), schemas.output.clone());
                        let (version, defaults) = (schemas.version.clone()?, schemas.defaults.clone());
                        let (signals, updates) = (schemas.signals.clone(), schemas.updates.clone());
                        Some(VersionSchemas { version, input_schema, output_schema, defaults, signals, updates })
                    })
                    .collect(),
                is_internal: of(false, name).any(|schemas| schemas.is_internal),
                defaults: current.and_then(|schemas| schemas.defaults.clone()),
                signals: current.map(|schemas| schemas.signals.clone()).unwrap_or_default(),
                updates: current.map(|schemas| schemas.updates.clone()).unwrap_or_default(),
            }
        });
        let tasks = schemas.iter().filter(|schemas| schemas.is_task && schemas.has_schemas()).map(|schemas| TaskSchemas {
            kind: schemas.kind.clone(),
            input_schema: schemas.input.clone(),
            output_schema: schemas.output.clone(),
            is_internal: schemas.is_internal,
            defaults: schemas.defaults.clone(),
        });
        (kinds.collect(), tasks.collect())
    }
}

/// Fails if an output does not fit the schema of its kind.
pub(crate) fn check_output(schema: Option<&ValueSchema>, output: Payload) -> Result<Payload> {
    let Some(schema) = schema else { return Ok(output) };
    let why = match schema.violations_now(&output) {
        Ok(violations) if violations.is_empty() => return Ok(output),
        Ok(violations) => {
            let texts = violations.iter().take(VIOLATIONS_MAX).map(|Violation { path, message, .. }| format!("{path} {message}"));
            texts.collect::<Vec<_>>().join("; ")
        }
        Err(why) => format!("the schema cannot be used: {why}"),
    };
    Err(Failure::fatal(format!("the output does not fit its schema: {why}")).with_code(ErrorCode::OutputInvalid))
}
