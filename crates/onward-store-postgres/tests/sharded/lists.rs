//! SD4: lists over all databases, while runs are added.

use std::time::Duration;

use onward_core::{Hash, Namespace};
use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store};

use crate::faulty::{Site, key};
use crate::placement::new_run;

/// Returns a number below `bound`, the same for the same seed.
pub fn draw(seed: u64, number: u64, bound: u64) -> u64 {
    let hash = Hash::of_parts(&[&seed.to_le_bytes(), &number.to_le_bytes()]);
    u64::from_le_bytes(*hash.0.first_chunk::<8>().unwrap()) % bound
}

#[test]
fn pages_have_every_run_once_in_order_while_runs_are_added_and_deleted() {
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let site = Site::new();
        let mut numbers = 0..;
        let mut random = |bound| draw(seed, numbers.next().unwrap(), bound);
        block_on(async {
            let store = &site.store;
            let mut expected = Vec::new();
            for number in 0..random(60) {
                // Several at the same time: then the id decides.
                site.pass(Duration::from_millis(random(2)));
                let head = store.start_run(new_run(&format!("r{number}")), None).await.unwrap().head;
                expected.push((head.created_at, head.key.id.to_string()));
            }
            expected.sort();
            expected.reverse();
            site.pass(Duration::from_millis(1));
            let (mut seen, mut cursor, limit) = (Vec::new(), None, 1 + random(7) as usize);
            loop {
                let page = store.list_runs(RunQuery { limit, cursor, ..RunQuery::default() }).await.unwrap();
                assert!(page.runs.len() == limit || page.next.is_none());
                seen.extend(page.runs.into_iter().map(|head| (head.created_at, head.key.id.to_string())));
                store.start_run(new_run(&format!("new{}", seen.len())), None).await.unwrap();
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected);
        });
    }
}

#[test]
fn a_page_that_is_just_full_is_the_last() {
    let site = Site::new();
    block_on(async {
        for number in 0..6 {
            site.store.start_run(new_run(&format!("r{number}")), None).await.unwrap();
        }
        let page = async |limit| site.store.list_runs(RunQuery { limit, ..RunQuery::default() }).await.unwrap();
        assert_eq!((page(6).await.runs.len(), page(6).await.next), (6, None));
        assert_eq!(page(5).await.runs.len(), 5);
        let rest = RunQuery { cursor: page(5).await.next, ..RunQuery::default() };
        assert_eq!(site.store.list_runs(rest).await.unwrap().runs.len(), 1);
    });
}

#[test]
fn what_is_counted_in_several_databases_is_one_count() {
    let site = Site::new();
    block_on(async {
        for number in 0..30 {
            site.store.start_run(new_run(&format!("r{number}")), None).await.unwrap();
        }
        let counts = site.store.count_versions(Namespace::default()).await.unwrap();
        assert_eq!(counts.iter().map(|count| count.open).collect::<Vec<_>>(), [30]);
        assert!(site.store.read_run(key("r7"), None).await.unwrap().is_some());
    });
}
