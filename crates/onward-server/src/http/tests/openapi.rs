//! OpenAPI 3.1 document, generated from the table of routes, the table of error codes, the types of the log, the frames of
//! workers, and the declarations of bodies and documents.
//!
//! Tests compare it with `docs/openapi.json`, which the server contains as text; the generator is not part of the server.
//!
//! `schemas.json` has the schemas of texts and numbers with limits, of formats of others (RFC 9457, AG-UI) and of streams.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::api::{
    ActivityReply, BulkVerb, CountsReply, DefaultsReply, FlowsReply, InvalidateMemosReply, PutAttachmentReply, PutFlowReply,
    Timeline, VersionsReply, WorkersReply,
};
use onward_core::log::codec::Field;
use onward_core::log::schema::Schema;
use onward_core::{ErrorCode, Event};
use onward_wire::worker::{ServerFrames, WorkerFrames};
use serde_json::{Map, Value, json};

use super::shape::{Shape, ShapeFn};
use crate::auth::session;
use crate::handlers::{
    approvals, bulk, claims, entries, external, flows, kinds, memos, operations, queues, quotas, runs, schedules, servers, tasks,
    transfer,
};
use crate::http::documents::{Approvals, DeletedRuns, Entries, EntryAnswer, OpenTasks, Partly, Receipt, Runs};
use crate::http::routes::{Parameter, ROUTES, ResponseShape, Route};
use crate::http::{diagnosis, documents};
use crate::webhooks::deliver;

/// Bodies of requests, by module.
const BODIES: &[&[ShapeFn]] = &[
    approvals::BODIES,
    bulk::BODIES,
    claims::BODIES,
    entries::BODIES,
    external::BODIES,
    flows::BODIES,
    kinds::BODIES,
    memos::BODIES,
    queues::BODIES,
    quotas::BODIES,
    runs::act::BODIES,
    runs::start::BODIES,
    schedules::BODIES,
    session::BODIES,
    tasks::BODIES,
];

/// Documents in responses, by module.
const DOCUMENTS: &[&[ShapeFn]] = &[
    documents::DOCUMENTS,
    bulk::DOCUMENTS,
    claims::DOCUMENTS,
    deliver::DOCUMENTS,
    diagnosis::DOCUMENTS,
    external::DOCUMENTS,
    kinds::DOCUMENTS,
    operations::DOCUMENTS,
    runs::live::DOCUMENTS,
    runs::start::DOCUMENTS,
    runs::stream::DOCUMENTS,
    schedules::DOCUMENTS,
    servers::DOCUMENTS,
    session::DOCUMENTS,
    tasks::DOCUMENTS,
    transfer::DOCUMENTS,
    &[Partly::<Approvals>::shape, Partly::<DeletedRuns>::shape, Partly::<OpenTasks>::shape, Partly::<Runs>::shape],
    &[Entries::shape, EntryAnswer::shape, Receipt::shape],
];

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Name of the security scheme.
const API_KEY: &str = "ApiKey";

/// Groups of operations: name, description, and the first words of their paths.
const TAGS: &[(&str, &str, &[&str])] = &[
    (
        "runs",
        "Start, signal, read and operate runs",
        &["runs", "bulk", "export", "import", "versions", "deleted", "spend", "counts", "activity", "live"],
    ),
    ("agents", "Turns and attachments of agents", &["agents", "attachments"]),
    ("approvals", "Approvals and promises that runs wait for", &["approvals", "promises"]),
    ("tasks", "Standalone tasks, and the queues of all tasks", &["tasks", "queues", "rate-limits"]),
    ("kinds", "Kinds of runs and tasks with their schemas", &["kinds"]),
    ("flows", "Definitions of flows", &["flows"]),
    ("schedules", "Work that starts by the clock", &["schedules", "slots"]),
    ("memos", "Recorded results that calls use again", &["memos"]),
    ("workers", "Workers and their frames", &["workers", "drive"]),
    ("external", "Logs of external engines", &["external"]),
    ("webhooks", "Signed requests of other services", &["webhooks"]),
    (
        "server",
        "Health, metrics, the console and this document",
        &["servers", "quotas", "namespace", "session", "", "console", "healthz", "readyz", "metrics", "openapi.json"],
    ),
];

/// Returns the document as text; the text is deterministic.
fn document() -> String {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_lowercase()] = operation(route);
    }
    let mut components = json!({
        "responses": {
            "Problem": {
                "description": "The request failed; `code` is the reason",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            },
        },
        "parameters": {
            "Namespace": {
                "name": "Onward-Namespace",
                "in": "header",
                "description": "Namespace; the default is that of a key for one namespace, otherwise `default`",
                "schema": reference("NamespaceName"),
            },
        },
        "securitySchemes": {
            API_KEY: {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "onw_…",
                "description": "Key that `onward key create` prints. Each operation lists the scope that the key needs. A server \
                                without keys listens on loopback only and needs none.",
            },
        },
    });
    components["schemas"] = schemas(&json!([paths, components])).into();
    let tags: Vec<Value> = TAGS.iter().map(|(name, text, _)| json!({"name": name, "description": text})).collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Onward",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable execution: start runs, follow them, answer their questions. Every error is an RFC 9457 problem with a stable `code`.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://localhost:7400"}],
        "tags": tags,
        "paths": paths,
        "components": components,
    });
    serde_json::to_string_pretty(&document).expect("documents serialize") + "\n"
}

/// Returns the schemas that `from` refers to, directly or not.
fn schemas(from: &Value) -> Map<String, Value> {
    let mut all = written_schemas();
    all.extend(generated_schemas());
    let mut used = BTreeSet::new();
    let mut open = vec![from];
    while let Some(value) = open.pop() {
        let names = references(value).into_iter().filter(|name| used.insert(name.clone()));
        open.extend(names.collect::<Vec<_>>().iter().filter_map(|name| all.get(name)));
    }
    all.into_iter().filter(|(name, _)| used.contains(name)).collect()
}

fn written_schemas() -> BTreeMap<String, Value> {
    serde_json::from_str(SCHEMAS).expect("the schemas are JSON")
}

/// Messages of frames whose names are those of other bodies; in the document they begin with `Frame`.
const FRAME_NAMES: [&str; 3] = ["Problem", "Run", "TaskState"];

/// Returns the schemas of the frames of workers. A type that both sides send is described as the server writes it.
fn frame_schemas() -> BTreeMap<String, Value> {
    let (mut read, mut written) = (Schema::of_input(), Schema::default());
    WorkerFrames::proto(&mut read);
    ServerFrames::proto(&mut written);
    let mut schemas = read.json().clone();
    schemas.extend(written.json().clone());
    let mut text = serde_json::to_string(&schemas).expect("schemas serialize");
    for name in FRAME_NAMES {
        text = text.replace(&format!("\"{SCHEMA_PATH}{name}\""), &format!("\"{SCHEMA_PATH}Frame{name}\""));
    }
    let schemas: BTreeMap<String, Value> = serde_json::from_str(&text).expect("the schemas are JSON");
    let renamed = |name: String| if FRAME_NAMES.contains(&name.as_str()) { format!("Frame{name}") } else { name };
    schemas.into_iter().map(|(name, schema)| (renamed(name), schema)).collect()
}

/// Returns the schemas of bodies.
fn body_schemas() -> BTreeMap<String, Value> {
    let mut schema = Schema::of_input();
    for add in BODIES.iter().copied().flatten() {
        add(&mut schema);
    }
    let mut schemas = schema.json().clone();
    // Two routes have one type: the verb is required or implied, the point is `from` or `to`.
    let mut delete = schemas["BulkRuns"].clone();
    delete["properties"]["verb"] = json!({"type": "string", "enum": [BulkVerb::Delete]});
    let others: Vec<&BulkVerb> = BulkVerb::ALL.iter().filter(|verb| **verb != BulkVerb::Delete).collect();
    let mut bulk = schemas["BulkRuns"].clone();
    bulk["properties"]["verb"] = json!({"type": "string", "enum": others});
    bulk["required"] = json!(["verb"]);
    schemas.extend([("BulkRuns".to_owned(), bulk), ("BulkDelete".to_owned(), delete)]);
    let copy = schemas.remove("CopyRun").unwrap_or_default();
    for (name, other) in [("ForkRun", "to"), ("ResetRun", "from")] {
        let mut copy = copy.clone();
        copy["properties"].as_object_mut().and_then(|properties| properties.remove(other));
        schemas.insert(name.to_owned(), copy);
    }
    schemas
}

/// Returns the schemas of documents, of replies of verbs and of events.
fn document_schemas() -> BTreeMap<String, Value> {
    let mut schema = Schema::default();
    let replies = [
        ActivityReply::proto,
        CountsReply::proto,
        DefaultsReply::proto,
        FlowsReply::proto,
        InvalidateMemosReply::proto,
        PutAttachmentReply::proto,
        PutFlowReply::proto,
        Timeline::proto,
        VersionsReply::proto,
    ];
    for add in replies.into_iter().chain([Event::proto, WorkersReply::proto]) {
        add(&mut schema);
    }
    for add in DOCUMENTS.iter().copied().flatten() {
        add(&mut schema);
    }
    let mut schemas = schema.json().clone();
    let texts = [
        ("Entry", "role", "Name"),
        ("PendingEntry", "role", "Name"),
        ("RefusedRun", "code", "ErrorCode"),
        ("UpdateAnswer", "update_id", "Name"),
    ];
    for (name, field, kind) in texts {
        schemas.entry(name.to_owned()).and_modify(|object| object["properties"][field] = reference(kind));
    }
    schemas
}

/// Returns the schemas of frames, bodies, documents and of the types in them, and the error codes. A type that is read and
/// written is described as the server writes it.
fn generated_schemas() -> BTreeMap<String, Value> {
    let mut schemas = frame_schemas();
    schemas.extend(body_schemas());
    schemas.extend(document_schemas());
    let mut codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    codes.sort_unstable();
    let codes = json!({"type": "string", "enum": codes, "description": "Stable error code; docs/errors describes each"});
    schemas.insert("ErrorCode".to_owned(), codes);
    schemas
}

/// Returns the names of the schemas that a value refers to.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(object) => {
            let inner = object.iter().filter(|(key, _)| *key != "discriminator").flat_map(|(_, value)| references(value));
            let own = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix(SCHEMA_PATH));
            own.map(str::to_owned).into_iter().chain(inner).collect()
        }
        Value::Array(values) => values.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn operation(route: &Route) -> Value {
    let security = route.scope.map(|scope| json!({API_KEY: [scope.to_string()]}));
    let mut operation = json!({
        "summary": route.summary,
        "operationId": route.id,
        "tags": tags(route.path),
        "security": Vec::from_iter(security),
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if let Some(body) = route.body {
        let content = json!({body.content_type: {"schema": reference(body.schema)}});
        operation["requestBody"] = json!({"required": body.required, "content": content});
    }
    operation
}

/// Returns the groups of a path; every path has one.
fn tags(path: &str) -> Vec<&'static str> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let first = path.split('/').nth(1).unwrap_or_default();
    TAGS.iter().filter(|(_, _, words)| words.contains(&first)).map(|(name, _, _)| *name).collect()
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        let is_call = ["/v1/approvals/", "/v1/promises/"].iter().any(|prefix| route.path.starts_with(prefix));
        let schema = reference(if is_call { "CallId" } else { "Name" });
        parameters.push(json!({"name": "id", "in": "path", "required": true, "schema": schema}));
    }
    if route.path.contains("{index}") {
        parameters.push(json!({"name": "index", "in": "path", "required": true, "schema": reference("Index")}));
    }
    if route.path.starts_with("/v1/") {
        parameters.push(json!({"$ref": "#/components/parameters/Namespace"}));
    }
    parameters.extend(route.query.iter().map(parameter));
    parameters
}

fn parameter(parameter: &Parameter) -> Value {
    let is_named = parameter.kind.starts_with(|first: char| first.is_ascii_uppercase());
    let one = if is_named { reference(parameter.kind) } else { json!({"type": parameter.kind}) };
    let (name, schema) = match parameter.name.strip_suffix(".NAME") {
        // The fields of the object are the parameters.
        Some(name) => {
            (name, json!({"type": "object", "propertyNames": {"pattern": format!("^{name}\\..+$")}, "additionalProperties": one}))
        }
        None if parameter.repeats => (parameter.name, json!({"type": "array", "items": one})),
        None => (parameter.name, one),
    };
    json!({"name": name, "in": "query", "description": parameter.text, "schema": schema})
}

fn responses(route: &Route) -> Value {
    let mut responses = json!({"default": {"$ref": "#/components/responses/Problem"}});
    for ResponseShape { status, text, content } in route.responses {
        let mut response = json!({"description": text});
        for (content_type, schema) in *content {
            response["content"][content_type] = json!({"schema": reference(schema)});
            if *schema == "StartedRun" {
                response["links"] = links_to_a_run();
            }
        }
        responses[status.to_string()] = response;
    }
    responses
}

/// Returns links from a started run to the operations on it.
fn links_to_a_run() -> Value {
    let about = ROUTES.iter().filter(|route| route.path.starts_with("/v1/runs/{id}") && !route.path.contains("{index}"));
    let link = |route: &Route| json!({"operationId": route.id, "parameters": {"id": "$response.body#/id"}});
    about.map(|route| (route.id.to_owned(), link(route))).collect::<Map<_, _>>().into()
}

pub(crate) const SCHEMA_PATH: &str = "#/components/schemas/";

pub(crate) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("{SCHEMA_PATH}{schema}")})
}

mod tests;
