use super::*;

fn parsed() -> Value {
    serde_json::from_str(&document()).unwrap()
}

#[test]
fn every_schema_that_is_named_is_there_and_needed() {
    let document = parsed();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in references(&document) {
        assert!(schemas.contains_key(&name), "there is no schema {name}");
    }
    let generated = generated_schemas();
    for name in written_schemas().keys() {
        assert!(schemas.contains_key(name), "no route needs the schema {name}");
        assert!(!generated.contains_key(name), "{name} is also the name of a generated schema");
    }
}

/// JSON that is not ours to declare: any value, this document, the input of AG-UI.
const FOREIGN: [&str; 3] = ["Any", "Document", "RunAgentInput"];

#[test]
fn every_json_body_and_reply_has_the_schema_of_its_type() {
    let generated = generated_schemas();
    for route in ROUTES {
        let replies = route.responses.iter().flat_map(|response| response.content).copied();
        let bodies = route.body.iter().map(|body| (body.content_type, body.schema)).chain(replies);
        for (_, name) in bodies.filter(|(content_type, _)| *content_type == "application/json") {
            assert!(generated.contains_key(name) || FOREIGN.contains(&name), "{}: {name} is not generated", route.id);
        }
    }
}

/// A type that is read and written has one schema, or two names.
#[test]
fn no_name_has_two_schemas() {
    let documents = document_schemas();
    for (name, schema) in body_schemas().into_iter().chain(frame_schemas()) {
        let other = documents.get(&name).unwrap_or(&schema);
        assert_eq!(schema, *other, "{name}");
    }
    let bodies = body_schemas();
    let frames = frame_schemas();
    for (name, schema) in bodies.iter().filter(|(name, _)| frames.contains_key(*name)) {
        assert_eq!(schema, &frames[name], "{name}");
    }
}

#[test]
fn every_operation_has_a_unique_name_and_one_tag() {
    let names: BTreeSet<&str> = ROUTES.iter().map(|route| route.id).collect();
    assert_eq!(names.len(), ROUTES.len());
    for route in ROUTES {
        assert!(route.id.starts_with(|first: char| first.is_ascii_lowercase()), "{} has no name", route.path);
        assert_eq!(tags(route.path).len(), 1, "{}", route.path);
    }
}

/// Generators cannot name an object that is written inside a union with null.
#[test]
fn null_is_united_with_named_schemas_only() {
    fn check(path: &str, value: &Value) {
        let unions = ["oneOf", "anyOf"].into_iter().filter_map(|key| value[key].as_array());
        for members in unions.filter(|members| members.contains(&json!({"type": "null"}))) {
            assert!(members.iter().all(|member| member["type"] != "object"), "{path}");
        }
        let is_nullable_object = value["type"].as_array().is_some_and(|types| types.contains(&json!("object")));
        assert!(!is_nullable_object, "{path}");
        let inner: Vec<(String, &Value)> = match value {
            Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(values) => values.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
            _ => Vec::new(),
        };
        inner.into_iter().for_each(|(key, value)| check(&format!("{path}/{key}"), value));
    }
    check("", &parsed()["components"]["schemas"]);
}

/// Clients are generated from the committed document. `ONWARD_WRITE=1` writes it.
#[test]
fn the_committed_document_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    if std::env::var_os("ONWARD_WRITE").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == document(), "docs/openapi.json is old: ONWARD_WRITE=1 cargo test -p onward-server openapi");
}
