//! Writes that are checked and encoded by their callers, before they wait for their batch.

use onward_core::projection::Projection;
use onward_core::run::{Commit, Input, NewRun};
use onward_core::{Hash, RunKey, WorkerId};

use super::Body;
use crate::{RestoreRun, StoreError, check_restore, payloads};

#[derive(Clone)]
pub struct StartRun {
    pub run: NewRun,
    pub claim: Option<WorkerId>,
    pub input_hash: Hash,
    pub body: Body,
    pub signal_body: Body,
}

impl StartRun {
    pub fn new(run: NewRun, claim: Option<WorkerId>, payload_bytes_max: usize) -> Result<Box<StartRun>, StoreError> {
        payloads::check_new_run(&run, payload_bytes_max)?;
        let input_hash = Hash::of(&run.started.input);
        let body = Body::of_start(&run.started);
        let signal_body = run.signal.as_deref().map(Body::of_input).unwrap_or_default();
        Ok(Box::new(StartRun { run, claim, input_hash, body, signal_body }))
    }
}

/// A claim of one run by key, with an input appended in the same write.
pub struct ClaimRun {
    pub run: RunKey,
    pub worker: WorkerId,
    pub input: Option<(Input, Body)>,
}

impl ClaimRun {
    pub fn new(
        run: RunKey,
        worker: WorkerId,
        input: Option<Input>,
        payload_bytes_max: usize,
    ) -> Result<Box<ClaimRun>, StoreError> {
        let input = input.map(|input| encode_input(input, payload_bytes_max)).transpose()?;
        Ok(Box::new(ClaimRun { run, worker, input }))
    }
}

/// A run's logs with the projection of each.
pub struct RestoreWork {
    pub restore: RestoreRun,
    pub projections: Vec<Projection>,
}

impl RestoreWork {
    pub fn new(restore: RestoreRun, payload_bytes_max: usize) -> Result<Box<RestoreWork>, StoreError> {
        let projections = check_restore(&restore, payload_bytes_max)?;
        Ok(Box::new(RestoreWork { restore, projections }))
    }
}

/// Checks and encodes an input.
pub fn encode_input(input: Input, payload_bytes_max: usize) -> Result<(Input, Body), StoreError> {
    payloads::check_input(&input, payload_bytes_max)?;
    let body = Body::of_input(&input);
    Ok((input, body))
}

/// Checks and encodes a commit.
pub fn encode_commit(mut commit: Commit, payload_bytes_max: usize) -> Result<Box<(Commit, Body)>, StoreError> {
    payloads::check_commit(&commit, payload_bytes_max)?;
    let body = Body::of_commit(&mut commit);
    Ok(Box::new((commit, body)))
}
