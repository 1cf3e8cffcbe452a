//! Calls to language models, one attempt at a time.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onward_llm::{Key, Message, ModelRequest, Provider};
//!
//! let provider = Provider::openai("https://api.openai.com/v1", Some(Key::new(std::env::var("OPENAI_API_KEY")?)))?;
//! let request = ModelRequest::new("gpt-4o-mini", vec![Message::user("Good morning!")]);
//! let reply = provider.call(&request, &mut |delta| println!("{delta:?}")).await?;
//! println!("{} for {:?}", reply.text(), reply.usage);
//! # Ok(())
//! # }
//! ```
//!
//! Owns the requests and responses of models ([`ModelRequest`], [`ModelReply`]), the two API formats, and the causes of
//! failures ([`CallError`]). Knows nothing of runs, logs and tasks, and never retries: [`ModelRetries`] decides when the next
//! attempt is worthwhile, and the engine waits for it durably.

#![forbid(unsafe_code)]

mod classify;
mod error;
mod formats;
mod message;
mod price;
mod provider;
mod reply;
mod request;
mod retry;
mod table;
#[cfg(test)]
mod tests;
mod transport;

pub use error::{CallError, Cause, TableError};
pub use formats::response::Sink;
pub use message::{Attachment, Block, Message, ProviderPayload, Reasoning, Role, Source, ToolCall, ToolResult};
pub use price::{PerMillion, PicoDollars, Price};
pub use provider::{ApiFormat, CallFuture, Key, Limits, Provider};
pub use reply::{Delta, ModelReply, StopReason, Usage};
pub use request::{ModelRequest, ToolChoice, ToolSchema};
pub use retry::{EmptyModelResponse, Failures, ModelRetries, Next};
pub use table::{Model, ModelSettings, ModelTable, Models, ProviderSettings, RetrySettings};
pub use transport::http::{Http, Lost, server_url};
pub use transport::json::JsonText;
