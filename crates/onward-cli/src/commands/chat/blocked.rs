//! Reasons for a blocked run that were already printed.
//!
//! Each reason of each task is printed once, and again if the wait lasts longer than the end that was printed.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_core::Timestamp;
use onward_runtime::Blocker;

/// Tolerance for equal ends: the end of a rate limit is computed from its remaining time and varies slightly.
const SAME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Hindered {
    /// Tasks and reasons, with the end that was printed.
    told: BTreeMap<(String, &'static str), Option<Timestamp>>,
}

impl Hindered {
    /// Records a reason of the run itself and returns whether it must be printed.
    pub fn is_news(&mut self, why: &'static str) -> bool {
        self.told.insert((String::new(), why), None).is_none()
    }

    /// Records a reason of a task and returns whether it must be printed.
    pub fn is_news_of(&mut self, blocker: &Blocker, now: Timestamp) -> bool {
        let key = (blocker.task.to_string(), blocker.why.as_str());
        let is_news = match (self.told.get(&key), blocker.until) {
            (None, _) => true,
            (Some(Some(told)), Some(until)) => *told <= now && until.since(*told) > SAME,
            (Some(_), _) => false,
        };
        if is_news {
            self.told.insert(key, blocker.until);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use onward_core::{Name, Namespace};
    use onward_runtime::{BlockReason, CallRef};

    use super::*;

    #[test]
    fn a_wait_is_told_once_and_again_when_it_has_outlasted_its_end() {
        let mut hindered = Hindered::default();
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
            hindered.is_news_of(&blocker, Timestamp(now))
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
        let mut hindered = Hindered::default();
        assert!(hindered.is_news("no_compatible_worker"));
        assert!(!hindered.is_news("no_compatible_worker"));
    }
}
