//! The OpenAPI document and the server: the same limits, and schemas that fit what is written.

use onward_core::task::TaskReport;
use onward_core::{Log, Payload};
use onward_wire::worker::{ReportTask, ServerFrame, WorkerFrame};
use serde_json::{Value, json};

use crate::client::Reply;
use crate::site::Site;

fn document() -> Value {
    serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"))).unwrap()
}

/// Follows references.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => resolved(document, document.pointer(path.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

/// Refuses fields that a schema does not name.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("properties").is_some_and(Value::is_object) && object.get("type") == Some(&json!("object")) {
                object.insert("additionalProperties".to_owned(), json!(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

#[test]
fn every_event_of_the_golden_logs_fits_its_schema() {
    let mut schema = json!({"$ref": "#/components/schemas/Event", "components": document()["components"].take()});
    close(&mut schema["components"]["schemas"]);
    let schema = jsonschema::validator_for(&schema).unwrap();
    let mut count = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/logs")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let log = Log::from_json_lines(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for (index, event) in log.events() {
            let event = serde_json::to_value(event).unwrap();
            let errors: Vec<String> = schema.iter_errors(&event).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{} {index}: {event}: {errors:?}", path.display());
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// The frames of the recorded conversations, as both sides write them.
#[test]
fn every_frame_of_the_recorded_conversations_fits_its_schema() {
    let mut components = document()["components"].take();
    close(&mut components["schemas"]);
    let schema = |name: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": components});
        jsonschema::validator_for(&schema).unwrap()
    };
    let (worker, server) = (schema("WorkerFrames"), schema("ServerFrames"));
    let fits = |schema: &jsonschema::Validator, frame: Value| {
        let frames = json!({"frames": [frame]});
        let errors: Vec<String> = schema.iter_errors(&frames).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{frames}: {errors:?}");
    };
    let mut count = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../onward-wire/tests/conversations")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            if let Some(frame) = line.get("up") {
                let parsed: WorkerFrame = serde_json::from_str(&frame.to_string()).unwrap();
                fits(&worker, serde_json::to_value(parsed).unwrap());
                if frame.get("hello").is_some() {
                    fits(&worker, frame.clone()); // without fields that have a default
                }
            } else if let Some(frame) = line.get("down") {
                let parsed: ServerFrame = serde_json::from_str(&frame.to_string()).unwrap();
                fits(&server, serde_json::to_value(parsed).unwrap());
            } else {
                continue;
            }
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
    let task = onward_core::task::TaskId {
        run: onward_core::RunKey::new(Default::default(), onward_core::RunId::new("r").unwrap()),
        generation: 0,
        call_id: onward_core::CallId::root(1),
        incarnation: None,
    };
    for report in [TaskReport::Interrupted, TaskReport::Heartbeat { progress: None }, TaskReport::Completed(Payload::null())] {
        let report = ReportTask { request: 1, task: task.clone(), claim: 1, report };
        fits(&worker, serde_json::to_value(WorkerFrame::Report(report)).unwrap());
    }
}

/// Value of a request at a limit, and one beyond it.
struct Edge {
    pointer: String,
    inside: Value,
    outside: Value,
}

/// Returns the smallest valid value of a schema.
fn sample(document: &Value, schema: &Value) -> Value {
    let schema = resolved(document, schema);
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields = required.map(|name| (name.to_owned(), sample(document, &schema["properties"][name])));
            Value::Object(fields.collect())
        }
        Some("array") => {
            json!(vec![sample(document, &schema["items"]); usize::from(schema["minItems"] == 1)])
        }
        Some("string") if schema["pattern"].as_str().is_some_and(|pattern| pattern.contains('~')) => json!("a~0~0"),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        Some("string") => json!("a"),
        Some("integer") => schema["minimum"].as_i64().filter(|minimum| *minimum > 0).unwrap_or(0).into(),
        Some("boolean") => json!(false),
        _ => json!(1),
    }
}

/// Returns the limits of a schema and of the fields in it.
fn edges(document: &Value, schema: &Value, pointer: &str) -> Vec<Edge> {
    let schema = resolved(document, schema);
    let mut edges = Vec::new();
    let mut edge = |inside: Value, outside: Value| edges.push(Edge { pointer: pointer.to_owned(), inside, outside });
    if let Some(length) = schema["maxLength"].as_u64().and_then(|length| usize::try_from(length).ok()) {
        edge("a".repeat(length).into(), "a".repeat(length + 1).into());
    }
    if let Some(maximum) = schema["maximum"].as_i64() {
        edge(maximum.into(), (maximum + 1).into());
    }
    if let Some(minimum) = schema["minimum"].as_i64() {
        edge(minimum.into(), (minimum - 1).into());
    }
    if schema["minLength"] == 1 {
        edge("a".into(), "".into());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        edges.extend(self::edges(document, field, &format!("{pointer}/{name}")));
    }
    edges
}

/// Returns `body` with `value` at `pointer`; objects on the way are created as their schemas require.
fn with(document: &Value, schema: &Value, mut body: Value, pointer: &str, value: &Value) -> Value {
    let schema = resolved(document, schema);
    let (name, rest) =
        pointer[1..].split_once('/').map_or((&pointer[1..], None), |(name, rest)| (name, Some(format!("/{rest}"))));
    body[name] = match rest {
        None => value.clone(),
        Some(rest) => {
            let inner = &schema["properties"][name];
            with(document, inner, sample(document, inner), &rest, value)
        }
    };
    body
}

/// Every limit of a body in the document is the one that the server enforces.
#[tokio::test]
async fn bodies_are_limited_as_documented() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    site.put_json("/v1/external/x", json!({"kind": "k", "status": "running"})).await.expect(201);
    let document = document();
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Input of AG-UI clients has the limits of AG-UI.
        for (method, operation) in methods.as_object().unwrap().iter().filter(|_| !path.ends_with("/ag-ui")) {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let id = if path.starts_with("/v1/external") { "x" } else { sample_id(path) };
            let path = path.replace("{id}", id).replace("{index}", "0");
            let send = async |body: Value| -> Reply {
                let body = body.to_string();
                site.send(&method.to_uppercase(), &path, "Content-Type: application/json\r\n", &body).await
            };
            for Edge { pointer, inside, outside } in edges(&document, schema, "") {
                let body = |value: &Value| {
                    let mut body = with(&document, schema, sample(&document, schema), &pointer, value);
                    // Either this field or another; schemas do not state it.
                    match path.rsplit('/').next() {
                        Some("messages") => body["text"] = json!("a"),
                        Some("a~0~0") if path.starts_with("/v1/promises") => body["result"] = json!(1),
                        _ => {}
                    }
                    body
                };
                let reply = send(body(&outside)).await;
                if reply.status != 400 {
                    wrong.push(format!("{method} {path} {pointer} beyond: {}", reply.body));
                }
                let reply = send(body(&inside)).await;
                if matches!(reply.json()["code"].as_str(), Some("json_invalid" | "name_invalid" | "id_invalid" | "text_too_long"))
                {
                    wrong.push(format!("{method} {path} {pointer} within: {}", reply.body));
                }
                count += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "{count}");
}

fn sample_id(path: &str) -> &'static str {
    if path.starts_with("/v1/approvals") || path.starts_with("/v1/promises") { "a~0~0" } else { "a" }
}

#[tokio::test]
async fn query_parameters_are_limited_as_documented() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    site.post_json("/v1/tasks", json!({"kind": "of no worker", "id": "t"})).await.expect(201);
    let document = document();
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = if body.is_null() { String::new() } else { sample(&document, body).to_string() };
            for parameter in operation["parameters"].as_array().unwrap().iter().filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                for Edge { inside, outside, .. } in edges(&document, &parameter["schema"], "") {
                    let send = async |id: &str, value: &Value| {
                        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                        let path = format!("{}?{name}={value}", path.replace("{id}", id).replace("{index}", "0"));
                        let headers = "Content-Type: application/json\r\nAccept: application/json\r\nX-Onward-Console: 1\r\n";
                        site.send(&method.to_uppercase(), &path, headers, &body).await
                    };
                    let reply = send(if path.starts_with("/v1/tasks") { "t" } else { "a" }, &outside).await;
                    // A stream refuses its parameters before it refuses a client that wants no events.
                    let is_unwanted = reply.body.contains("text/event-stream");
                    if reply.status != 400 || is_unwanted {
                        wrong.push(format!("{method} {path} {name} beyond: {}", reply.body));
                    }
                    // Nothing to wait for.
                    let reply = send("nope", &inside).await;
                    if reply.status == 400 && !reply.body.contains("text/event-stream") {
                        wrong.push(format!("{method} {path} {name} within: {}", reply.body));
                    }
                    count += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count}");
}

/// AT1 in the document.
#[tokio::test]
async fn attributes_are_limited_as_documented() {
    let site = Site::open().await;
    let document = document();
    let schema = &document["components"]["schemas"]["Attributes"];
    let names = usize::try_from(schema["maxProperties"].as_u64().unwrap()).unwrap();
    let length = usize::try_from(schema["additionalProperties"]["oneOf"][0]["maxLength"].as_u64().unwrap()).unwrap();
    for (beyond, status) in [(0, 201), (1, 400)] {
        let many: Value =
            (0..names + beyond).map(|name| (format!("a{name}"), json!(name))).collect::<serde_json::Map<_, _>>().into();
        site.post_json("/v1/runs", json!({"kind": "listener", "attributes": many})).await.expect(status);
        let long = json!({"a": "x".repeat(length + beyond)});
        site.post_json("/v1/runs", json!({"kind": "listener", "attributes": long})).await.expect(status);
    }
}
