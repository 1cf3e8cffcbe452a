//! A connection to an MCP server: its tools, and one attempt to call one.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward_llm::Http;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::{ToolCause, ToolError};
use crate::http::HttpClient;
use crate::outcome::{CallOutcome, OfferedTool};
use crate::program::{Lines, Program};
use crate::raw::{RawArguments, RawWriter};

/// The location of an MCP server. Set by the operator, never by a model: it starts programs and contains keys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Transport {
    Program {
        command: String,
        #[serde(default)]
        arguments: Vec<String>,
        /// Variables of the program, besides a few common ones ([`Transport::USUAL_VARIABLES`]).
        #[serde(default)]
        environment: BTreeMap<String, String>,
        /// Names of variables that it inherits from this process. It gets no others, because they may contain keys of models.
        #[serde(default)]
        inherits: Vec<String>,
        #[serde(default)]
        folder: Option<PathBuf>,
    },
    Http {
        url: String,
        /// Sent with every request; may contain keys.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
}

/// Omits variables and headers, which may contain keys.
impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Transport::Program { command, arguments, .. } => f.debug_tuple("Program").field(command).field(arguments).finish(),
            Transport::Http { url, .. } => f.debug_tuple("Http").field(url).finish(),
        }
    }
}

impl Transport {
    /// The variables of this process that every program gets, if they are set.
    pub const USUAL_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

    pub fn program<'a>(command: &str, arguments: impl IntoIterator<Item = &'a str>) -> Transport {
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Transport::Program {
            command: command.to_owned(),
            arguments,
            environment: BTreeMap::new(),
            inherits: Vec::new(),
            folder: None,
        }
    }

    pub fn http(url: &str) -> Transport {
        Transport::Http { url: url.to_owned(), headers: BTreeMap::new() }
    }
}

#[derive(Debug, Clone)]
pub struct McpServerSettings {
    pub transport: Transport,
    /// Name of the server in logs; a program's command if absent.
    pub name: Option<String>,
    pub open_timeout: Duration,
    pub call_timeout: Duration,
    /// Maximum size of one message of the server.
    pub message_bytes_max: usize,
    pub http: Http,
}

impl McpServerSettings {
    pub fn new(transport: Transport) -> McpServerSettings {
        let [open_timeout, call_timeout] = [60, 300].map(Duration::from_secs);
        McpServerSettings {
            transport,
            name: None,
            open_timeout,
            call_timeout,
            message_bytes_max: 16 * 1024 * 1024,
            http: Http::new(),
        }
    }
}

/// Future of a request. Boxed, because the code of an async function is compiled again in every crate that awaits it, and rmcp has
/// much of it.
pub type McpFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// A connection to an MCP server. Calls may be concurrent. Once it has ended, open a new one.
pub struct McpServer {
    service: RunningService<RoleClient, ClientConfig>,
    /// Ends with the connection, including all its child processes.
    _program: Option<Program>,
    too_large: Arc<AtomicBool>,
    has_no_session: AtomicBool,
    call_timeout: Duration,
    message_bytes_max: usize,
    raw: RawArguments,
}

impl McpServer {
    pub fn open(settings: &McpServerSettings) -> McpFuture<'_, McpServer> {
        Box::pin(McpServer::connect(settings))
    }

    async fn connect(settings: &McpServerSettings) -> Result<McpServer, ToolError> {
        match &settings.transport {
            Transport::Program { .. } => {
                let (program, output, input) = Program::start(&settings.transport, settings.name.as_deref())?;
                McpServer::over(settings, output, input, Some(program)).await
            }
            Transport::Http { url, headers } => McpServer::over_http(settings, url, headers).await,
        }
    }

    /// Opens a connection over a pair of pipes, line by line, as with a child process.
    pub async fn open_pipes(
        settings: &McpServerSettings,
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<McpServer, ToolError> {
        McpServer::over(settings, output, input, None).await
    }

    async fn over(
        settings: &McpServerSettings,
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
        program: Option<Program>,
    ) -> Result<McpServer, ToolError> {
        let too_large = Arc::new(AtomicBool::new(false));
        let lines = Lines::new(output, settings.message_bytes_max, Arc::clone(&too_large));
        // This limit is checked first and ends the connection; rmcp's would drop the message without an error.
        let raw = RawArguments::new();
        let transport =
            AsyncRwTransport::new(Box::pin(lines), RawWriter::new(input, raw.clone())).with_max_line_length(usize::MAX);
        let opening = client().serve_with_lifecycle(transport, lifecycle());
        let service = open_within(settings.open_timeout, opening).await?;
        let McpServerSettings { call_timeout, message_bytes_max, .. } = *settings;
        let has_no_session = AtomicBool::new(false);
        Ok(McpServer { service, _program: program, too_large, has_no_session, call_timeout, message_bytes_max, raw })
    }

    async fn over_http(
        settings: &McpServerSettings,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<McpServer, ToolError> {
        onward_llm::server_url(url)
            .map_err(|why| ToolError::new(ToolCause::Unreachable, format!("the URL is invalid: {why}"), false))?;
        let unusable = |name: &str| ToolError::new(ToolCause::Unreachable, format!("the header `{name}` is invalid"), false);
        let mut shown = HashMap::new();
        for (name, value) in headers {
            let header = name.parse().map_err(|_| unusable(name))?;
            shown.insert(header, value.parse().map_err(|_| unusable(name))?);
        }
        let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(shown);
        config.retry_config = Arc::new(NeverRetry::default()); // the caller decides about retries
        config.reinit_on_expired_session = false;
        let McpServerSettings { call_timeout, message_bytes_max, ref http, .. } = *settings;
        let raw = RawArguments::new();
        let transport = StreamableHttpClientTransport::with_client(
            HttpClient { http: http.clone(), message_bytes_max, raw: raw.clone() },
            config,
        );
        let service = open_within(settings.open_timeout, client().serve_with_lifecycle(transport, lifecycle())).await?;
        let (too_large, has_no_session) = (Arc::default(), AtomicBool::new(false));
        Ok(McpServer { service, _program: None, too_large, has_no_session, call_timeout, message_bytes_max, raw })
    }

    /// Lists the tools of the server. They may change: record what a model was shown.
    pub fn tools(&self) -> McpFuture<'_, Vec<OfferedTool>> {
        Box::pin(self.list_tools())
    }

    async fn list_tools(&self) -> Result<Vec<OfferedTool>, ToolError> {
        let tools = self.within(self.service.list_all_tools()).await?;
        tools.into_iter().map(OfferedTool::of).collect()
    }

    /// Makes one attempt to call a tool, with the arguments as the model wrote them.
    ///
    /// `idempotency_key` is sent in `_meta`, for servers that know `onward/idempotency-key`. Dropping the future cancels the
    /// request.
    pub fn call<'a>(&'a self, tool: &'a str, arguments: &'a str, idempotency_key: Option<&'a str>) -> McpFuture<'a, CallOutcome> {
        Box::pin(self.call_once(tool, arguments, idempotency_key))
    }

    async fn call_once(&self, tool: &str, arguments: &str, idempotency_key: Option<&str>) -> Result<CallOutcome, ToolError> {
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        let _: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|error| {
            ToolError::new(ToolCause::Refused, format!("the arguments are not a JSON object: {error}"), false)
        })?;
        let (_kept, placeholder) = self.raw.keep(text);
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(placeholder);
        if let Some(key) = idempotency_key {
            let mut meta = RequestMetaObject::new();
            meta.0.0.insert("onward/idempotency-key".to_owned(), key.into());
            params.meta = Some(meta);
        }
        match self.within(self.service.call_tool_once(params)).await? {
            CallToolResponse::Complete(result) => CallOutcome::of(result),
            // The client did not offer either to the server.
            _ => Err(ToolError::new(ToolCause::Broken, "it requested input or a task, which the client does not offer", true)),
        }
    }

    /// Returns true if calls can still succeed.
    pub fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.is_transport_closed() && !self.has_no_session.load(Ordering::Relaxed)
    }

    /// Ends the connection, and the program with all its child processes.
    pub async fn close(mut self) {
        // A program that has not ended by then is killed.
        drop(self.service.close_with_timeout(Duration::from_secs(3)).await);
    }

    async fn within<T>(&self, request: impl Future<Output = Result<T, rmcp::ServiceError>>) -> Result<T, ToolError> {
        if !self.is_open() {
            return Err(ToolError::new(ToolCause::Gone, "it had ended before the call", false));
        }
        match tokio::time::timeout(self.call_timeout, request).await {
            Ok(outcome) => outcome.map_err(|error| self.explain(&error)),
            Err(_) => {
                Err(ToolError::new(ToolCause::TimedOut, format!("the call took longer than {:?}", self.call_timeout), true))
            }
        }
    }

    fn explain(&self, error: &rmcp::ServiceError) -> ToolError {
        if self.too_large.load(Ordering::Relaxed) {
            let detail = format!("a message of more than {} bytes ended the connection", self.message_bytes_max);
            return ToolError::new(ToolCause::TooLarge, detail, true);
        }
        self.has_no_session.fetch_or(ToolError::is_end_of_session(error), Ordering::Relaxed);
        ToolError::of_service(error)
    }
}

fn client() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("onward", env!("CARGO_PKG_VERSION")))
}

/// Returns a lifecycle that tries to connect without a handshake, and falls back to one.
fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
}

async fn open_within<T>(
    timeout: Duration,
    opening: impl Future<Output = Result<T, rmcp::service::ClientInitializeError>>,
) -> Result<T, ToolError> {
    match tokio::time::timeout(timeout, opening).await {
        Ok(opened) => opened.map_err(|error| ToolError::of_opening(&error)),
        Err(_) => Err(ToolError::new(ToolCause::TimedOut, format!("opening the connection took longer than {timeout:?}"), false)),
    }
}
