//! Claims are fair and keep their limits; SD6: a session is lost only where it was lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::RunCompleted;
use onward_core::{CommitId, Epoch, Index, Name, Payload, RunHead, WorkerId};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, ClaimedRun, Delete, Retention, Store};
use onward_store_postgres::sharded::position;

use crate::faulty::{Site, id_in, key};
use crate::lists::draw;
use crate::placement::new_run;

const LEASE: Duration = Duration::from_secs(10);

async fn claim(site: &Site, worker: &str, limit: usize) -> Vec<ClaimedRun> {
    let knows = Arc::new(BTreeMap::from([(Name::new("order").unwrap(), vec![None])]));
    let (worker, namespace) = (WorkerId::new(worker).unwrap(), Default::default());
    site.store.claim_runs(ClaimRuns { worker, namespace, knows, limit }).await.unwrap()
}

fn end(head: &RunHead) -> onward_core::run::Commit {
    onward_core::run::Commit {
        key: head.key.clone(),
        generation: 0,
        epoch: head.epoch,
        n: 0,
        commit_id: CommitId(head.epoch.0),
        horizon: Index(head.next_index.0 - 1),
        waits: false,
        events: vec![RunCompleted { output: Payload::null(), attempts: None }.into()],
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    }
}

#[test]
fn no_database_is_passed_over() {
    let site = Site::new();
    block_on(async {
        for number in 0..90 {
            site.store.start_run(new_run(&id_in(number % 3, number / 3)), None).await.unwrap();
        }
        let mut counts = [0; 3];
        for limit in [1, 1, 1, 2, 2, 2, 4, 4, 4, 1, 1, 1] {
            let claimed = claim(&site, "w", limit).await;
            assert_eq!(claimed.len(), limit);
            claimed.iter().for_each(|run| counts[position(&run.head.key, 3)] += 1);
        }
        assert_eq!(counts, [8, 8, 8]);
    });
}

#[test]
fn a_limit_is_kept_and_used_up_wherever_the_runs_are() {
    for seed in 0..30 {
        eprintln!("seed {seed}");
        let mut numbers = 0..;
        let mut random = |bound| draw(seed, numbers.next().unwrap(), bound) as usize;
        let site = Site::new();
        block_on(async {
            let mut waiting = 0;
            for database in 0..3 {
                let count = random(8);
                for number in 0..count {
                    site.store.start_run(new_run(&id_in(database, number)), None).await.unwrap();
                }
                waiting += count;
            }
            let mut ended: usize = 0;
            while waiting > 0 {
                let limit = 1 + random(9);
                let claimed = claim(&site, "w", limit).await;
                assert_eq!(claimed.len(), limit.min(waiting));
                waiting -= claimed.len();
                for run in &claimed {
                    site.store.commit(end(&run.head)).await.unwrap();
                }
                ended += claimed.len();
            }
            while ended > 0 {
                let limit = 1 + random(9);
                let retention = Retention { default: Duration::ZERO, ..Retention::default() };
                let deleted = site.store.delete_runs(Delete::Expired { retention, limit }).await.unwrap() as usize;
                assert_eq!(deleted, limit.min(ended));
                ended -= deleted;
            }
        });
    }
}

#[test]
fn a_worker_that_one_database_has_forgotten_keeps_what_it_has_in_the_others() {
    let site = Site::new();
    block_on(async {
        let worker = WorkerId::new("w").unwrap();
        let heartbeat = || site.store.heartbeat(worker.clone(), LEASE);
        assert!(!heartbeat().await.unwrap());
        let mut held = Vec::new();
        for database in 0..3 {
            let started = site.store.start_run(new_run(&id_in(database, 0)), Some(worker.clone())).await.unwrap();
            held.push(started.claimed.unwrap().head);
        }
        site.databases[1].refuse(true);
        for _ in 0..3 {
            site.pass(LEASE / 2);
            assert!(heartbeat().await.unwrap(), "the others know it");
            site.store.expire(100).await.unwrap();
        }
        site.databases[1].refuse(false);
        // Its session there has expired by now: any server may find that out.
        site.until([true; 3]);
        site.store.expire(100).await.unwrap();
        assert!(heartbeat().await.unwrap());
        let claimed = claim(&site, "v", 10).await;
        assert_eq!(claimed.iter().map(|run| &run.head.key).collect::<Vec<_>>(), [&key(&id_in(1, 0))]);
        assert!(claimed[0].head.epoch > held[1].epoch);
        assert_eq!(site.store.commit(end(&held[1])).await.unwrap_err().code(), "lease_lost");
        for head in [&held[0], &held[2], &claimed[0].head] {
            site.store.commit(end(head)).await.unwrap();
        }
    });
}

#[test]
fn a_worker_that_all_have_forgotten_is_not_known() {
    let site = Site::new();
    block_on(async {
        let worker = WorkerId::new("w").unwrap();
        site.store.heartbeat(worker.clone(), LEASE).await.unwrap();
        site.pass(LEASE);
        assert_eq!(site.store.expire(100).await.unwrap().workers_lost, 1);
        assert!(!site.store.heartbeat(worker, LEASE).await.unwrap());
        assert_eq!(site.store.release_run(key("nobody"), Epoch(1)).await.ok(), Some(()));
    });
}
