//! Tests of the parent module.

use super::*;

#[test]
fn every_schema_that_is_named_is_there() {
    let document = document();
    let value: Value = serde_json::from_str(&document).unwrap();
    let names: Vec<&str> = document.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    for name in &names {
        assert!(value["components"]["schemas"].get(name).is_some(), "there is no schema {name}");
    }
    for name in value["components"]["schemas"].as_object().unwrap().keys() {
        assert!(names.contains(&name.as_str()), "nobody needs the schema {name}");
    }
}

#[test]
fn every_operation_has_a_name_of_its_own() {
    let mut names: Vec<String> = ROUTES.iter().map(operation_id).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), ROUTES.len());
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
