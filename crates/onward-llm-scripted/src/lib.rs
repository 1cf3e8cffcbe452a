//! A model server with scripted responses, for tests and for demos without a key.
//!
//! It implements Chat Completions and Messages, streaming or not, and refuses conversations that real servers refuse. A
//! response is a function of the script and the conversation, including ids and tokens, so that a test may crash its client
//! anywhere and compare.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! use onward_llm_scripted::{Fault, ScriptedModel, ScriptedReply};
//!
//! let model = ScriptedModel::start().await?;
//! model.next(ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: Some(2) }));
//! model.next(ScriptedReply::text("At last."));
//! println!("base URLs: {}/v1 (OpenAI), {} (Anthropic)", model.url(), model.url());
//! println!("called {} times", model.request_count());
//! # Ok(()) }
//! ```
//!
//! Shares no code with the clients that it tests.
//!
//! Invariants:
//! - SM1: the same script and the same conversation give the same response, byte for byte.
//! - SM2: every request is counted, also one that is refused or fails.

#![forbid(unsafe_code)]

mod anthropic;
mod conversation;
mod openai;
mod persona;
mod play;
mod script;
mod server;

pub use conversation::{ApiFormat, ScriptedCall, ScriptedConversation, ScriptedMessage, ScriptedRole, Tool};
pub use script::{Fault, ReplyPart, Rule, ScriptedReply, TokenCounts, When};
pub use server::{Recorded, ScriptedModel};
