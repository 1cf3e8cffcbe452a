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
pub struct PrintedBlockers {
    /// Tasks and reasons, with the end that was printed.
    printed: BTreeMap<(String, &'static str), Option<Timestamp>>,
}

impl PrintedBlockers {
    /// Records a reason of the run itself and returns whether it must be printed.
    pub fn is_news(&mut self, why: &'static str) -> bool {
        self.printed.insert((String::new(), why), None).is_none()
    }

    /// Records a reason of a task and returns whether it must be printed.
    pub fn is_news_of(&mut self, blocker: &Blocker, now: Timestamp) -> bool {
        let key = (blocker.task.to_string(), blocker.why.as_str());
        let is_news = match (self.printed.get(&key), blocker.until) {
            (None, _) => true,
            (Some(Some(printed)), Some(until)) => *printed <= now && until.since(*printed) > SAME,
            (Some(_), _) => false,
        };
        if is_news {
            self.printed.insert(key, blocker.until);
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
