//! Writes that are prepared before they wait for their batch.

use onward_core::projection::Projection;
use onward_core::run::{Input, NewRun};
use onward_core::{Hash, RunKey, WorkerId};

use super::Body;
use crate::RestoreRun;

#[derive(Clone)]
pub struct StartRun {
    pub run: NewRun,
    pub claim: Option<WorkerId>,
    pub input_hash: Hash,
    pub body: Body,
    pub signal_body: Body,
}

/// A claim of one run by key, with an input appended in the same write.
pub struct ClaimRun {
    pub run: RunKey,
    pub worker: WorkerId,
    pub input: Option<(Input, Body)>,
}

/// A run's logs with the projection of each.
pub struct RestoreWork {
    pub restore: RestoreRun,
    pub projections: Vec<Projection>,
}
