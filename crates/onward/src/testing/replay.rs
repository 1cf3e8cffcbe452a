//! Old logs against new code.

use onward_core::Log;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::world::key;
use crate::Result;
use crate::code::Shared;
use crate::ctx::Ctx;
use crate::registry::erase_workflow;
use crate::replay::replay_log;

/// Replays a recorded log against today's code. Nothing is run.
///
/// # Errors
/// With the report of the first thing on which log and code disagree.
pub fn replay<I, O, F, Fut>(workflow: F, log: &Log) -> Result<(), Box<onward_core::event::RunPaused>>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let handler = erase_workflow(workflow);
    match replay_log(&key(), &handler, log.records(), &Shared::default(), false) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Box::new(fault.into_pause().expect("nobody else has a log that is only replayed"))),
    }
}
