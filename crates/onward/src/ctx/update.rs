//! Queries, which read the code's memory without recording, and updates, which change it with a recorded result.

use onward_core::{Failure, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, name_or_misuse, payload_or_failure, small};
use crate::Result;
use crate::host::cell::Answerer;
use crate::host::code::answer_update;

impl Ctx {
    /// Registers the handler of query `name`. Its result is not recorded, and `f` must not change anything.
    pub fn query<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let name = name_or_misuse(&self.cell, "query", name);
        let answerer = answerer(self.cell.shared.payload_bytes_max, f);
        let before = self.cell.call("query").queries.insert(name, answerer);
        drop(before); // a closure may hold the context: never drop it under the lock
    }

    /// Registers the handler of update `name`: `f` changes values that it shares with the code, and its result is recorded.
    ///
    /// Updates that arrive before the handler exists wait for it, across generations, too. `f` runs again on replay and must be
    /// deterministic.
    ///
    /// If `f` panics, the update fails with `panicked` and the run continues with the changes that `f` had made: validate first,
    /// change afterwards.
    pub fn update<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let name = name_or_misuse(&self.cell, "update", name);
        let answerer = answerer(self.cell.shared.payload_bytes_max, f);
        let (before, kept) = {
            let mut state = self.cell.call("update");
            (state.updates.insert(name.clone(), answerer), state.engine.kept_updates(&name))
        };
        drop(before);
        for update in kept {
            answer_update(&self.cell, update);
        }
    }
}

fn answerer<I, O, F>(payload_bytes_max: usize, mut f: F) -> Answerer
where
    I: DeserializeOwned,
    O: Serialize,
    F: FnMut(I) -> Result<O> + Send + 'static,
{
    Box::new(move |payload: Payload| {
        let input = payload.read().map_err(|error| Failure::fatal(format!("the input does not fit: {error}")))?;
        let output = f(input)?;
        small(payload_bytes_max, "the answer", payload_or_failure("the answer", &output)?)
    })
}
