//! The server: routes, the script, and the recorded requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::conversation::{ApiFormat, ScriptedConversation, hash};
use crate::play::{End, Play};
use crate::script::{Fault, Rule, ScriptedReply};
use crate::{anthropic, openai, persona};

/// Number of requests that are recorded; later ones are only counted.
const RECORDED_MAX: usize = 10_000;

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A running server. Dropping it stops it.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Shared,
    serving: tokio::task::JoinHandle<()>,
}

/// A recorded request.
#[derive(Debug, Clone, Serialize)]
pub struct Recorded {
    pub api_format: ApiFormat,
    pub body: Value,
    /// The API key of the request.
    #[serde(skip)]
    pub key: Option<String>,
    /// The idempotency key of the request, if any.
    pub idempotency_key: Option<String>,
    pub status: u16,
}

/// The script, shared by the server and its owner.
type Shared = Arc<Mutex<ScriptState>>;

#[derive(Default)]
struct ScriptState {
    next: VecDeque<ScriptedReply>,
    rules: Vec<Rule>,
    recorded: Vec<Recorded>,
    request_count: u64,
}

impl ScriptedModel {
    /// Starts on a free port of the loopback interface.
    pub async fn start() -> std::io::Result<ScriptedModel> {
        ScriptedModel::start_on(TcpListener::bind("127.0.0.1:0").await?)
    }

    pub fn start_on(listener: TcpListener) -> std::io::Result<ScriptedModel> {
        ScriptedModel::start_with(listener, [])
    }

    /// Starts with the given first responses: clients may be connected already.
    pub fn start_with(listener: TcpListener, next: impl IntoIterator<Item = ScriptedReply>) -> std::io::Result<ScriptedModel> {
        let address = listener.local_addr()?;
        let shared = Shared::default();
        script(&shared).next.extend(next);
        let router = router(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // Runs until the task is aborted. Without `TCP_NODELAY`, each small chunk would wait for the acknowledgement of the
            // one before.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            drop(axum::serve(listener, router).await);
        });
        Ok(ScriptedModel { address, shared, serving })
    }

    /// Returns the URL without a path: clients of OpenAI's format add `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a response to the queue that is served first, in order, for any request.
    pub fn next(&self, answer: ScriptedReply) {
        script(&self.shared).next.push_back(answer);
    }

    /// Adds a rule; the first match counts, after all responses of [`next`](ScriptedModel::next) were served.
    pub fn rule(&self, rule: Rule) {
        script(&self.shared).rules.push(rule);
    }

    /// Returns the recorded requests, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        script(&self.shared).recorded.clone()
    }

    pub fn request_count(&self) -> u64 {
        script(&self.shared).request_count
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn script(shared: &Shared) -> MutexGuard<'_, ScriptState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptState {
    fn answer(&mut self, conversation: &ScriptedConversation) -> ScriptedReply {
        if let Some(answer) = self.next.pop_front() {
            return answer;
        }
        let fitting = self.rules.iter_mut().find(|rule| rule.times != Some(0) && rule.when.fits(conversation));
        let Some(rule) = fitting else { return persona::answer(conversation) };
        rule.times = rule.times.map(|times| times - 1);
        rule.answer.clone()
    }
}

fn router(shared: Shared) -> Router {
    let models = json!({"object": "list", "data": [{"id": "scripted", "object": "model", "created": 1_700_000_000, "owned_by": "script"}]});
    Router::new()
        .route("/v1/chat/completions", post(|shared, headers, body| ask(ApiFormat::OpenAi, shared, headers, body)))
        .route("/v1/messages", post(|shared, headers, body| ask(ApiFormat::Anthropic, shared, headers, body)))
        .route("/v1/models", get(move || async move { json_response(200, &models) }))
        .route("/script/answers", post(|shared, body| add(shared, body, |script, answer| script.next.push_back(answer))))
        .route("/script/rules", post(|shared, body| add(shared, body, |script, rule| script.rules.push(rule))))
        .route("/script", get(show).delete(forget))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn ask(api_format: ApiFormat, State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let read = ScriptedConversation::read(api_format, &body);
    let mut script = script(&shared);
    let answer = read.map(|conversation| (script.answer(&conversation), conversation));
    let response = match &answer {
        Ok((answer, conversation)) => respond(api_format, &body, conversation, answer),
        Err(why) => refuse(api_format, 400, why),
    };
    script.request_count += 1; // SM2
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let key = header("x-api-key")
        .or_else(|| header("authorization").and_then(|value| value.strip_prefix("Bearer ")))
        .map(str::to_owned);
    let idempotency_key = header("idempotency-key").map(str::to_owned);
    let request_id = format!("req_{}", hash(&body.to_string()));
    if script.recorded.len() < RECORDED_MAX {
        script.recorded.push(Recorded { api_format, body, key, idempotency_key, status: response.status().as_u16() });
    }
    ([("x-request-id", request_id.clone()), ("request-id", request_id)], response).into_response()
}

fn respond(api_format: ApiFormat, body: &Value, conversation: &ScriptedConversation, answer: &ScriptedReply) -> Response {
    match &answer.fault {
        Some(Fault::RateLimited { retry_after_seconds }) => {
            let after = retry_after_seconds.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
            (after, refuse(api_format, 429, "slow down")).into_response()
        }
        Some(Fault::ServerError) => refuse(api_format, 500, "something broke"),
        Some(Fault::Overloaded) => refuse(api_format, if api_format == ApiFormat::OpenAi { 503 } else { 529 }, "Overloaded"),
        Some(Fault::KeyRefused) => refuse(api_format, 401, "this key is not known"),
        Some(Fault::ContextTooLong) => refuse(api_format, 400, "prompt is too long: 9001 tokens > 8192 maximum context length"),
        Some(Fault::RequestRefused) => refuse(api_format, 400, "Could not process image"),
        _ if body["stream"] == true => stream(api_format, body, conversation, answer),
        Some(Fault::ErrorInside) => json_response(200, &error(api_format, 500, "the model upstream failed")),
        _ => {
            let tokens = answer.tokens(conversation);
            let whole = match api_format {
                ApiFormat::OpenAi => openai::whole(conversation, answer, tokens),
                ApiFormat::Anthropic => anthropic::whole(conversation, answer, tokens),
            };
            json_response(200, &whole)
        }
    }
}

fn stream(api_format: ApiFormat, body: &Value, conversation: &ScriptedConversation, answer: &ScriptedReply) -> Response {
    let tokens = answer.tokens(conversation);
    let mut chunks = match api_format {
        ApiFormat::OpenAi => {
            openai::events(conversation, answer, (body["stream_options"]["include_usage"] == true).then_some(tokens))
        }
        ApiFormat::Anthropic => anthropic::events(conversation, answer, tokens),
    };
    let mut end = End::Clean;
    match answer.fault {
        Some(Fault::BreakAfter { chunks: count }) => {
            chunks.truncate(count);
            end = End::Break;
        }
        Some(Fault::StallAfter { chunks: count }) => {
            chunks.truncate(count);
            end = End::Stall;
        }
        Some(Fault::MalformedAfter { chunks: count }) => {
            chunks.truncate(count);
            chunks.push("data: {\"choices\": [{\"del\n\n".to_owned());
        }
        Some(Fault::ErrorInside) => {
            let error = error(api_format, 500, "the model upstream failed");
            chunks.truncate(1);
            chunks.push(if api_format == ApiFormat::OpenAi { format!("data: {error}\n\n") } else { anthropic::event(&error) });
        }
        _ => {}
    }
    let play = Play::new(chunks, Duration::from_millis(answer.chunk_delay_ms), end);
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(play)).into_response()
}

fn error(api_format: ApiFormat, status: u16, message: &str) -> Value {
    match api_format {
        ApiFormat::OpenAi => openai::error(status, message),
        ApiFormat::Anthropic => anthropic::error(status, message),
    }
}

fn refuse(api_format: ApiFormat, status: u16, message: &str) -> Response {
    json_response(status, &error(api_format, status, message))
}

fn json_response(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Adds the item in the body to the script.
async fn add<T: DeserializeOwned>(State(shared): State<Shared>, body: Bytes, add: fn(&mut ScriptState, T)) -> Response {
    match serde_json::from_slice(&body) {
        Ok(item) => {
            add(&mut script(&shared), item);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn show(State(shared): State<Shared>) -> Response {
    let script = script(&shared);
    json_response(200, &json!({"request_count": script.request_count, "requests": script.recorded}))
}

async fn forget(State(shared): State<Shared>) -> StatusCode {
    *script(&shared) = ScriptState::default();
    StatusCode::NO_CONTENT
}
