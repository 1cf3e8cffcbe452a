//! Agents: durable conversations, turn by turn.
//!
//! An agent is a run whose code may depend on values that are not recorded, such as a prompt or a list of tools. Checkpoints
//! divide its log into *segments*. Everything before the last checkpoint is final and never loaded again. After a crash the open
//! segment is replayed. If the code diverges from it, the rest of the segment is abandoned: it stays in the log, and equal calls
//! take over its results. `docs/design/agents.md` has the rules.
//!
//! Write an agent with [`AgentCtx::turns`], which is built on [`AgentCtx::checkpoint`] and [`AgentCtx::checkpointed`].

#[cfg(feature = "agents")]
mod agent_loop;
#[cfg(feature = "agents")]
mod attachments;
pub(crate) mod conversation_cache;
#[cfg(test)]
#[path = "../../tests/agent_explorer/mod.rs"]
mod explorer;
mod handoff;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
#[cfg(feature = "agents")]
mod model_attempt;
#[cfg(feature = "agents")]
mod model_call;
#[cfg(feature = "agents")]
mod prompt;
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
use onward_core::{ErrorCode, Failure, Hash, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::ctx::{Ctx, TaskCall, name_or_misuse, payload_or_failure, small};
use crate::names::TaskName;

pub use crate::ctx::{Parent, ReceivedSignal, Spawned};
#[cfg(feature = "agents")]
pub use agent_loop::{Agent, AgentOutcome, Stop};
#[cfg(feature = "agents")]
pub use attachments::Attachments;
pub use messages::Messages;
#[cfg(feature = "agents")]
pub(crate) use model_attempt::handler as model_handler;
#[cfg(feature = "agents")]
pub use model_call::ModelCall;
#[cfg(feature = "agents")]
pub(crate) use model_call::model_kind;
pub use onward_core::conversation::{Entry, MESSAGE, Summary};
pub use onward_core::task::EffectClass;
#[cfg(feature = "agents")]
pub use onward_llm::{
    ApiFormat, Attachment, Block, Delta, Http, JsonText, Key, Limits as ModelLimits, Message, Model, ModelReply, ModelRetries,
    ModelSettings, ModelTable, Models, Provider, ProviderSettings, RetrySettings, Source, StopReason, TableError, ToolCall,
    ToolChoice, ToolSchema, Usage,
};
#[cfg(feature = "mcp")]
pub use onward_mcp::{McpServerSettings, ToolError, Transport as McpTransport};
#[cfg(feature = "agents")]
pub use tool::{Tool, ToolMistake};
#[cfg(feature = "agents")]
pub use tools::{ToolFuture, ToolOutcome, Tools};
pub use turns::Turn;

/// The context of an agent's function: a workflow context with a conversation.
#[derive(Clone)]
pub struct AgentCtx {
    ctx: Ctx,
}

/// The id of an entry. It covers everything before it: two conversations that end in the same id are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub(crate) Hash);

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Hash> for EntryId {
    fn from(hash: Hash) -> EntryId {
        EntryId(hash)
    }
}

impl From<EntryId> for Hash {
    fn from(id: EntryId) -> Hash {
        id.0
    }
}

impl From<&Entry> for EntryId {
    fn from(entry: &Entry) -> EntryId {
        EntryId(entry.id)
    }
}

/// The usual roles of entries; any other name is possible, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    System,
    User,
    Assistant,
    /// The result of a tool.
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

    /// Appends an entry to the conversation. After a crash the same call returns the same entry.
    ///
    /// # Errors
    /// Fails if the content is too large or cannot be written as JSON.
    pub async fn append(&self, role: impl AsRef<str>, content: &(impl Serialize + ?Sized)) -> Result<EntryId> {
        let content = payload_or_failure("an entry", content)?;
        self.append_payload(role.as_ref(), content)
    }

    fn append_payload(&self, role: &str, content: Payload) -> Result<EntryId> {
        let role = name_or_misuse(&self.cell, "append", role);
        let content = small(self.cell.shared.payload_bytes_max, "an entry", content)?;
        Ok(EntryId(self.cell.call("append").engine.append_entry(role, content)))
    }

    /// Appends an entry like [`AgentCtx::append`], once per key: a repeat returns the first entry, also in a later turn and for
    /// keys used from outside. The run remembers its last 128 keys.
    ///
    /// # Errors
    /// Fails with `entry_key_taken` if the entry under this key has another role or content, and for the reasons of
    /// [`AgentCtx::append`].
    pub async fn append_once(&self, key: &str, role: &str, content: &(impl Serialize + ?Sized)) -> Result<EntryId> {
        let key = name_or_misuse(&self.cell, "append_once", key);
        let role = name_or_misuse(&self.cell, "append_once", role);
        let content = payload_or_failure("an entry", content)?;
        let content = small(self.cell.shared.payload_bytes_max, "an entry", content)?;
        let appended = self.cell.call("append_once").engine.append_entry_once(key.as_str(), role, content);
        let taken = |KeyTaken { id }| {
            let message = format!("entry {id} already has the key `{key}`, with another role or content");
            Failure::fatal(message).with_code(ErrorCode::EntryKeyTaken)
        };
        appended.map(EntryId).map_err(taken)
    }

    /// Takes over entries that were appended from outside. [`AgentCtx::turns`] does so when a turn begins; this is for code
    /// without turns, or in the middle of one. A poll: its answer is durable before any effect that follows it starts.
    pub async fn take_in(&self) -> Vec<EntryId> {
        self.cell.call("take_in").engine.look_for_entries().into_iter().map(EntryId).collect()
    }

    /// Returns the last entry of the conversation up to here.
    pub fn leaf(&self) -> Option<EntryId> {
        self.cell.lock().engine.leaf().map(EntryId)
    }

    /// Schedules a task. By default it may have side effects and runs at least once; see [`TaskCall::pure`] and the other effect
    /// classes.
    pub fn task<T>(&self, kind: impl TaskName<T>, input: &(impl Serialize + ?Sized)) -> TaskCall<T> {
        self.ctx.task(kind, input).class(EffectClass::AtLeastOnce)
    }

    /// Returns the state of the last checkpoint; `None` before the first.
    ///
    /// # Errors
    /// Fails if the state is not a `T`.
    pub fn checkpointed<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let state: Option<Payload> = self.cell.lock().engine.checkpoint().map(|checkpoint| checkpoint.state.clone());
        state.map(|state| Ok(state.read()?)).transpose()
    }
}
