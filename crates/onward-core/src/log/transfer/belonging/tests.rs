//! Tests of the parent module.

use super::*;
use crate::log::event::{CarriedSignal, ChildStarted, OnParentClose, ResultRequested, RunForked, RunStarted, SignalReceived};
use crate::run::ancestry::Origin;
use crate::{Name, Payload, Timestamp};

fn key(namespace: &str, id: &str) -> RunKey {
    RunKey::new(Namespace::new(namespace).unwrap(), RunId::new(id).unwrap())
}

fn started() -> RunStarted {
    RunStarted::new(Name::new("k").unwrap(), Payload::null(), 1)
}

fn link(run: RunKey) -> ParentLink {
    ParentLink {
        run,
        generation: 0,
        call_id: CallId::root(0),
        on_parent_close: OnParentClose::Cancel,
        incarnation: None,
        is_spawned: false,
    }
}

#[test]
fn a_log_that_names_a_run_of_another_namespace_anywhere_is_found_out() {
    let name = || Name::new("s").unwrap();
    let events = |victim: &RunKey| -> [Event; 6] {
        let sender = Some(victim.clone());
        let carried = CarriedSignal { name: name(), payload: Payload::null(), signal_id: None, sender: sender.clone() };
        let forked = RunForked {
            from: victim.clone(),
            generation: 0,
            index: Index(0),
            is_reset: false,
            request_id: String::new(),
            reason: String::new(),
            children: Vec::new(),
            gone: None,
            budget_max: None,
        };
        [
            RunStarted { parent: Some(link(victim.clone())), ..started() }.into(),
            RunStarted { origins: vec![Origin::of_start(victim.clone())], ..started() }.into(),
            RunStarted { mailbox: vec![carried], ..started() }.into(),
            SignalReceived { name: name(), payload: Payload::null(), signal_id: None, sender }.into(),
            forked.into(),
            ResultRequested { by: link(victim.clone()) }.into(),
        ]
    };
    let (victim, own) = (key("default", "victim"), key("evil", "sibling"));
    for (theirs, ours) in events(&victim).into_iter().zip(events(&own)) {
        let log = |event| [Record::input(Index(0), Timestamp(1), event)];
        let (theirs, ours) = (log(theirs), log(ours));
        assert_eq!(foreign_run(&own.namespace, &theirs), Some((Index(0), &victim)));
        assert_eq!(foreign_run(&own.namespace, &ours), None);
    }
}

#[test]
fn a_parent_waits_for_the_child_it_started_and_for_no_other() {
    let parent = key("default", "p");
    let child_started = ChildStarted {
        call_id: CallId::root(0),
        child: RunId::new("c").unwrap(),
        kind: Name::new("k").unwrap(),
        version: None,
        input_hash: crate::Hash::of(&Payload::null()),
        input: Payload::null(),
        on_parent_close: OnParentClose::Cancel,
        is_spawned: false,
        budget: None,
        queue: None,
    };
    let commit = crate::log::CommitHeader {
        n: 0,
        epoch: crate::Epoch(1),
        commit_id: crate::log::CommitId(1),
        horizon: Index(0),
        waits: true,
        is_while_paused: false,
    };
    let log = [
        Record::input(Index(0), Timestamp(1), started().into()),
        Record { index: Index(1), at: Timestamp(2), commit: Some(commit), events: vec![child_started.into()] },
    ];
    let projection = Projection::of(parent.clone(), &log).unwrap();
    let (child, other) = (RunId::new("c").unwrap(), RunId::new("x").unwrap());
    let at = |call_id, generation| ParentLink { call_id: CallId::root(call_id), generation, ..link(parent.clone()) };
    assert!(projection.awaits(&at(0, 0), &child));
    assert!(!projection.awaits(&at(0, 0), &other));
    assert!(!projection.awaits(&at(1, 0), &child));
    assert!(!projection.awaits(&at(0, 1), &child));
    assert_eq!(child_calls(&log), BTreeSet::from([(CallId::root(0), child)]));
}
