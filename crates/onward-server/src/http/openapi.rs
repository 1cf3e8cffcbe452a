//! OpenAPI 3.1 document, generated from the table of routes.
//!
//! Written by hand and not derived: the types belong to crates that know nothing of HTTP, and the router and the scopes need the
//! table anyway. The schemas of bodies are in `schemas.json`; tests compare them with real responses.

use serde_json::{Map, Value, json};

use crate::http::routes::{Parameter, ROUTES, ResponseShape, Route};

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Returns the document as text; the text is deterministic.
pub fn document() -> String {
    let schemas: Value = serde_json::from_str(SCHEMAS).expect("the schemas are JSON");
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.verb.method().as_str().to_lowercase()] = operation(route);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Onward",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable execution: start runs, follow them, answer their questions. Every error is an RFC 9457 problem with a stable `code`.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://localhost:7400"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
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
                    "description": "Namespace; default `default`",
                    "schema": reference("NamespaceName"),
                },
            },
        },
    });
    serde_json::to_string_pretty(&document).expect("documents serialize") + "\n"
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route),
        "parameters": parameters(route),
        "responses": responses(route),
        "x-onward-scope": route.scope.map(|scope| scope.to_string()),
    });
    if let Some(body) = route.body {
        let content = json!({body.content_type: {"schema": reference(body.schema)}});
        operation["requestBody"] = json!({"required": body.required, "content": content});
    }
    operation
}

/// Returns the operation id, such as `post_v1_runs_id_signals`.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let method = route.verb.method().as_str().to_lowercase();
    [method.as_str()].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        let is_call = ["/v1/approvals/", "/v1/promises/"].iter().any(|prefix| route.path.starts_with(prefix));
        let schema = reference(if is_call { "CallId" } else { "Name" });
        parameters.push(json!({"name": "id", "in": "path", "required": true, "schema": schema}));
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
    let schema = if parameter.repeats { json!({"type": "array", "items": one}) } else { one };
    json!({"name": parameter.name, "in": "query", "description": parameter.text, "schema": schema})
}

fn responses(route: &Route) -> Value {
    let mut responses = json!({"default": {"$ref": "#/components/responses/Problem"}});
    for ResponseShape { status, text, content } in route.answers {
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
    let about = ROUTES.iter().filter(|route| route.path.starts_with("/v1/runs/{id}"));
    let link = |route| json!({"operationId": operation_id(route), "parameters": {"id": "$response.body#/id"}});
    about.map(|route| (operation_id(route), link(route))).collect::<Map<_, _>>().into()
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

#[cfg(test)]
mod tests;
