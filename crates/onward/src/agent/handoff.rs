//! Handoffs: another kind of agent continues the conversation, as the same run.

use onward_core::Payload;
#[cfg(feature = "agents")]
use onward_core::event::Tally;
use serde::Serialize;
#[cfg(feature = "agents")]
use serde::de::DeserializeOwned;

use super::AgentCtx;
use crate::Result;
use crate::ctx::{end_log, name_or_misuse, payload_or_misuse, small};

impl AgentCtx {
    /// Hands the conversation over to another kind of agent. The run keeps its id, conversation, spawned children and unread
    /// messages; the turn ends. The other agent's code starts from its beginning with `input`, and its turns with their first
    /// state.
    ///
    /// Never returns unless `input` is too large: `return ctx.handoff("billing", &()).await`.
    pub fn handoff<T, I>(&self, kind: &str, input: &I) -> impl Future<Output = Result<T>> + Send + use<T, I>
    where
        I: Serialize + ?Sized,
    {
        self.handoff_with(kind, input, Payload::null(), None)
    }

    /// Hands over like [`AgentCtx::handoff`], with data for code that reads [`AgentCtx::handed_over`]. Other code never sees it,
    /// but passes the number of turns on.
    pub(crate) fn handoff_with<T, I>(
        &self,
        kind: &str,
        input: &I,
        carried: Payload,
        turns: Option<u32>,
    ) -> impl Future<Output = Result<T>> + Send + use<T, I>
    where
        I: Serialize + ?Sized,
    {
        let kind = name_or_misuse(&self.cell, "handoff", kind);
        let input = payload_or_misuse(&self.cell, "handoff", input);
        let input = small(self.cell.shared.payload_bytes_max, "the input of the handoff", input);
        end_log(self.cell.clone(), "handoff", input, move |engine, input| {
            engine.hand_over(kind.clone(), input, carried.clone(), turns);
        })
    }

    /// Returns the turns and handoffs of all agents since the last message.
    #[cfg(feature = "agents")]
    pub(crate) fn tally(&self) -> Tally {
        self.cell.lock().engine.tally()
    }

    /// Returns the data of the agent that handed the conversation over, until the first turn of this one ends.
    #[cfg(feature = "agents")]
    pub(crate) fn handed_over<T: DeserializeOwned>(&self) -> Option<T> {
        let carried = self.cell.lock().engine.handed_over().cloned();
        carried.and_then(|carried| carried.read().ok())
    }
}
