use onward_core::{Name, Namespace};
use onward_runtime::{BlockReason, CallRef};

use super::*;

#[test]
fn a_wait_is_told_once_and_again_when_it_has_outlasted_its_end() {
    let mut printed_blockers = PrintedBlockers::default();
    let mut is_news = |until: u64, now: u64| {
        let blocker = Blocker {
            task: CallRef::parse(&Namespace::default(), "r~0~3").unwrap().into(),
            kind: Name::new("llm.m").unwrap(),
            why: BlockReason::LimitClosed,
            since: None,
            until: Some(Timestamp(until)),
            lost_workers: 0,
            failure_code: None,
        };
        printed_blockers.is_news_of(&blocker, Timestamp(now))
    };
    assert!(is_news(60_000, 1_000));
    assert!(!is_news(60_300, 4_000), "it is the same end");
    assert!(!is_news(90_000, 7_000), "the printed end has not passed yet");
    assert!(!is_news(60_300, 60_100), "it ends within the tolerance");
    assert!(is_news(120_000, 60_200));
    assert!(!is_news(120_000, 63_000));
    assert!(is_news(180_000, 120_000));
}

#[test]
fn what_has_no_end_is_told_once() {
    let mut printed_blockers = PrintedBlockers::default();
    assert!(printed_blockers.is_news("no_compatible_worker"));
    assert!(!printed_blockers.is_news("no_compatible_worker"));
}
