//! Tests of the parent module.

use std::time::Duration;

use onward_core::RunId;

use super::*;

/// FD1
#[tokio::test(start_paused = true)]
async fn too_many_changes_for_other_servers_become_one_notice_of_their_loss() {
    let feed = Feed::default();
    let run = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
    let note = || feed.forward(|changes| changes.touched.push(run.clone()));
    assert!(!note(), "no other server has a feed");
    feed.want(Instant::now() + Duration::from_secs(15));
    assert!((0..CHANGED_MAX).all(|_| note()));
    assert!(!lock(&feed.elsewhere).changes.is_lost);
    note();
    let changes = feed.take_outgoing();
    assert_eq!((changes.touched.len(), changes.is_lost), (0, true));
    feed.outgoing_lost();
    assert!(feed.take_outgoing().is_lost);
    assert!(!feed.take_outgoing().is_lost);
}
