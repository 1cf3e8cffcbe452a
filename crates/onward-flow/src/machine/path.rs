//! A path through a flow: the run itself, or a branch.

use std::sync::Arc;

use serde_json::Value;

use super::each::StepWork;
use super::join::Joining;
use super::plan::Place;
use super::state::PathState;
use super::turn::FlowFailure;

pub type PathId = u32;

#[derive(Debug)]
pub struct Path {
    /// The name of the branch; empty for the main path.
    pub name: String,
    pub parent: Option<PathId>,
    /// Whether it is a branch of `next: {all: ..}`, which ends at the next join.
    pub is_fork: bool,
    /// Whether the path that started it may still join it. Otherwise its failure fails the flow at once.
    pub may_be_joined: bool,
    pub state: PathState,
    /// The failure that led to the present step by `catch`.
    pub error: Option<Arc<Value>>,
    /// The result of the step before.
    pub last: Arc<Value>,
    /// Branches that are not joined yet, by the step that started them.
    pub groups: Vec<Vec<PathId>>,
    pub activity: Activity,
    /// Whether it is in the queue of ready paths.
    pub is_queued: bool,
}

/// What a path does.
#[derive(Debug)]
pub enum Activity {
    /// It goes on here as soon as its turn comes.
    Ready(Place),
    Working(Box<StepWork>),
    Joining(Joining),
    Ended,
    /// The failure is kept until the join. Failures are numbered in the order in which they happened.
    Failed(Box<FlowFailure>, u64),
}

impl Activity {
    /// Returns the step that is under way.
    pub fn step(&self) -> Option<usize> {
        match self {
            Activity::Working(work) => Some(work.step),
            Activity::Joining(joining) => Some(joining.step),
            Activity::Ready(_) | Activity::Ended | Activity::Failed(..) => None,
        }
    }
}

impl Path {
    pub fn main(first: Place) -> Path {
        Path {
            name: String::new(),
            parent: None,
            is_fork: false,
            may_be_joined: false,
            state: PathState::default(),
            error: None,
            last: Arc::default(),
            groups: Vec::new(),
            activity: Activity::Ready(first),
            is_queued: false,
        }
    }

    pub fn is_running(&self) -> bool {
        !matches!(self.activity, Activity::Ended | Activity::Failed(..))
    }
    /// Returns whether the path ends at a join: a branch of a fork that has no branches of its own to join.
    pub fn arrives_at_joins(&self) -> bool {
        self.is_fork && self.groups.is_empty()
    }
}
