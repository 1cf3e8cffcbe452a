//! JSON schemas of the inputs and outputs of kinds.

use onward_core::Payload;
use serde_json::Value;

use super::Builder;

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

    /// Sets the JSON schema for the output of the workflow or task just registered. It is documentation; outputs are not checked.
    pub fn output_schema(mut self, schema: Value) -> Builder {
        self.describe("output_schema", None, Some(&schema));
        self
    }

    /// Derives [`Builder::input_schema`] and [`Builder::output_schema`] of the workflow or task just registered from types.
    #[cfg(feature = "schema")]
    pub fn schema<I: schemars::JsonSchema, O: schemars::JsonSchema>(mut self) -> Builder {
        let input =
            schemars::generate::SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<I>();
        let output =
            schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<O>();
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

    fn describe(&mut self, call: &'static str, input: Option<&Value>, output: Option<&Value>) {
        let payload = |schema: Option<&Value>| schema.map(|schema| Payload::json(schema).expect("a JSON value is JSON"));
        self.registry.describe(self.latest.as_ref(), call, payload(input), payload(output));
    }
}
