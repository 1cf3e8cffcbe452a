//! Timelines, counts and activity.

use onward_core::Timestamp;
use onward_core::api::{ActivityQuery, TimelineRequest};
use onward_core::timeline::CallStatus;

use crate::kit::{Harness, WorkerConnection, key, seconds, start, task};

const DAY: u64 = 24 * 60 * 60;

#[tokio::test]
async fn a_timeline_shows_the_worker_of_a_running_task() {
    let harness = Harness::new();
    let worker = harness.worker("w");
    let mut held = harness.start_held(&worker, "r").await;
    harness.commit(&mut held, vec![task(0, Default::default())]).await;
    let timeline = async || {
        let request = TimelineRequest { run: key("r"), generation: None, limit: 0, cursor: None };
        harness.runtime.read_timeline(request).await.unwrap()
    };
    assert_eq!(timeline().await.calls[0].status, CallStatus::Queued);
    harness.advance(seconds(5));
    assert_eq!(worker.next_tasks(1).await.len(), 1);
    let timeline = timeline().await;
    let call = &timeline.calls[0];
    assert_eq!((call.status, call.attempts.len()), (CallStatus::Running, 1));
    assert_eq!(call.attempts[0].worker.as_ref().unwrap().as_str(), "w");
    let (queued, started) = (call.queued_at.unwrap(), call.started_at.unwrap());
    assert_eq!((started.since(queued), timeline.now), (seconds(5), started));
}

#[tokio::test]
async fn activity_counts_the_ends_of_runs_that_began_before() {
    let harness = Harness::new();
    harness.start("old").await;
    harness.advance(seconds(2 * DAY));
    harness.runtime.terminate_run(&key("old"), "").await.unwrap();
    harness.runtime.start_run(start("new")).await.unwrap();
    harness.advance(seconds(60));
    let activity = harness.runtime.read_activity(ActivityQuery { buckets: 24, ..ActivityQuery::default() }).await.unwrap();
    let (last, before) = activity.buckets.split_last().unwrap();
    assert_eq!((last.started, last.canceled, activity.complete), (1, 1, true));
    assert!(before.iter().all(|bucket| (bucket.started, bucket.canceled) == (0, 0)));
    assert_eq!((activity.buckets.len(), activity.bucket_ms, activity.until.since(activity.from)), (24, 3_600_000, seconds(DAY)));
    let none = ActivityQuery { from: Some(Timestamp(5)), until: Some(Timestamp(5)), ..ActivityQuery::default() };
    assert_eq!(harness.runtime.read_activity(none).await.unwrap_err().code(), "message_invalid");
    let many = ActivityQuery { buckets: 501, ..ActivityQuery::default() };
    assert_eq!(harness.runtime.read_activity(many).await.unwrap_err().code(), "message_invalid");
}
