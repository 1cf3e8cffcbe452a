//! Registered schemas of inputs and outputs by kind.

use onward_core::{KindSchemas, Name, Namespace, Payload, Timestamp, is_internal_task};

use super::{RegisterError, Registry};

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
}

impl Registry {
    pub fn describe(&mut self, latest: Option<&Latest>, call: &'static str, input: Option<Payload>, output: Option<Payload>) {
        let Some(latest) = latest else { return self.wrong(RegisterError::NothingBefore { call }) };
        let schemas = self.schemas.entry(latest.clone()).or_default();
        schemas.input = input.or(schemas.input.take());
        schemas.output = output.or(schemas.output.take());
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
        };
        let mut all = Vec::new();
        for (name, kind) in &self.workflows {
            for version in kind.versions.keys() {
                // Runs without a version use the current code, too.
                let own = version.clone().filter(|version| Some(version) != kind.current.as_ref());
                let schemas = self.schemas_of(&Latest::Workflow(name.clone(), own));
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
                        Some(VersionSchemas { version: schemas.version.clone()?, input_schema, output_schema })
                    })
                    .collect(),
                is_internal: of(false, name).any(|schemas| schemas.is_internal),
            }
        });
        let tasks = schemas.iter().filter(|schemas| schemas.is_task && schemas.has_schemas()).map(|schemas| TaskSchemas {
            kind: schemas.kind.clone(),
            input_schema: schemas.input.clone(),
            output_schema: schemas.output.clone(),
            is_internal: schemas.is_internal,
        });
        (kinds.collect(), tasks.collect())
    }
}
