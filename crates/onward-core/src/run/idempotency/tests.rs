//! Tests of the parent module.

use super::*;
use crate::Name;

fn signal(id: &str, name: &str, payload: &str) -> IdempotencyRecord {
    let (name, payload) = (Name::new(name).unwrap(), Payload::from_json_text(payload.to_owned()));
    IdempotencyRecord::signal(&SignalReceived { name, payload, signal_id: Some(id.to_owned()), sender: None }).unwrap()
}

#[test]
fn the_same_id_is_the_same_act_only_with_the_same_content() {
    let first = signal("a", "paid", r#"{"cents":1,"by":"x"}"#);
    assert_eq!(signal("a", "paid", r#"{ "by": "x", "cents": 1 }"#).again(&first.token), Again::Repeated);
    assert_eq!(signal("a", "paid", r#"{"cents":2,"by":"x"}"#).again(&first.token), Again::Other);
    assert_eq!(signal("a", "refused", r#"{"cents":1,"by":"x"}"#).again(&first.token), Again::Other);
    assert_eq!(first.again(""), Again::Repeated, "older records have no content hash");
    assert_eq!(first.describe(), "signal `a`");
}

#[test]
fn an_entry_is_its_role_and_its_content_under_a_key_that_is_no_signals() {
    let entry = |key: &str, role: &str, content: &str| {
        let (role, content) = (Name::new(role).unwrap(), Payload::from_json_text(content.to_owned()));
        let payload = OutsideEntry { role, content, idempotency_key: Some(key.to_owned()) }.to_payload();
        let name = Name::new(crate::agent::conversation::ENTRY_SIGNAL).unwrap();
        IdempotencyRecord::signal(&SignalReceived { name, payload, signal_id: Some(key.to_owned()), sender: None }).unwrap()
    };
    let first = entry("a", "user", r#"{"x":1,"y":2}"#);
    assert_eq!(entry("a", "user", r#"{ "y": 2, "x": 1 }"#).again(&first.token), Again::Repeated);
    assert_eq!(entry("a", "tool", r#"{"x":1,"y":2}"#).again(&first.token), Again::Other);
    assert_eq!(entry("a", "user", r#"{"x":1}"#).again(&first.token), Again::Other);
    assert_ne!(first.key, signal("a", "x", "1").key);
    assert_eq!(first.describe(), "entry `a`");
}

#[test]
fn an_append_is_its_events_and_its_state_wherever_it_was_meant_to_go() {
    let append = |expected, events: &[&str], status: Option<crate::Status>| {
        let events = events.iter().map(|text| Payload::from_json_text((*text).to_owned())).collect();
        let state =
            status.map(|status| ExternalState { kind: Name::new("k").unwrap(), version: None, status, data: Payload::null() });
        IdempotencyRecord::append(&ExternalAppended { expected: Some(crate::Index(expected)), events, state }, "a")
    };
    let first = append(0, &["1", "2"], None);
    assert_eq!(append(7, &["1", "2"], None).again(&first.token), Again::Repeated);
    assert_eq!(append(0, &["1", "3"], None).again(&first.token), Again::Other);
    assert_eq!(append(0, &["1"], None).again(&first.token), Again::Other);
    assert_eq!(append(0, &["1", "2"], Some(crate::Status::Running)).again(&first.token), Again::Other);
    assert_eq!(first.describe(), "append `a`");
}

#[test]
fn another_id_has_lost_whatever_its_content() {
    let answer = |who: &str, approved| {
        let (call_id, decision_id) = (CallId::root(0), who.to_owned());
        let event = ApprovalDecided { call_id, approved, feedback: None, decided_by: None, answer: None, decision_id };
        IdempotencyRecord::answer(&event.into(), 0, &CallId::root(0), who)
    };
    let first = answer("anna", true);
    assert_eq!(answer("anna", true).again(&first.token), Again::Repeated);
    assert_eq!(answer("anna", false).again(&first.token), Again::Other);
    assert_eq!(answer("ben", true).again(&first.token), Again::Lost { winner: "anna".to_owned() });
    assert_eq!(answer("ben", true).again("expired"), Again::Lost { winner: "expired".to_owned() });
    assert_eq!(first.describe(), "answer `anna`");
}
