//! A model server that answers by script: for tests, and for demos without a key.
//!
//! It speaks Chat Completions and Messages, streaming or not, and is meant to be taken for a real one: it refuses conversations that real
//! ones refuse. What it answers is a function of the script and the conversation, ids and tokens included, so that a test may crash its
//! client anywhere and compare.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! use onward_llm_scripted::{Answer, Fault, ScriptedModel};
//!
//! let model = ScriptedModel::start().await?;
//! model.next(Answer::fault(Fault::RateLimited { retry_after_seconds: Some(2) }));
//! model.next(Answer::text("At last."));
//! println!("base URLs: {}/v1 (OpenAI), {} (Anthropic)", model.url(), model.url());
//! println!("called {} times", model.request_count());
//! # Ok(()) }
//! ```
//!
//! Shares no code with the clients it is there to test.
//!
//! Invariants:
//! - SM1: the same script and the same conversation give the same answer, byte for byte.
//! - SM2: every request is counted, also one that is refused or fails.

#![forbid(unsafe_code)]

mod anthropic;
mod conversation;
mod openai;
mod persona;
mod play;
mod script;
mod server;

pub use conversation::{Call, Conversation, Dialect, Speaker, Tool, Turn};
pub use script::{Answer, Fault, Part, Rule, Tokens, When};
pub use server::{Recorded, ScriptedModel};
