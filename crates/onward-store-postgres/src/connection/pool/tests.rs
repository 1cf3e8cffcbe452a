//! Tests of the parent module.

use super::*;

/// DB12: counts leave the other connections to fast jobs.
#[tokio::test]
async fn of_jobs_that_may_take_long_one_is_done_at_a_time() {
    let jobs = Jobs::default();
    let submit = |urgency| drop(jobs.read_plainly(urgency, async |_: &Db| Ok(())));
    [Urgency::Slow, Urgency::Slow, Urgency::Urgent].into_iter().for_each(submit);
    let urgency = |job: Option<Job>| job.map(|job| job.urgency);
    assert_eq!(urgency(jobs.next().await), Some(Urgency::Urgent));
    assert_eq!(urgency(jobs.next().await), Some(Urgency::Slow));
    submit(Urgency::Urgent);
    assert_eq!(urgency(jobs.next().await), Some(Urgency::Urgent));
    let mut second = std::pin::pin!(jobs.next());
    let waits = std::future::poll_fn(|context| std::task::Poll::Ready(second.as_mut().poll(context).is_pending())).await;
    assert!(waits);
    drop(Long(&jobs));
    assert_eq!(urgency(second.await), Some(Urgency::Slow));
    jobs.close();
    assert!(jobs.next().await.is_none());
}
