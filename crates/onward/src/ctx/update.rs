//! Questions to a running run: queries read without recording, updates change with a recorded answer.

use onward_core::{Failure, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, name_or_misuse, payload_or_failure, small};
use crate::Result;
use crate::host::cell::Answerer;
use crate::host::code::answer_update;

impl Ctx {
    /// Answers `query(name)` from outside with what `f` returns. Not recorded; `f` must not change anything.
    pub fn query<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let name = name_or_misuse(&self.cell, "query", name);
        let answerer = answerer(self.cell.payload_bytes_max, f);
        let before = self.cell.call("query").queries.insert(name, answerer);
        drop(before); // a closure may hold the context: never drop it under the lock
    }

    /// Handles `update(name)` from outside: `f` changes what it shares with the code, and its answer is recorded.
    ///
    /// Updates that came before the handler wait for it, over generations too. `f` is run again on replay and must depend on nothing else.
    ///
    /// If `f` panics, the update is answered with a failure of code `panicked` and the run goes on, with whatever `f` had changed
    /// until then: check first, change afterwards.
    pub fn update<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let name = name_or_misuse(&self.cell, "update", name);
        let answerer = answerer(self.cell.payload_bytes_max, f);
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
