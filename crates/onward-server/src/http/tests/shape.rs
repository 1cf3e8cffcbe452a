//! JSON schemas of request bodies and of documents, generated from the declarations of their types.

use std::collections::BTreeMap;

use onward_core::api::{
    Appended, AppendedEntry, BlockReason, BulkDone, BulkVerb, EntryPage, QueueLimits, RefusedRun, TaskStatus, TriggerOutcome,
    UpcomingSlot,
};
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::event::{ParentLink, RunPaused};
use onward_core::ledger::{SpendBy, SpendRow};
use onward_core::live::{ActiveType, Audience};
use onward_core::log::codec::Field;
use onward_core::log::schema::{FieldLine, Proto, Schema, has_serde, json_object, nullable};
use onward_core::schedule::{
    BackfillRange, Firing, HistoryEntry, Overlap, Paused, RunningFiring, ScheduleOptions, ScheduleSpec, Totals,
};
use onward_core::spend::{PicoDollars, SpendTotals};
use onward_core::task::TaskCount;
use onward_core::view::{Awaited, ForkedFrom, RunCounts, Undelivered};
use onward_core::{Event, Failure, Hash, Index, Name, Namespace, Payload, RunId, Status, Timestamp, WorkerId};
use onward_runtime::RunChange;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::openapi::{SCHEMA_PATH, reference};
use crate::http::documents::{OfRun, Outcome, Partly};

pub(crate) type ShapeFn = fn(&mut Schema) -> Value;

/// Type with a JSON schema.
pub(crate) trait Shape {
    /// A body may omit a field of this type.
    const IS_OPTIONAL: bool = false;

    /// Returns the schema of a value and adds the schemas that it refers to.
    fn shape(schema: &mut Schema) -> Value;
}

/// Field of a body or a document.
pub(crate) struct FieldShape {
    name: &'static str,
    /// Attributes of the source; doc attributes become descriptions.
    docs: &'static [&'static str],
    is_optional: bool,
    shape: ShapeFn,
}

impl FieldShape {
    pub const fn new<T: Shape>(name: &'static str, docs: &'static [&'static str]) -> FieldShape {
        FieldShape { name, docs, is_optional: T::IS_OPTIONAL, shape: T::shape }
    }

    fn line(&self, schema: &mut Schema) -> FieldLine {
        let proto = Proto::scalar("").with_json((self.shape)(schema));
        let proto = if self.is_optional { proto.omittable() } else { proto };
        FieldLine { docs: self.docs, ..FieldLine::new(0, self.name.trim_start_matches("r#"), proto) }
    }
}

/// Adds the schema of an object and returns a reference to it.
pub(crate) fn object(schema: &mut Schema, name: &str, docs: &[&str], fields: &[FieldShape]) -> Value {
    let mut flattened = Vec::new();
    let object = schema.message(name, docs, |schema| {
        let (inner, own): (Vec<_>, Vec<_>) = fields.iter().partition(|field| has_serde(field.docs, "flatten"));
        flattened = inner.into_iter().map(|field| named_apart(schema, field.shape)).collect();
        own.into_iter().map(|field| field.line(schema)).collect()
    });
    for inner in flattened {
        extend(schema, name, &inner);
    }
    object.json().clone()
}

/// Returns the schema of an object whose fields become those of another. The object itself is not added: its name may be that of
/// the other.
fn named_apart(schema: &mut Schema, shape: ShapeFn) -> Value {
    let mut apart = schema.empty();
    let reference = shape(&mut apart);
    let mut schemas = apart.json().clone();
    let object = schemas.remove(name_of(&reference)).unwrap_or_default();
    for (name, json) in schemas {
        schema.set_json(&name, json);
    }
    object
}

/// Adds the properties of an object to the schema `name`.
fn extend(schema: &mut Schema, name: &str, other: &Value) {
    let mut object = schema.json()[name].clone();
    for (name, property) in other["properties"].as_object().into_iter().flatten() {
        object["properties"][name] = property.clone();
    }
    let required = object["required"].as_array().into_iter().chain(other["required"].as_array()).flatten().cloned();
    object["required"] = required.collect();
    schema.set_json(name, object);
}

/// Returns the schema of `T`, an object, with one more property.
fn with_field<T: Shape>(schema: &mut Schema, field: &FieldShape) -> Value {
    let reference = T::shape(schema);
    let name = name_of(&reference);
    if schema.json()[name]["properties"].get(field.name).is_none() {
        let line = field.line(schema);
        let other = json_object(&[], &[line], schema.is_input());
        extend(schema, name, &other);
    }
    reference
}

fn name_of(reference: &Value) -> &str {
    reference["$ref"].as_str().and_then(|path| path.strip_prefix(SCHEMA_PATH)).expect("an object has a name")
}

/// Implements [`Shape`] for types of the log and of the verbs.
macro_rules! of_core {
    ($($type:ty),* $(,)?) => {$(
        impl Shape for $type {
            fn shape(schema: &mut Schema) -> Value {
                <$type as Field>::proto(schema).json().clone()
            }
        }
    )*};
}

of_core! {
    ActiveType, bool, i32, u32, u64, usize, String, Appended, Audience, AppendedEntry, Awaited, BlockReason, Budget, BulkDone, BulkVerb, EntryPage, Event,
    Failure, ForkedFrom, Hash, Index, Namespace, ParentLink, Payload, RefusedRun, RunChange, RunCounts, RunPaused, SpendBy, SpendRow,
    BackfillRange, Firing, HistoryEntry, Overlap, Paused, PicoDollars, QueueLimits, RunningFiring, ScheduleOptions, ScheduleSpec, Totals,
    TriggerOutcome, UpcomingSlot, SpendTotals, Status, TaskCount, TaskStatus, Timestamp, Undelivered, WorkerId,
}

/// Declares types that stand for a schema of another source: `schemas.json`, frames, error codes.
macro_rules! named {
    ($($name:ident),*) => {$(
        pub(crate) enum $name {}

        impl Shape for $name {
            fn shape(_: &mut Schema) -> Value {
                reference(stringify!($name))
            }
        }
    )*};
}

/// Types that fields name with `as`.
pub(crate) mod types {
    use super::*;

    pub(crate) use onward_core::{Name, Status};

    named! {
        Attributes, BatchLimit, CallId, Document, EntryCursor, EventsToAppend, LongText, NamespaceName, NotClaimedReason, ServerFrame,
        StreamFrame, StreamOffset, TaskKind
    }
}

/// The server describes a name that it reads, but not one that it writes.
macro_rules! of_names {
    ($($type:ty),*) => {$(
        impl Shape for $type {
            fn shape(schema: &mut Schema) -> Value {
                if schema.is_input() { reference("Name") } else { <$type as Field>::proto(schema).json().clone() }
            }
        }
    )*};
}

of_names!(Name, RunId);

impl Shape for str {
    fn shape(schema: &mut Schema) -> Value {
        String::shape(schema)
    }
}

impl Shape for RawValue {
    fn shape(_: &mut Schema) -> Value {
        reference("Any")
    }
}

impl Shape for WrittenBudget {
    fn shape(schema: &mut Schema) -> Value {
        let mut limits = named_apart(schema, Budget::shape);
        limits["additionalProperties"] = json!(false);
        schema.set_json("BudgetLimits", limits);
        reference("BudgetLimits")
    }
}

impl<T: Shape + ?Sized> Shape for &T {
    fn shape(schema: &mut Schema) -> Value {
        T::shape(schema)
    }
}

impl<T: Shape + ?Sized> Shape for Box<T> {
    fn shape(schema: &mut Schema) -> Value {
        T::shape(schema)
    }
}

impl<T: Shape> Shape for Option<T> {
    const IS_OPTIONAL: bool = true;

    fn shape(schema: &mut Schema) -> Value {
        let json = T::shape(schema);
        // Null is one of any values. A body omits the field; null, which is accepted, has the same meaning.
        if schema.is_input() || json == reference("Any") { json } else { nullable(&json) }
    }
}

impl<T: Shape> Shape for [T] {
    fn shape(schema: &mut Schema) -> Value {
        let items = T::shape(schema);
        let items = if T::IS_OPTIONAL { nullable(&items) } else { items };
        json!({"type": "array", "items": items})
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn shape(schema: &mut Schema) -> Value {
        <[T]>::shape(schema)
    }
}

impl<K, T: Shape> Shape for BTreeMap<K, T> {
    fn shape(schema: &mut Schema) -> Value {
        json!({"type": "object", "additionalProperties": T::shape(schema)})
    }
}

impl Shape for Outcome<'_> {
    fn shape(schema: &mut Schema) -> Value {
        let [output, failure] = [Payload::proto(schema), Failure::proto(schema)];
        let choices = [FieldLine::new(0, "output", output), FieldLine::new(0, "failure", failure)];
        schema.set_json_choice("RunOutcome", &[r#"doc = "Result of a closed run""#], &choices);
        reference("RunOutcome")
    }
}

impl<T: Shape> Shape for Partly<T> {
    fn shape(schema: &mut Schema) -> Value {
        let docs = &[
            r#"doc = "Databases that are down, whose rows are missing from the list; absent if the list is complete""#,
            "serde(skip_serializing_if)",
        ];
        with_field::<T>(schema, &FieldShape::new::<Vec<String>>("missing_databases", docs))
    }
}

impl<T: Shape> Shape for OfRun<'_, T> {
    fn shape(schema: &mut Schema) -> Value {
        with_field::<T>(schema, &FieldShape::new::<RunId>("run", &[]))
    }
}
