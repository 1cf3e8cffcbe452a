//! Why the run does not go on, as far as it was told.
//!
//! Owns what is news: each reason of each task once, and a wait again that has outlasted what was told of its end.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_core::Timestamp;
use onward_runtime::Blocker;

/// The end of a limit is known as what is left of it, so it differs a little each time.
const SAME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Hindered {
    /// Tasks and words, with the end that was told.
    told: BTreeMap<(String, &'static str), Option<Timestamp>>,
}

impl Hindered {
    /// Whether this is to be told of the run itself.
    pub fn is_news(&mut self, why: &'static str) -> bool {
        self.told.insert((String::new(), why), None).is_none()
    }

    /// Whether this is to be told of a task.
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
                task: CallRef::parse(&Namespace::default(), "r~0~3").unwrap(),
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
        assert!(!is_news(90_000, 7_000), "what was told has not passed yet");
        assert!(!is_news(60_300, 60_100), "it is about to be over");
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
