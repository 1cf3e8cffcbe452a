//! L1, L6: a run's indexes are 0, 1, 2, … without gap or repeat, and no reader skips one.

use std::collections::BTreeSet;

use onward_core::Index;

use super::block_on;
use super::harness::{Harness, key, refused, settled, signal, timer};

pub async fn inputs_and_commits_share_one_numbering_without_gaps(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    assert_eq!(harness.append("r", signal(None)).await.unwrap().index, Index(1));
    let due = harness.now().after(super::harness::seconds(60));
    assert_eq!(harness.commit(&mut held, vec![timer(0, due), timer(1, due)]).await.index, Index(2));
    harness.reopen();
    assert_eq!(harness.append("r", signal(None)).await.unwrap().index, Index(4));
    let mut held = harness.regain(&held).await;
    assert_eq!(harness.commit(&mut held, vec![settled()]).await.index, Index(5));
    let log = ["run_started", "signal_received", "timer_started", "timer_started", "signal_received", "run_suspended"];
    assert_eq!(harness.log("r").await, log);
}

pub async fn a_reader_gets_the_record_that_holds_an_index(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![settled(), settled(), settled()]).await;
    harness.append("r", signal(None)).await.unwrap();
    let indexes = |from: u64, limit: usize| {
        let store = harness.store();
        async move {
            let records = store.read_log(key("r"), None, Index(from), limit).await.unwrap();
            records.iter().map(|record| record.index.0).collect::<Vec<_>>()
        }
    };
    assert_eq!(indexes(0, 10).await, [0, 1, 4]);
    assert_eq!(indexes(2, 10).await, [1, 4]);
    assert_eq!(indexes(3, 1).await, [1]);
    assert_eq!(indexes(4, 10).await, [4]);
    assert_eq!(indexes(5, 10).await, [0; 0]);
}

pub async fn senders_on_many_threads_get_one_index_each(harness: Harness) {
    harness.start("r").await;
    let send = || {
        let store = harness.store();
        move || -> Vec<u64> { (0..25).map(|_| block_on(store.append_input(key("r"), signal(None))).unwrap().index.0).collect() }
    };
    let senders: Vec<_> = (0..4).map(|_| std::thread::spawn(send())).collect();
    let indexes: Vec<u64> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    assert_eq!(indexes.iter().collect::<BTreeSet<_>>().len(), 100);
    assert_eq!((indexes.iter().min(), indexes.iter().max()), (Some(&1), Some(&100)));
    assert_eq!(harness.log("r").await.len(), 101);
}

pub async fn a_missing_run_has_no_log(harness: Harness) {
    assert_eq!(harness.store().read_run(key("r"), None).await.unwrap(), None);
    refused(harness.store().read_log(key("r"), None, Index(0), 10).await, "run_not_found");
    harness.start("r").await;
    assert_eq!(harness.store().read_run(key("r"), Some(1)).await.unwrap(), None);
    refused(harness.store().read_log(key("r"), Some(1), Index(0), 10).await, "run_not_found");
}
