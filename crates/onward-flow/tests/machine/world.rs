//! A scripted world: the answer of a call depends on the seed, its label and how often the label was answered, nothing else.

use std::collections::BTreeMap;

use onward_flow::machine::{Call, CallId, FlowFailure};

pub use crate::random_flows::answers::Answer;
use crate::random_flows::answers::answer;
use crate::random_flows::random::Random;

pub struct World {
    seed: u64,
    random: Random,
    open: BTreeMap<CallId, Call>,
    answered: BTreeMap<String, u32>,
    failures: usize,
    /// Answers that are due because the run is being canceled.
    canceled: Vec<CallId>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed, "world");
        let failures = [0, 2, 10, 30][random.below(4)];
        World { seed, random, open: BTreeMap::new(), answered: BTreeMap::new(), failures, canceled: Vec::new() }
    }

    /// Takes what a machine did.
    pub fn see(&mut self, cancels: &[CallId], calls: &[Call]) {
        for call in cancels {
            assert!(self.open.remove(call).is_some(), "FW2: call {call} is canceled but not open");
        }
        for call in calls {
            assert!(self.open.insert(call.id, call.clone()).is_none(), "FW2: call {} is made twice", call.id);
        }
    }

    pub fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn open(&self) -> impl Iterator<Item = &Call> {
        self.open.values()
    }

    /// Cancels the run: every call that is open now fails with `canceled`.
    pub fn cancel(&mut self) {
        self.canceled = self.open.keys().copied().collect();
    }

    /// Chooses an open call and returns its answer.
    pub fn answer(&mut self) -> (CallId, Answer) {
        if self.canceled.is_empty() && self.random.chance(1) {
            self.cancel();
        }
        while !self.canceled.is_empty() {
            let id = self.canceled.remove(0);
            if self.open.remove(&id).is_some() {
                return (id, Err(FlowFailure::permanent("canceled", "the run was canceled")));
            }
        }
        let ids: Vec<CallId> = self.open.keys().copied().collect();
        let mut id = ids[self.random.below(ids.len())];
        // Time limits are seldom first.
        for _ in 0..3 {
            if self.open[&id].label.ends_with(".timeout") {
                id = ids[self.random.below(ids.len())];
            }
        }
        let Some(call) = self.open.remove(&id) else { unreachable!("the call was chosen among the open ones") };
        let times = self.answered.entry(call.label.clone()).or_default();
        *times += 1;
        let mut random = Random::of(self.seed, &format!("{} {times}", call.label));
        (id, answer(&mut random, &call.request, self.failures))
    }
}
