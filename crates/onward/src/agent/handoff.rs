//! Handing a conversation over: another kind of agent goes on with it, as the same run.

use std::future::{Future, poll_fn};
use std::task::Poll;

use onward_core::Payload;
#[cfg(feature = "agents")]
use onward_core::event::Tally;
use serde::Serialize;
#[cfg(feature = "agents")]
use serde::de::DeserializeOwned;

use super::AgentCtx;
use crate::Result;
use crate::ctx::{name_or_misuse, payload_or_misuse, small};
use crate::host::wake::held_back;

impl AgentCtx {
    /// Lets another kind of agent take the conversation over. The run and its id stay, and so do the conversation, what was spawned, and
    /// messages that nobody has heard; the turn ends here. The other agent's code begins from its start with `input`, and its turns with
    /// their first state.
    ///
    /// Never returns: `return ctx.handoff("billing", &()).await`. Only an input that is too large makes it fail.
    pub fn handoff<T, I>(&self, kind: &str, input: &I) -> impl Future<Output = Result<T>> + Send + use<T, I>
    where
        I: Serialize + ?Sized,
    {
        self.handoff_with(kind, input, Payload::null(), None)
    }

    /// [`AgentCtx::handoff`] with something for code that knows to look for it ([`AgentCtx::handed_over`]); other code never sees it, but
    /// passes the number of turns on.
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
        let input = small(self.cell.payload_bytes_max, "the input of who takes over", input);
        let cell = self.cell.clone();
        poll_fn(move |cx| {
            if held_back(cx, || None) {
                return Poll::Pending;
            }
            match &input {
                Ok(input) => cell.call("handoff").engine.hand_over(kind.clone(), input.clone(), carried.clone(), turns),
                Err(failure) => return Poll::Ready(Err(failure.clone())),
            }
            Poll::Pending
        })
    }

    /// What agents of any kind have done with the conversation since anybody was heard.
    #[cfg(feature = "agents")]
    pub(crate) fn tally(&self) -> Tally {
        self.cell.lock().engine.tally()
    }

    /// What the agent that handed the conversation over has carried along, as long as this one has not taken a turn.
    #[cfg(feature = "agents")]
    pub(crate) fn handed_over<T: DeserializeOwned>(&self) -> Option<T> {
        let carried = self.cell.lock().engine.handed_over().cloned();
        carried.and_then(|carried| carried.read().ok())
    }
}
