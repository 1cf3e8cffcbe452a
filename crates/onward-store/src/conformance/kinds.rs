//! Schemas of kinds are stored where every process that starts runs can read them.

use std::time::Duration;

use onward_core::{KindDefaults, KindSchemas, NamedSchema, Namespace, Payload};

use super::harness::{Harness, name, namespaces};
use crate::PAYLOAD_BYTES_MAX;

fn schema(kind: &str, version: Option<&str>, input: &str) -> KindSchemas {
    KindSchemas {
        input: Some(Payload::from_json_text(input.to_owned())),
        defaults: Some(Box::new(KindDefaults { priority: Some(-1), ..KindDefaults::default() })),
        signals: vec![NamedSchema { name: name("pay"), schema: Payload::null() }],
        update_answers: vec![NamedSchema { name: name("add"), schema: Payload::null() }],
        is_imported: true,
        ..KindSchemas::empty(Namespace::default(), name(kind), version.map(name))
    }
}

pub async fn what_a_kind_takes_is_kept_for_its_namespace_kind_and_version(mut harness: Harness) {
    let [namespace, other] = namespaces();
    let own = |kind, version, input| KindSchemas { namespace: namespace.clone(), ..schema(kind, version, input) };
    let registered = [
        own("b", None, "1"),
        own("a", Some("v1"), "2"),
        own("a", None, "3"),
        KindSchemas { is_task: true, ..own("a", None, "4") },
        KindSchemas { namespace: other.clone(), ..schema("a", None, "5") },
    ];
    harness.store().register_kinds(registered.to_vec()).await.unwrap();
    let now = harness.now();
    harness.reopen();
    let [b, a_v1, a, task, foreign] = registered.map(|kind| KindSchemas { registered_at: now, ..kind });
    assert_eq!(harness.store().list_kinds(namespace).await.unwrap(), [a, a_v1, b, task]);
    assert_eq!(harness.store().list_kinds(other).await.unwrap(), [foreign]);
}

pub async fn the_newest_word_about_a_kind_counts(harness: Harness) {
    let store = harness.store();
    store.register_kinds(vec![schema("a", None, "1"), schema("b", None, "1")]).await.unwrap();
    harness.pass(Duration::from_secs(1));
    let output = Some(Payload::from_json_text("3"));
    let newer = KindSchemas { output: output.clone(), ..schema("a", None, "2") };
    // An entry without schemas removes the stored one; removing a missing one is a no-op.
    let silent = |kind| KindSchemas::empty(Namespace::default(), name(kind), None);
    store.register_kinds(vec![newer.clone(), silent("b"), silent("c")]).await.unwrap();
    let kept = store.list_kinds(Namespace::default()).await.unwrap();
    assert_eq!(kept, [KindSchemas { registered_at: harness.now(), ..newer }]);
}

pub async fn a_schema_over_the_limit_writes_nothing(harness: Harness) {
    let large = schema("a", None, &"1".repeat(PAYLOAD_BYTES_MAX + 1));
    let error = harness.store().register_kinds(vec![schema("b", None, "1"), large]).await.unwrap_err();
    assert_eq!(error.code(), "payload_too_large");
    assert_eq!(harness.store().list_kinds(Namespace::default()).await.unwrap(), []);
}
