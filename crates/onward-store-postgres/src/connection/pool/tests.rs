//! Tests of the parent module.

use super::*;

/// DB12: counts leave the other connections to fast jobs.
#[tokio::test]
async fn of_jobs_that_may_take_long_one_is_done_at_a_time() {
    let jobs = Jobs::default();
    let count = || Job::CountVersions(Namespace::default(), Slot::new());
    let check = || Job::Check(Slot::new());
    for job in [count(), count(), check()] {
        jobs.submit(job);
    }
    assert!(matches!(jobs.next().await, Some(Job::Check(_))));
    assert!(matches!(jobs.next().await, Some(Job::CountVersions(..))));
    jobs.submit(check());
    assert!(matches!(jobs.next().await, Some(Job::Check(_))));
    let mut second = std::pin::pin!(jobs.next());
    let waits = std::future::poll_fn(|context| std::task::Poll::Ready(second.as_mut().poll(context).is_pending())).await;
    assert!(waits);
    drop(Long(&jobs));
    assert!(matches!(second.await, Some(Job::CountVersions(..))));
    jobs.close();
    assert!(jobs.next().await.is_none());
}
