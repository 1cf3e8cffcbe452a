//! A paused run stands still: it loses nothing and does nothing until somebody resumes it.

use onward_core::Status;

use super::kit::{Kit, completed, pause, refused, resume, seconds, settled, signal, timer, worker};

pub async fn a_paused_run_takes_inputs_but_no_commits_and_no_claims(mut kit: Kit) {
    let held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    kit.append("r", signal(None)).await.unwrap();
    refused(kit.store().commit(held.commit(vec![settled()])).await, "run_paused");
    kit.reopen();
    assert_eq!(kit.head("r").await.status, Status::Paused);
    assert_eq!(kit.claim("v").await, []);
    kit.append("r", resume()).await.unwrap();
    // The pause took the lease away, so anybody may go on.
    assert_eq!(kit.head("r").await.status, Status::Pending);
    let mut held = kit.claim_one("v").await;
    kit.commit(&mut held, vec![completed()]).await;
    let log = ["run_started", "run_paused", "signal_received", "run_resumed", "run_completed"];
    assert_eq!(kit.log("r").await, log);
}

pub async fn a_paused_timer_keeps_its_remaining_time(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    kit.commit(&mut held, vec![timer(0, kit.now().after(seconds(10)))]).await;
    kit.pass(seconds(4));
    kit.append("r", pause()).await.unwrap();
    kit.reopen();
    kit.pass(seconds(100));
    assert_eq!(kit.expire().await.timers_fired, 0);
    kit.append("r", resume()).await.unwrap();
    let due = kit.now().after(seconds(6));
    kit.reopen();
    let early = kit.expire().await;
    assert_eq!((early.timers_fired, early.next_due), (0, Some(due)));
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 1);
}

pub async fn a_run_that_is_not_paused_cannot_be_resumed(kit: Kit) {
    kit.start("r").await;
    refused(kit.append("r", resume()).await, "run_not_paused");
    assert_eq!(kit.log("r").await, ["run_started"]);
}

pub async fn a_pause_upon_a_pause_changes_no_timer(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    kit.commit(&mut held, vec![timer(0, kit.now().after(seconds(10)))]).await;
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(50));
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(50));
    kit.append("r", resume()).await.unwrap();
    assert_eq!(kit.expire().await.next_due, Some(kit.now().after(seconds(10))));
}
