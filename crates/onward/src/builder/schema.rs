//! JSON schemas of the inputs and outputs of kinds, and defaults.

use onward_core::{KindDefaults, Payload};
use serde_json::Value;

use super::Builder;
use super::defaults::Defaults;
use crate::registry::{Message, RegisterError};

impl Builder {
    /// Sets the JSON schema for the input of the workflow or task just registered. A start whose input does not match fails with
    /// `input_invalid` and creates nothing, on every interface and also while no worker is connected. Inputs that code passes to
    /// its own children and tasks are not checked.
    ///
    /// The worker that started last decides, for its versions: a worker without schemas removes them. A server always checks. A
    /// process with its own store checks with the cargo feature `schema`, and only stores the schemas without it.
    pub fn input_schema(mut self, schema: Value) -> Builder {
        self.describe("input_schema", Some(&schema), None);
        self
    }

    /// Sets the JSON schema for the output of the workflow or task just registered. An output that does not match fails the run
    /// or task with `output_invalid`. The worker checks, with the cargo feature `schema`.
    pub fn output_schema(mut self, schema: Value) -> Builder {
        self.describe("output_schema", None, Some(&schema));
        self
    }

    /// Sets the JSON schema for a signal of the workflow just registered. A signal of a caller that does not match is refused with
    /// `signal_invalid`, and nothing is recorded. Signals of other runs are not checked.
    pub fn signal_schema(mut self, signal: &str, schema: Value) -> Builder {
        self.describe_message("signal_schema", Message::Signal, signal, &schema);
        self
    }

    /// Sets the JSON schema for the input of an update of the workflow just registered. An update that does not match is refused
    /// with `update_invalid`, and nothing is recorded.
    pub fn update_schema(mut self, update: &str, schema: Value) -> Builder {
        self.describe_message("update_schema", Message::Update, update, &schema);
        self
    }

    /// Sets the JSON schema for the answer of an update of the workflow just registered. Instead of an answer that does not match,
    /// the update gets the failure `output_invalid`, and the run continues. The worker checks, with the cargo feature `schema`.
    pub fn update_answer_schema(mut self, update: &str, schema: Value) -> Builder {
        self.describe_message("update_answer_schema", Message::UpdateAnswer, update, &schema);
        self
    }

    /// Derives [`Builder::signal_schema`] from the type of the payload.
    #[cfg(feature = "schema")]
    pub fn signal<T: schemars::JsonSchema>(mut self, signal: &str) -> Builder {
        self.describe_message("signal", Message::Signal, signal, read_schema::<T>().as_value());
        self
    }

    /// Derives [`Builder::update_schema`] from the type of the input.
    #[cfg(feature = "schema")]
    pub fn update<I: schemars::JsonSchema>(mut self, update: &str) -> Builder {
        self.describe_message("update", Message::Update, update, read_schema::<I>().as_value());
        self
    }

    /// Derives [`Builder::update_answer_schema`] from the type of the answer.
    #[cfg(feature = "schema")]
    pub fn update_answer<O: schemars::JsonSchema>(mut self, update: &str) -> Builder {
        self.describe_message("update_answer", Message::UpdateAnswer, update, written_schema::<O>().as_value());
        self
    }

    /// Derives [`Builder::input_schema`] and [`Builder::output_schema`] of the workflow or task just registered from types.
    #[cfg(feature = "schema")]
    pub fn schema<I: schemars::JsonSchema, O: schemars::JsonSchema>(mut self) -> Builder {
        let input = read_schema::<I>();
        let output = written_schema::<O>();
        self.describe("schema", Some(input.as_value()), Some(output.as_value()));
        self
    }

    /// Makes the workflow or task just registered internal: no caller may start it, whatever its scope, and `GET /v1/kinds` does
    /// not list it. Workflows and agents can still use it. Model calls and agent tools are always internal.
    ///
    /// The kind stays internal if another worker registers it without this, until an administrator removes its entry
    /// (`DELETE /v1/kinds/KIND`).
    pub fn internal(mut self) -> Builder {
        self.registry.keep_internal(self.latest.as_ref());
        self
    }

    /// Sets defaults of the workflow or task just registered: options of its calls that a call does not set itself. They apply
    /// to tasks and runs of all workers and callers, and are recorded with each.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use onward::{Failure, Onward, TaskCtx};
    /// # async fn send(_: TaskCtx, _: String) -> Result<(), Failure> { Ok(()) }
    /// # fn build(builder: onward::Builder) -> onward::Builder {
    /// builder.task("mail", send).defaults(|mail| mail.retry(5).timeout(Duration::from_secs(30)).queue("slow"))
    /// # }
    /// ```
    pub fn defaults(mut self, set: impl FnOnce(Defaults) -> Defaults) -> Builder {
        let defaults = self.written(set);
        self.registry.set_defaults(self.latest.as_ref(), defaults);
        self
    }

    /// Sets defaults of any kind, also of one that another program has code for; only for a program with its own store. They
    /// replace registered ones. Model calls are tasks of the kind `llm.MODEL`, tool calls of `tool.AGENT.TOOL`.
    pub fn defaults_of(mut self, kind: &str, set: impl FnOnce(Defaults) -> Defaults) -> Builder {
        let defaults = self.written(set);
        if let Some(kind) = self.registry.name(kind) {
            self.options.defaults.insert(kind, defaults);
        }
        self
    }

    /// Returns the defaults that code writes; a mistake is reported by `start`.
    fn written(&mut self, set: impl FnOnce(Defaults) -> Defaults) -> KindDefaults {
        let defaults = set(Defaults::default()).stored().map_err(RegisterError::from);
        let valid = |of: KindDefaults| of.problem().map_or(Ok(of), |why| Err(RegisterError::Defaults { why }));
        defaults.and_then(valid).unwrap_or_else(|mistake| {
            self.registry.wrong(mistake);
            KindDefaults::default()
        })
    }

    fn describe_message(&mut self, call: &'static str, message: Message, name: &str, schema: &Value) {
        let schema = Payload::json(schema).expect("a JSON value is JSON");
        self.registry.describe_message(self.latest.as_ref(), call, message, name, schema);
    }

    fn describe(&mut self, call: &'static str, input: Option<&Value>, output: Option<&Value>) {
        let payload = |schema: Option<&Value>| schema.map(|schema| Payload::json(schema).expect("a JSON value is JSON"));
        self.registry.describe(self.latest.as_ref(), call, payload(input), payload(output));
    }
}

/// Returns the schema of values that are read as this type.
#[cfg(feature = "schema")]
fn read_schema<T: schemars::JsonSchema>() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// Returns the schema of values that are written from this type.
#[cfg(feature = "schema")]
fn written_schema<T: schemars::JsonSchema>() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
