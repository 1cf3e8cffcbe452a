//! L16: a head contains nothing but what follows from the log, except the lease.

use onward_core::event::{CancelRequested, RunCanceled};
use onward_core::run::Input;
use onward_core::task::TaskOptions;
use onward_core::{Failure, Status};

use super::kit::{Kit, approval, decision, key, pause, resume, seconds, signal, task};
use super::random::random_operations_on;

pub async fn a_head_is_what_its_log_says(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let cancel = Input::new(CancelRequested { reason: "enough".to_owned() });
    kit.log("r").await;
    kit.commit(&mut held, vec![task(0, TaskOptions::default()), approval(1, None)]).await;
    kit.log("r").await;
    for input in [signal(Some("a")), decision(0, 1, "anna"), pause(), signal(None), resume(), cancel] {
        kit.pass(seconds(1));
        kit.append("r", input).await.unwrap();
        kit.reopen();
        kit.log("r").await;
    }
    let mut held = kit.regain(&held).await;
    kit.log("r").await;
    kit.commit(&mut held, vec![RunCanceled { failure: Failure::canceled("enough") }.into()]).await;
    kit.reopen();
    kit.log("r").await;
    assert_eq!(kit.head_of(&key("r")).await.status, Status::Canceled);
}

pub async fn random_operations_keep_every_invariant(kit: Kit) {
    let steps = if super::is_full_sample() { 400 } else { 150 };
    random_operations_on(kit, 42, steps).await;
}
