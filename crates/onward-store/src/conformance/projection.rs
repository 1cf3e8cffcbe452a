//! L16: a head contains nothing but what follows from the log, except the lease.

use onward_core::event::{CancelRequested, RunCanceled};
use onward_core::run::Input;
use onward_core::task::TaskOptions;
use onward_core::{Failure, Status};

use super::harness::{Harness, approval, decision, key, pause, resume, seconds, signal, task};
use super::random::random_operations_on;

pub async fn a_head_is_what_its_log_says(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let cancel = Input::new(CancelRequested::new("enough".to_owned()));
    harness.log("r").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default()), approval(1, None)]).await;
    harness.log("r").await;
    for input in [signal(Some("a")), decision(0, 1, "anna"), pause(), signal(None), resume(), cancel] {
        harness.pass(seconds(1));
        harness.append("r", input).await.unwrap();
        harness.reopen();
        harness.log("r").await;
    }
    let mut held = harness.regain(&held).await;
    harness.log("r").await;
    harness.commit(&mut held, vec![RunCanceled { failure: Failure::canceled("enough") }.into()]).await;
    harness.reopen();
    harness.log("r").await;
    assert_eq!(harness.head_of(&key("r")).await.status, Status::Canceled);
}

pub async fn random_operations_keep_every_invariant(harness: Harness) {
    let steps = if super::is_full_sample() { 400 } else { 150 };
    random_operations_on(harness, 42, steps).await;
}
