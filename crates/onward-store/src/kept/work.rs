//! What is to be written, made ready before it waits for its batch.

use onward_core::projection::Projection;
use onward_core::run::{Input, NewRun};
use onward_core::{Hash, RunKey, WorkerId};

use super::Body;
use crate::RestoreRun;

pub struct StartRun {
    pub run: NewRun,
    pub claim: Option<WorkerId>,
    pub input_hash: Hash,
    pub body: Body,
    pub signal_body: Body,
}

/// One run, claimed by its name, and an input that is taken in the same write.
pub struct ClaimRun {
    pub run: RunKey,
    pub worker: WorkerId,
    pub input: Option<(Input, Body)>,
}

/// A run's logs, and what follows from each.
pub struct RestoreWork {
    pub restore: RestoreRun,
    pub projections: Vec<Projection>,
}
