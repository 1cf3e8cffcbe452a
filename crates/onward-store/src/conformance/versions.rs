//! L14: a run is pinned to a version of its code and is claimed only by a worker that has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::Name;

use super::harness::{Harness, name, new_run, worker};
use crate::{ClaimRuns, ClaimedRun};

pub async fn a_worker_gets_only_versions_it_knows(harness: Harness) {
    for (id, version) in [("a", None), ("b", Some("1")), ("c", Some("2"))] {
        let mut run = new_run(id);
        run.started.version = version.map(name);
        harness.store().start_run(run, None).await.unwrap();
    }
    assert_eq!(ids(claim(&harness, "parcel", &[None]).await), [""; 0]);
    assert_eq!(ids(claim(&harness, "order", &[Some("3")]).await), [""; 0]);
    assert_eq!(ids(claim(&harness, "order", &[Some("2"), Some("3")]).await), ["c"]);
    assert_eq!(ids(claim(&harness, "order", &[None]).await), ["a"]);
    assert_eq!(ids(claim(&harness, "order", &[None, Some("1")]).await), ["b"]);
}

async fn claim(harness: &Harness, kind: &str, versions: &[Option<&str>]) -> Vec<ClaimedRun> {
    let versions: Vec<Option<Name>> = versions.iter().map(|version| version.map(name)).collect();
    let knows = Arc::new(BTreeMap::from([(name(kind), versions)]));
    harness.store().claim_runs(ClaimRuns { worker: worker("w"), namespace: Default::default(), knows, limit: 10 }).await.unwrap()
}

fn ids(claimed: Vec<ClaimedRun>) -> Vec<String> {
    claimed.into_iter().map(|run| run.head.key.id.to_string()).collect()
}
