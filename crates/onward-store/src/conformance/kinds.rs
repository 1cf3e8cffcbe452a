//! Schemas of kinds are stored where every process that starts runs can read them.

use std::time::Duration;

use onward_core::{KindDefaults, KindSchemas, NamedSchema, Namespace, Payload, Timestamp};

use super::block_on;
use super::harness::{Harness, name, namespaces};
use crate::{KindCondition, PAYLOAD_BYTES_MAX, Registration, StoreError};

fn schema(kind: &str, version: Option<&str>, input: &str) -> KindSchemas {
    KindSchemas {
        input: Some(Payload::from_json_text(input.to_owned())),
        defaults: Some(Box::new(KindDefaults { priority: Some(-1), ..KindDefaults::default() })),
        signals: vec![NamedSchema { name: name("pay"), schema: Payload::null() }],
        update_answers: vec![NamedSchema { name: name("add"), schema: Payload::null() }],
        ..KindSchemas::empty(Namespace::default(), name(kind), version.map(name))
    }
}

pub async fn what_a_kind_takes_is_kept_for_its_namespace_kind_and_version(mut harness: Harness) {
    let [namespace, other] = namespaces();
    let own = |kind, version, input| KindSchemas { namespace: namespace.clone(), ..schema(kind, version, input) };
    let registered = [
        KindSchemas { is_imported: true, ..own("b", None, "1") },
        own("a", Some("v1"), "2"),
        own("a", None, "3"),
        KindSchemas { is_task: true, ..own("a", None, "4") },
        KindSchemas { namespace: other.clone(), ..schema("a", None, "5") },
    ];
    harness.store().register_kinds(registered.to_vec(), Registration::Always).await.unwrap();
    let now = harness.now();
    harness.reopen();
    let [b, a_v1, a, task, foreign] = registered.map(|kind| KindSchemas { registered_at: now, ..kind });
    assert_eq!(harness.store().list_kinds(namespace).await.unwrap(), [a, a_v1, b, task]);
    assert_eq!(harness.store().list_kinds(other).await.unwrap(), [foreign]);
}

pub async fn the_newest_word_about_a_kind_counts(harness: Harness) {
    let store = harness.store();
    store.register_kinds(vec![schema("a", None, "1"), schema("b", None, "1")], Registration::Always).await.unwrap();
    harness.pass(Duration::from_secs(1));
    let output = Some(Payload::from_json_text("3"));
    let newer = KindSchemas { output: output.clone(), ..schema("a", None, "2") };
    // An entry without schemas removes the stored one; removing a missing one is a no-op.
    let silent = |kind| KindSchemas::empty(Namespace::default(), name(kind), None);
    store.register_kinds(vec![newer.clone(), silent("b"), silent("c")], Registration::Always).await.unwrap();
    let kept = store.list_kinds(Namespace::default()).await.unwrap();
    assert_eq!(kept, [KindSchemas { registered_at: harness.now(), ..newer }]);
}

pub async fn a_schema_over_the_limit_writes_nothing(harness: Harness) {
    let large = schema("a", None, &"1".repeat(PAYLOAD_BYTES_MAX + 1));
    let error = harness.store().register_kinds(vec![schema("b", None, "1"), large], Registration::Always).await.unwrap_err();
    assert_eq!(error.code(), "payload_too_large");
    assert_eq!(harness.store().list_kinds(Namespace::default()).await.unwrap(), []);
}

/// Returns the condition that a version of the kind `a` was registered last.
fn current(version: Option<&str>) -> Registration {
    Registration::If(KindCondition { namespace: Namespace::default(), kind: name("a"), version: version.map(name) })
}

/// Checks RK1: several writers expect the same version in the same moment.
pub async fn one_of_several_writers_that_expect_the_same_version_registers(mut harness: Harness) {
    let mut expected = None;
    for round in 0..5 {
        let versions: Vec<String> = (0..8).map(|writer| format!("v{round}-{writer}")).collect();
        let writers = versions.iter().map(|version| {
            let kinds = vec![schema("a", Some(version), "1"), schema("b", Some(version), "1")];
            let (store, condition) = (harness.store().clone(), current(expected.as_deref()));
            std::thread::spawn(move || block_on(store.register_kinds(kinds, condition)))
        });
        let writers: Vec<_> = writers.collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let written: Vec<&String> =
            versions.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(of, _)| of).collect();
        let [winner] = written[..] else { panic!("one writer registers: {results:?}") };
        let is_refusal = |error: &StoreError| matches!(error, StoreError::KindChanged { version: Some(version), .. } if version.as_str() == winner);
        assert!(results.iter().all(|result| result.as_ref().map_or_else(is_refusal, |_| true)), "{results:?}");
        expected = Some(winner.clone());
        harness.reopen();
        let kept = harness.store().list_kinds(Namespace::default()).await.unwrap();
        assert_eq!(kept.len(), 2 * (round + 1), "nothing of the others is written");
    }
}

/// Checks RK2, within one millisecond, too.
pub async fn a_registration_on_a_condition_is_later_than_the_one_before(harness: Harness) {
    let store = harness.store();
    let mut before = store.register_kinds(vec![schema("a", Some("z"), "1")], current(None)).await.unwrap();
    for (expected, version) in [("z", "y"), ("y", "x"), ("x", "z")] {
        let at = store.register_kinds(vec![schema("a", Some(version), "1")], current(Some(expected))).await.unwrap();
        assert!(at > before, "{version}");
        before = at;
    }
    let stale = store.register_kinds(vec![schema("a", Some("w"), "1")], current(Some("x"))).await;
    assert!(matches!(stale, Err(StoreError::KindChanged { version: Some(version), .. }) if version == name("z")));
}

/// Checks RK1: an imported definition is not what a writer expects to replace.
pub async fn an_imported_row_is_not_the_version_that_was_registered_last(harness: Harness) {
    let store = harness.store();
    store.register_kinds(vec![schema("a", Some("v1"), "1")], current(None)).await.unwrap();
    let imported = KindSchemas { is_imported: true, ..schema("a", Some("v2"), "1") };
    store.register_kinds(vec![imported], Registration::Always).await.unwrap();
    store.register_kinds(vec![schema("a", Some("v3"), "1")], current(Some("v1"))).await.unwrap();
}

/// Checks RK3.
pub async fn a_copy_of_an_older_registration_replaces_no_newer_one(harness: Harness) {
    let store = harness.store();
    let copy = |at: u64| Registration::Copy { at: Timestamp(at) };
    let row = |input| schema("a", Some("v"), input);
    store.register_kinds(vec![row("2")], copy(20)).await.unwrap();
    store.register_kinds(vec![row("1"), schema("b", None, "1")], copy(10)).await.unwrap();
    let kept = store.list_kinds(Namespace::default()).await.unwrap();
    let at = |kind: KindSchemas, at: u64| KindSchemas { registered_at: Timestamp(at), ..kind };
    assert_eq!(kept, [at(row("2"), 20), at(schema("b", None, "1"), 10)]);
    store.register_kinds(vec![KindSchemas::empty(Namespace::default(), name("a"), Some(name("v")))], copy(15)).await.unwrap();
    assert_eq!(store.list_kinds(Namespace::default()).await.unwrap().len(), 2, "nor does an older removal");
}
