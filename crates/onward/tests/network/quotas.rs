//! A refusal by a quota as a program sees it over the network.

use std::time::Duration;

use onward::Onward;
use onward_core::Namespace;
use onward_core::api::PutQuotaRequest;
use onward_core::queue::QueueRate;
use onward_core::quota::QuotaSettings;

use crate::site::Site;

#[tokio::test]
async fn a_refused_start_names_the_time_of_the_next_one() {
    let site = Site::memory().await;
    let rate = QueueRate { starts_max: 1, period_ms: 3_600_000 };
    let settings = QuotaSettings { start_rate: Some(rate), ..QuotaSettings::default() };
    site.runtime().put_quota(PutQuotaRequest { namespace: Namespace::default(), settings }).await.unwrap();
    let onward = Onward::connect(&site.url()).start().await.unwrap();
    onward.start::<(), _>("order", &()).id("a").await.unwrap();
    let error = onward.start::<(), _>("order", &()).id("b").await.err().expect("the rate is used up");
    assert_eq!(error.code(), "quota_exceeded", "{error}");
    let wait = error.retry_after().expect("the server knows the time");
    assert!(wait > Duration::from_secs(3_000) && wait < Duration::from_secs(3_700), "{wait:?}");
    assert!(onward.start::<(), _>("order", &()).id("a").await.is_ok(), "a repeat finds the run");
}
