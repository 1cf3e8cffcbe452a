//! The verbs of the API table, by their method names, with requests and replies as JSON text.
//!
//! A request is the document of the API, with less to write: a run may be named by its id, the namespace is that of the
//! connection, and some fields have defaults. A field that the request does not have is refused, because a mistyped filter would
//! select more than was meant.

use std::collections::BTreeMap;

use onward::{CallRef, Onward};
use onward_core::Namespace;
use onward_core::api::{self, Call, Reply, Target, WaitsReply};
use onward_core::run::Wait;
use serde::de::{Deserializer, Error as _, Visitor, value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::BridgeError;
use crate::verbs::read;

type Raw = Box<RawValue>;
type Fields = BTreeMap<String, Raw>;
type Result<T, E = BridgeError> = std::result::Result<T, E>;

/// Fields of requests that have a default.
const DEFAULTS: &[(&str, &str)] = &[
    ("limit", "0"),
    ("statuses", "[]"),
    ("versions", "[]"),
    ("attributes", "[]"),
    ("partly", "false"),
    ("reason", "\"\""),
    ("from", "0"),
    ("from_end", "false"),
    ("wait_ms", "0"),
    ("drop_signals", "false"),
    ("restart_children", "false"),
    ("include_outcome_unknown", "false"),
    ("is_looked_up", "false"),
    ("below", "false"),
    ("kinds", "[]"),
    ("buckets", "0"),
    ("all", "false"),
    ("dry_run", "false"),
    ("bulk_id", "\"\""),
    ("is_prefix", "false"),
    ("force", "false"),
    ("note", "\"\""),
];

/// Executes a verb of the table.
pub(crate) async fn request(onward: &Onward, verb: &str, text: &str) -> Result<String> {
    let namespace = onward.namespace();
    let mut request = complete(namespace, verb, read(verb, text)?, fields_of_verb(verb)?)?;
    if let Some(filter) = request.get_mut("filter") {
        let completed = complete(namespace, verb, read(verb, filter.get())?, fields_of::<api::RunQuery>())?;
        *filter = raw(&completed)?;
    }
    let mut call = decode(verb, &json(&request)?)?;
    check_target(namespace, verb, &mut call)?;
    show(onward.execute(call).await?)
}

fn raw(value: &impl Serialize) -> Result<Raw> {
    serde_json::value::to_raw_value(value).map_err(|error| BridgeError::arguments("the request", &error))
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| BridgeError::arguments("the reply", &error))
}

/// Completes a request, or the filter in it: adds the namespace and defaults, and makes the ids of runs their keys.
fn complete(namespace: &Namespace, verb: &str, mut given: Fields, known: &[&str]) -> Result<Fields> {
    if let Some(unknown) = given.keys().find(|name| !known.contains(&name.as_str()) && *name != "namespace") {
        let hint = format!("its fields are {}", known.join(", "));
        return Err(BridgeError::refused(verb, format!("there is no field `{unknown}`"), &hint));
    }
    let has_namespace = known.contains(&"namespace");
    for name in ["run", "task"] {
        // The `task` of a request with a namespace is a text.
        if let Some(run) = given.get_mut(name).filter(|_| name == "run" || !has_namespace)
            && let Ok(id) = serde_json::from_str::<String>(run.get())
        {
            *run = raw(&serde_json::json!({"namespace": namespace, "id": id}))?;
        }
    }
    let named = given.remove("namespace").map(|named| read::<Namespace>(verb, named.get())).transpose()?;
    check_own(namespace, verb, named.as_ref())?;
    if has_namespace {
        given.insert("namespace".to_owned(), raw(namespace)?);
    }
    for (name, value) in DEFAULTS.iter().filter(|(name, _)| known.contains(name)) {
        if !given.contains_key(*name) {
            let value = RawValue::from_string((*value).to_owned());
            given.insert((*name).to_owned(), value.map_err(|error| BridgeError::arguments("the request", &error))?);
        }
    }
    Ok(given)
}

/// Refuses a request for another namespace than that of the connection.
fn check_own(own: &Namespace, verb: &str, named: Option<&Namespace>) -> Result<()> {
    match named {
        Some(named) if named != own => {
            let why = format!("it names the namespace `{named}`, and this connection has `{own}`");
            Err(BridgeError::refused(verb, why, "leave the namespace out, or connect with the other one in the settings"))
        }
        _ => Ok(()),
    }
}

/// Checks the namespace of what a call acts on.
fn check_target(own: &Namespace, verb: &str, call: &mut Call) -> Result<()> {
    let (namespace, run) = match call.target() {
        Target::Run(run) => (None, Some(run)),
        Target::Call(namespace, _) => (Some(namespace), None),
        Target::Namespace(namespace, run) => (Some(namespace), run),
        Target::Nothing => (None, None),
    };
    check_own(own, verb, namespace.as_deref())?;
    check_own(own, verb, run.map(|run| &run.namespace))
}

/// Finds the names of the fields of a type, without a value of it.
#[derive(Default)]
struct FieldNames {
    names: &'static [&'static str],
}

impl<'de> Deserializer<'de> for &mut FieldNames {
    type Error = value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, value::Error> {
        self.names = names;
        Err(value::Error::custom("there is no value"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("there is no value"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields = FieldNames::default();
    drop(T::deserialize(&mut fields)); // always an error
    fields.names
}

/// The reply of `list_approvals`; a struct and not a `Value`, which would sort the keys of what a person is shown.
#[derive(Serialize)]
struct WaitsWithIds<'a> {
    waits: Vec<WithId<'a>>,
    missing: &'a [String],
}

#[derive(Serialize)]
struct WithId<'a> {
    /// The id of the approval, for `approve` and `disapprove`.
    id: String,
    #[serde(flatten)]
    wait: &'a Wait,
}

/// Adds to the reply what a caller needs for the next request.
fn show(reply: Reply) -> Result<String> {
    let Reply::ListApprovals(WaitsReply { waits, missing }) = &reply else { return encode(reply) };
    let with_id = |wait: &'_ Wait| CallRef { run: wait.run.clone(), generation: wait.generation, call_id: wait.call_id.clone() };
    let waits = waits.iter().map(|wait| WithId { id: with_id(wait).to_string(), wait }).collect();
    json(&WaitsWithIds { waits, missing })
}

macro_rules! table {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        /// Returns the names of the fields of a verb's request.
        fn fields_of_verb(verb: &str) -> Result<&'static [&'static str]> {
            match verb {
                $(stringify!($method) => Ok(fields_of::<api::$request>()),)*
                _ => Err(BridgeError::arguments("the request", &format!("there is no verb `{verb}`"))),
            }
        }

        fn decode(verb: &str, text: &str) -> Result<Call> {
            match verb {
                $(stringify!($method) => read::<api::$request>(verb, text).map(Call::$name),)*
                _ => Err(BridgeError::arguments("the request", &format!("there is no verb `{verb}`"))),
            }
        }

        fn encode(reply: Reply) -> Result<String> {
            match reply {
                $(Reply::$name(reply) => json(&reply),)*
            }
        }
    };
}

onward_core::with_verbs!(table);
