//! What kinds take and give, as JSON schemas.

use onward_core::Payload;
use serde_json::Value;

use super::Builder;

impl Builder {
    /// What the workflow or task just registered takes, as a JSON schema. A start whose input does not fit is refused as
    /// `input_invalid` and begins nothing, wherever it comes from, also while no worker is there; what code hands to its own children
    /// and tasks is not looked at.
    ///
    /// The newest worker to start decides, for its versions: a worker without schemas takes them back. A server checks always; a
    /// process that keeps its runs itself checks with the cargo feature `schema` and only keeps them without it.
    pub fn input_schema(mut self, schema: Value) -> Builder {
        self.describe("input_schema", Some(&schema), None);
        self
    }

    /// What the workflow or task just registered returns, as a JSON schema. For readers: nothing is compared with it.
    pub fn output_schema(mut self, schema: Value) -> Builder {
        self.describe("output_schema", None, Some(&schema));
        self
    }

    /// What the workflow or task just registered takes and returns: [`Builder::input_schema`] and [`Builder::output_schema`] from types.
    #[cfg(feature = "schema")]
    pub fn schema<I: schemars::JsonSchema, O: schemars::JsonSchema>(mut self) -> Builder {
        let input =
            schemars::generate::SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<I>();
        let output =
            schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<O>();
        self.describe("schema", Some(input.as_value()), Some(output.as_value()));
        self
    }

    /// Keeps the workflow or task just registered to runs: no caller may start it, whatever its scope, and `GET /v1/kinds` does not show it.
    /// Workflows and agents go on using it. Calls of models and tools of agents are internal without this.
    ///
    /// The newest worker to start decides, as with [`Builder::input_schema`].
    pub fn internal(mut self) -> Builder {
        self.registry.keep_internal(self.latest.as_ref());
        self
    }

    fn describe(&mut self, call: &'static str, input: Option<&Value>, output: Option<&Value>) {
        let payload = |schema: Option<&Value>| schema.map(|schema| Payload::json(schema).expect("a JSON value is JSON"));
        self.registry.describe(self.latest.as_ref(), call, payload(input), payload(output));
    }
}
