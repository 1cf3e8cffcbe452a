//! SD1, SD2: placement of runs.

use onward_core::event::{OnParentClose, ParentLink, RunStarted};
use onward_core::run::NewRun;
use onward_core::{CallId, Name, Namespace, Payload, Record, RunId, RunKey};
use onward_store::conformance::block_on;
use onward_store::{Restore, RestoreRun, Store};
use onward_store_postgres::sharded::position;

use crate::faulty::{Site, id_in, key};

pub fn new_run(id: &str) -> NewRun {
    NewRun { key: key(id), started: RunStarted::new(Name::new("order").unwrap(), Payload::null(), 7), signal: None }
}

fn child_of(parent: &str, id: &str) -> NewRun {
    let mut run = new_run(id);
    let on_parent_close = OnParentClose::Cancel;
    run.started.parent = Some(ParentLink {
        run: key(parent),
        generation: 0,
        call_id: CallId::root(0),
        on_parent_close,
        incarnation: None,
        is_spawned: false,
    });
    run
}

/// Stored runs cannot move: these numbers never change.
#[test]
fn where_a_run_lies_never_changes() {
    let at = |namespace: &str, id: &str, count| {
        position(&RunKey::new(Namespace::new(namespace).unwrap(), RunId::new(id).unwrap()), count)
    };
    let ids = ["order-1", "order-2", "order-3", "order-4", "é", "/x"];
    assert_eq!(ids.map(|id| at("default", id, 3)), WHERE_OF_THREE);
    assert_eq!(ids.map(|id| at("other", id, 16)), WHERE_OF_SIXTEEN);
}

const WHERE_OF_THREE: [usize; 6] = [2, 2, 2, 0, 2, 2];
const WHERE_OF_SIXTEEN: [usize; 6] = [9, 11, 6, 14, 8, 2];

#[test]
fn a_tree_of_runs_lies_in_one_database_and_strangers_are_spread() {
    let mut counts = [0; 3];
    for number in 0..3_000 {
        let root = format!("order-{number}");
        let call_id = position(&key(&root), 3);
        counts[call_id] += 1;
        assert_eq!(position(&key(&format!("{root}/1")), 3), call_id);
        assert_eq!(position(&key(&format!("{root}/1/2-0")), 3), call_id);
    }
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
}

#[test]
fn a_child_of_another_family_is_refused_wherever_it_would_lie() {
    let site = Site::new();
    block_on(async {
        let parent = id_in(1, 0);
        site.store.start_run(new_run(&parent), None).await.unwrap();
        // One that would be in another database, and one that by chance would not.
        for stranger in [id_in(0, 0), id_in(1, 1)] {
            let error = site.store.start_run(child_of(&parent, &stranger), None).await.unwrap_err();
            assert_eq!(error.code(), "root_run_differs");
            assert!(error.to_string().contains(&format!("must begin with `{parent}/`")), "{error}");
            assert!(site.store.read_run(key(&stranger), None).await.unwrap().is_none());
        }
        let started = site.store.start_run(child_of(&parent, &format!("{parent}/mine")), None).await.unwrap();
        assert!(started.created);
    });
}

#[test]
fn a_log_that_makes_a_run_an_open_child_of_another_family_is_refused() {
    let site = Site::new();
    block_on(async {
        let restore = |run: NewRun, ends: bool| {
            let mut log = vec![Record::input(onward_core::Index(0), site.now(), run.started.into())];
            if ends {
                let end = onward_core::event::TerminateRequested { reason: String::new(), reset_to: None };
                log.push(Record::input(onward_core::Index(1), site.now(), end.into()));
            }
            site.store.restore_run(RestoreRun { key: run.key, what: Restore::Run { logs: vec![log] }, outbox: Vec::new() })
        };
        assert_eq!(restore(child_of("p", "c"), false).await.unwrap_err().code(), "root_run_differs");
        // A closed child has no effects of its parent to receive.
        assert!(restore(child_of("p", "c"), true).await.unwrap().created);
        assert!(restore(child_of("p", "p/c"), false).await.unwrap().created);
    });
}
