//! Tests of the parent module.

use std::sync::Arc;

use onward_core::{Payload, RunId};
use onward_store::{ManualClock, MemoryStore};

use super::*;
use crate::{Options, StartRequest};

async fn start(runtime: &Runtime, id: &str) -> RunKey {
    let run = RunKey::new(Default::default(), RunId::new(id).unwrap());
    let start = StartRequest::new(run, Name::new("order").unwrap(), Payload::null(), 7);
    runtime.start_run(start).await.unwrap().head.key
}

/// OB1
#[tokio::test]
async fn counts_read_a_bounded_number_of_runs_and_open_ones_first() {
    let clock = Arc::new(ManualClock::default());
    let runtime = Runtime::new(Arc::new(MemoryStore::new(clock.clone())), clock, Options::default());
    for number in 0..5 {
        let run = start(&runtime, &format!("closed-{number}")).await;
        runtime.terminate_run(&run, "").await.unwrap();
    }
    let count = async |max| runtime.count_up_to(max, CountQuery::default()).await.unwrap();
    let all = count(6).await;
    assert_eq!((all.counts.terminated, all.scanned, all.complete), (5, 5, true));
    start(&runtime, "open").await;
    start(&runtime, "another").await;
    let some = count(6).await;
    assert_eq!((some.counts.pending, some.counts.terminated, some.scanned, some.complete), (2, 4, 6, false));
    let repeated = CountQuery { kinds: vec![Name::new("order").unwrap(); 3], ..CountQuery::default() };
    assert_eq!(runtime.count_up_to(100, repeated).await.unwrap().scanned, 7);
    let other = CountQuery { kinds: vec![Name::new("other").unwrap()], ..CountQuery::default() };
    assert_eq!(runtime.count_runs(other).await.unwrap().scanned, 0);
}
