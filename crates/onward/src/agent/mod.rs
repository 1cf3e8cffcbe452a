//! Agents: conversations that survive, turn by turn.
//!
//! An agent is a run whose code may depend on things that nobody has recorded, a prompt or a list of tools for example. Its log is cut into
//! *segments* by checkpoints. What lies before the last checkpoint is final and never loaded again; the open segment is replayed after a
//! crash, and where the code asks for something else than it says, the rest of it is abandoned: kept, visible, and searched by content for
//! what was done already. `docs/design/agents.md` has the rules.
//!
//! [`AgentCtx::turns`] is the way to write one. [`AgentCtx::checkpoint`] and [`AgentCtx::checkpointed`] are what it is made of.

#[cfg(feature = "agents")]
mod answer;
#[cfg(feature = "agents")]
mod attachments;
#[cfg(test)]
#[path = "../../tests/agent_explorer/mod.rs"]
mod explorer;
mod handoff;
pub(crate) mod library;
#[cfg(feature = "agents")]
mod llm;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
#[cfg(feature = "agents")]
mod prompt;
#[cfg(feature = "agents")]
mod ready;
#[cfg(feature = "agents")]
mod refused;
#[cfg(feature = "agents")]
mod tool;
#[cfg(feature = "agents")]
mod tools;
mod turns;

use std::ops::Deref;

use onward_core::conversation::EntryCursor;
use onward_core::engine::KeyTaken;
use onward_core::{Failure, Hash, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::ctx::{Ctx, TaskCall, name_or_misuse, payload_or_failure, small};
use crate::names::TaskName;

pub use crate::ctx::{Heard, Parent, Spawned};
#[cfg(feature = "agents")]
pub(crate) use answer::handler as model_handler;
#[cfg(feature = "agents")]
pub use attachments::Attachments;
#[cfg(feature = "agents")]
pub use llm::ModelCall;
#[cfg(feature = "agents")]
pub(crate) use llm::model_kind;
pub use messages::Messages;
pub use onward_core::conversation::{Entry, MESSAGE, Summary};
pub use onward_core::task::EffectClass;
#[cfg(feature = "agents")]
pub use onward_llm::{
    Attachment, Block, Delta, Dialect, Http, JsonText, Key, Message, Model, ModelReply, ModelRetries, ModelSettings, ModelTable,
    Models, Provider, ProviderSettings, RetrySettings, Source, StopReason, TableError, ToolCall, ToolChoice, Usage,
};
#[cfg(feature = "mcp")]
pub use onward_mcp::{Place as ToolPlace, SourceSettings, ToolError};
#[cfg(feature = "agents")]
pub use ready::{Agent, AgentOutcome, Stop};
#[cfg(feature = "agents")]
pub use tool::{Tool, ToolMistake};
#[cfg(feature = "agents")]
pub use tools::{ToolFuture, ToolOutcome, Tools};
pub use turns::Turn;

/// What an agent's function gets: everything that a workflow gets, and its conversation.
#[derive(Clone)]
pub struct AgentCtx {
    ctx: Ctx,
}

/// An entry's name. It covers everything before it: two conversations that end in the same id are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub(crate) Hash);

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&Entry> for EntryId {
    fn from(entry: &Entry) -> EntryId {
        EntryId(entry.id)
    }
}

/// Who says something in a conversation; any other name will do, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    System,
    User,
    Assistant,
    /// What a tool has answered.
    Tool,
}

impl AsRef<str> for Role {
    fn as_ref(&self) -> &str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl From<EntryId> for EntryCursor {
    fn from(id: EntryId) -> EntryCursor {
        id.0.into()
    }
}

impl Deref for AgentCtx {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}

impl AgentCtx {
    pub(crate) fn new(ctx: Ctx) -> AgentCtx {
        AgentCtx { ctx }
    }

    /// Puts an entry behind the last one of the conversation. After a crash the same call finds the same entry.
    ///
    /// # Errors
    /// If the content is too large or cannot be written as JSON.
    pub async fn append(&self, role: impl AsRef<str>, content: &(impl Serialize + ?Sized)) -> Result<EntryId> {
        let content = payload_or_failure("an entry", content)?;
        self.append_payload(role.as_ref(), content)
    }

    fn append_payload(&self, role: &str, content: Payload) -> Result<EntryId> {
        let role = name_or_misuse(&self.cell, "append", role);
        let content = small(self.cell.payload_bytes_max, "an entry", content)?;
        Ok(EntryId(self.cell.call("append").engine.append_entry(role, content)))
    }

    /// Like [`AgentCtx::append`], once: under the same key, also in a later turn and also one that was used from outside, there is one
    /// entry, and this says which. The run remembers its last 128 keys.
    ///
    /// # Errors
    /// `entry_key_taken` if the entry under this key has another role or content, and what [`AgentCtx::append`] fails with.
    pub async fn append_once(&self, key: &str, role: &str, content: &(impl Serialize + ?Sized)) -> Result<EntryId> {
        let key = name_or_misuse(&self.cell, "append_once", key);
        let role = name_or_misuse(&self.cell, "append_once", role);
        let content = payload_or_failure("an entry", content)?;
        let content = small(self.cell.payload_bytes_max, "an entry", content)?;
        let appended = self.cell.call("append_once").engine.append_entry_once(key.as_str(), role, content);
        let taken = |KeyTaken { id }| {
            let message =
                format!("the conversation has the entry {id} under the key `{key}` already, and it says something else");
            Failure::fatal(message).with_code("entry_key_taken")
        };
        appended.map(EntryId).map_err(taken)
    }

    /// Takes in what others have appended to the conversation meanwhile. [`AgentCtx::turns`] does so whenever a turn begins; this is for code
    /// without turns, and for what comes in the middle of one. A poll: what it says is durable before anything follows from it.
    pub async fn take_in(&self) -> Vec<EntryId> {
        self.cell.call("take_in").engine.look_for_entries().into_iter().map(EntryId).collect()
    }

    /// The last entry of the conversation, as of here.
    pub fn leaf(&self) -> Option<EntryId> {
        self.cell.lock().engine.leaf().map(EntryId)
    }

    /// Schedules a task. Without more it is one that may have an effect and is done at least once: see [`TaskCall::pure`] and its neighbors.
    pub fn task<T>(&self, kind: impl TaskName<T>, input: &(impl Serialize + ?Sized)) -> TaskCall<T> {
        self.ctx.task(kind, input).class(EffectClass::AtLeastOnce)
    }

    /// What the last checkpoint was taken with; `None` before the first.
    ///
    /// # Errors
    /// If it is not a `T`.
    pub fn checkpointed<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let state: Option<Payload> = self.cell.lock().engine.checkpoint().map(|checkpoint| checkpoint.state.clone());
        state.map(|state| Ok(state.read()?)).transpose()
    }
}
