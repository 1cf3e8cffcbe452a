//! Failures of MCP servers, and what they mean for the next attempt.

use onward_llm::Lost;
use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde::{Deserialize, Serialize};

use crate::http::{GONE, TOO_LARGE};

/// Maximum size of a server's message that is kept.
const DETAIL_BYTES_MAX: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}: {detail}")]
pub struct ToolError {
    pub cause: ToolCause,
    /// The message of the server or the system, truncated.
    pub detail: String,
    /// True if the request may have reached the server.
    pub sent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ToolCause {
    /// The server could not be started, or there is no connection to it.
    #[error("the MCP server cannot be reached")]
    Unreachable,
    /// The server or its connection ended.
    #[error("the connection to the MCP server ended")]
    Gone,
    #[error("the MCP server timed out")]
    TimedOut,
    #[error("the response of the MCP server is too large")]
    TooLarge,
    /// The server returned a protocol error, such as an unknown tool or invalid arguments.
    #[error("the MCP server rejected the call")]
    Refused,
    #[error("the MCP server rejected the credentials")]
    Auth,
    /// The server violated the protocol.
    #[error("the MCP server violated the protocol")]
    Broken,
}

impl ToolError {
    pub(crate) fn new(cause: ToolCause, detail: impl Into<String>, sent: bool) -> ToolError {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
            detail.push('…');
        }
        ToolError { cause, detail, sent }
    }

    /// Returns the stable code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        match self.cause {
            ToolCause::Unreachable => "mcp_server_unreachable",
            ToolCause::Gone => "mcp_server_gone",
            ToolCause::TimedOut => "tool_timed_out",
            ToolCause::TooLarge => "tool_result_too_large",
            ToolCause::Refused => "tool_call_refused",
            ToolCause::Auth => "tool_key_refused",
            ToolCause::Broken => "mcp_server_broken",
        }
    }

    /// Returns true if the same call may succeed later, over a new connection if this one has ended.
    pub fn is_retryable(&self) -> bool {
        matches!(self.cause, ToolCause::Unreachable | ToolCause::Gone | ToolCause::TimedOut)
    }

    /// Returns true if the tool may have acted although there is no result: then only an idempotent tool can be called again.
    pub fn may_have_acted(&self) -> bool {
        self.sent && !matches!(self.cause, ToolCause::Unreachable | ToolCause::Refused | ToolCause::Auth)
    }

    /// Returns true if the connection had ended before the request.
    pub fn had_gone(&self) -> bool {
        self.cause == ToolCause::Gone && !self.sent
    }

    pub fn hint(&self) -> &'static str {
        match self.cause {
            ToolCause::Unreachable => "check the command or the URL of the MCP server",
            ToolCause::Gone => "open a new connection; see the stderr of the server for the reason",
            ToolCause::TimedOut => "raise `call_timeout` of the MCP server if its tools are slow",
            ToolCause::TooLarge => "request less from the tool, or raise `message_bytes_max` of the MCP server",
            ToolCause::Refused => "see the server's message for the reason",
            ToolCause::Auth => "check the headers of the MCP server",
            ToolCause::Broken => "use a server that implements MCP and prints nothing else to stdout",
        }
    }

    /// Returns the error of a request.
    pub(crate) fn of_service(error: &ServiceError) -> ToolError {
        match error {
            ServiceError::McpError(reply) if reply.code.0 == TOO_LARGE => {
                ToolError::new(ToolCause::TooLarge, reply.message.clone(), true)
            }
            ServiceError::McpError(reply) if reply.code.0 == GONE => ToolError::new(ToolCause::Gone, reply.message.clone(), true),
            ServiceError::McpError(reply) => {
                ToolError::new(ToolCause::Refused, format!("{} ({})", reply.message, reply.code.0), true)
            }
            ServiceError::TransportClosed => ToolError::new(ToolCause::Gone, "closed by the other side", true),
            ServiceError::TransportSend(error) => ToolError::of_transport(&*error.error, ToolCause::Gone),
            other => ToolError::new(ToolCause::Broken, other.to_string(), true),
        }
    }

    /// Returns the error of opening a connection. No tool was called yet.
    pub(crate) fn of_opening(error: &ClientInitializeError) -> ToolError {
        let error = match error {
            ClientInitializeError::TransportError { error, .. } => ToolError::of_transport(&*error.error, ToolCause::Unreachable),
            ClientInitializeError::ConnectionClosed(why) => ToolError::new(ToolCause::Unreachable, why.clone(), false),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => ToolError::of_opening(fallback),
            ClientInitializeError::JsonRpcError(reply) if reply.code.0 == GONE => {
                ToolError::new(ToolCause::Unreachable, reply.message.clone(), false)
            }
            other => ToolError::new(ToolCause::Broken, other.to_string(), false),
        };
        ToolError { sent: false, ..error }
    }

    /// Returns true if a request was refused because its session has ended: the caller has to open a new one.
    pub(crate) fn is_end_of_session(error: &ServiceError) -> bool {
        let ServiceError::TransportSend(error) = error else { return false };
        matches!(http_error(&*error.error), Some(StreamableHttpError::SessionExpired))
    }

    /// Returns the error of a transport, which wraps that of our HTTP client.
    fn of_transport(error: &(dyn std::error::Error + 'static), otherwise: ToolCause) -> ToolError {
        match http_error(error) {
            Some(StreamableHttpError::Client(Lost { reached, why })) => {
                ToolError::new(if *reached { ToolCause::Gone } else { ToolCause::Unreachable }, why.clone(), *reached)
            }
            Some(StreamableHttpError::HttpStatus(status)) => {
                let cause = match status.status {
                    401 | 403 => ToolCause::Auth,
                    500..=599 | 429 => ToolCause::Gone,
                    _ => ToolCause::Refused,
                };
                ToolError::new(cause, status.to_string(), true)
            }
            Some(StreamableHttpError::SessionExpired) => ToolError::new(ToolCause::Gone, "the session has ended", false),
            Some(other) => ToolError::new(ToolCause::Broken, other.to_string(), true),
            None => ToolError::new(otherwise, error.to_string(), true),
        }
    }
}

/// Returns the error of our HTTP client or its transport, however deep it is wrapped.
fn http_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a StreamableHttpError<Lost>> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}
