//! A model server, and one attempt to get a response from it.
//!
//! Uses the network and decides nothing: there is no retry here. The caller decides by the error.
//!
//! Invariants:
//! - LP1: a call sends its request at most once.
//! - LP2: a key is in no error and in no debug text, and goes nowhere but to the base URL: redirects are not followed.
//! - LP3: every wait and every buffer of a call has a limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, Uri};
use serde::{Deserialize, Serialize};

use crate::error::{CallError, Cause, TableError};
use crate::formats::response::{ResponseReader, Sink};
use crate::transport::http::{Http, Lost, server_url};
use crate::transport::json::Object;
use crate::{
    Attachment, ModelReply, ModelRequest, ModelRetries, ProviderSettings, classify, formats::anthropic, formats::openai,
};

/// Context of the digests of rate limits, which separates them from other digests.
const LIMIT: &str = "onward 2026 the limit of a provider's key";

/// Maximum number of bytes that are read of an error response.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiFormat {
    #[serde(rename = "openai")]
    OpenAi,
    #[serde(rename = "anthropic")]
    Anthropic,
}

impl ApiFormat {
    /// Returns the path below the base URL, which usually ends in `/v1` for OpenAI's format.
    fn path(self) -> &'static str {
        match self {
            ApiFormat::OpenAi => "/chat/completions",
            ApiFormat::Anthropic => "/v1/messages",
        }
    }
}

/// The API key of a provider. Its debug output does not contain it.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    pub fn new(secret: impl Into<String>) -> Key {
        Key(secret.into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)") // LP2
    }
}

/// Limits of a call (LP3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the request to the last byte of the response.
    pub call_timeout: Duration,
    /// Between two parts of a response, and before the first.
    pub idle_timeout: Duration,
    pub answer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let [call_timeout, idle_timeout] = [1_800, 300].map(Duration::from_secs); // models may think for minutes without output
        Limits { call_timeout, idle_timeout, answer_bytes_max: 32 * 1024 * 1024 }
    }
}

/// Future of an attempt. Boxed, because the code of an async function is compiled again in every crate that awaits it.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, CallError>> + Send + 'a>>;

/// A model server and its API format. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Provider(Arc<ProviderState>);

#[derive(Clone)]
struct ProviderState {
    name: String,
    api_format: ApiFormat,
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    key: Option<Key>,
    max_tokens_name: String,
    limits: Limits,
    retries: ModelRetries,
    http: Http,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProviderState { name, api_format, url, .. } = &*self.0;
        f.debug_struct("Provider").field("name", name).field("api_format", api_format).field("url", url).finish_non_exhaustive()
    }
}

impl Provider {
    /// Creates a provider. `name` is its name in the operator's table, and marks content in its own format.
    pub fn new(name: &str, settings: &ProviderSettings, key: Option<Key>, http: &Http) -> Result<Provider, TableError> {
        let invalid = |why: String| TableError::Invalid { why: format!("provider `{name}`: {why}") };
        let url = format!("{}{}", settings.base_url.trim_end_matches('/'), settings.api_format.path());
        let wrong = || invalid("base_url must be http(s)://HOST[:PORT][/PATH], without user name, password or query".into());
        let url = server_url(&url).ok().filter(|url| url.query().is_none()).ok_or_else(wrong)?;
        let official = url.host() == Some("api.openai.com");
        let usual_name = if official { "max_completion_tokens" } else { "max_tokens" }; // other servers know the older name
        let headers = headers(settings, key.as_ref()).map_err(invalid)?;
        Ok(Provider(Arc::new(ProviderState {
            name: name.to_owned(),
            api_format: settings.api_format,
            url,
            headers,
            key,
            max_tokens_name: settings.max_tokens_name.clone().unwrap_or_else(|| usual_name.to_owned()),
            limits: settings.limits(),
            retries: settings.retries(),
            http: http.clone(),
        })))
    }

    /// Creates a provider with the Chat Completions format; its base URL usually ends in `/v1`. Its name is `openai` for OpenAI
    /// itself, otherwise its address.
    pub fn openai(base_url: &str, key: Option<Key>) -> Result<Provider, TableError> {
        Provider::at(ApiFormat::OpenAi, base_url, key)
    }

    /// Creates a provider with the Messages format. Its name is `anthropic` for Anthropic itself, otherwise its address.
    pub fn anthropic(base_url: &str, key: Option<Key>) -> Result<Provider, TableError> {
        Provider::at(ApiFormat::Anthropic, base_url, key)
    }

    fn at(api_format: ApiFormat, base_url: &str, key: Option<Key>) -> Result<Provider, TableError> {
        let provider = Provider::new("provider", &ProviderSettings::new(api_format, base_url), key, &Http::new())?;
        let name = usual_name(&provider.0.url, api_format);
        Ok(provider.named(&name))
    }

    /// Returns the same provider under another name. Signed reasoning is bound to the name: two accounts at one address need
    /// two names.
    pub fn named(&self, name: &str) -> Provider {
        Provider(Arc::new(ProviderState { name: name.to_owned(), ..ProviderState::clone(&self.0) }))
    }

    /// Returns the same provider with other limits.
    pub fn with_limits(&self, limits: Limits) -> Provider {
        Provider(Arc::new(ProviderState { limits, ..ProviderState::clone(&self.0) }))
    }

    /// Returns the same provider with another retry policy.
    pub fn with_retries(&self, retries: ModelRetries) -> Provider {
        Provider(Arc::new(ProviderState { retries, ..ProviderState::clone(&self.0) }))
    }

    /// Returns the retry policy for calls.
    pub fn retries(&self) -> &ModelRetries {
        &self.0.retries
    }

    /// Returns a digest that identifies the rate limit of this address and key without revealing either. Without a key anyone
    /// could compute it, so `among` becomes part of it.
    pub fn limit(&self, among: &str) -> String {
        let ProviderState { url, key, headers, .. } = &*self.0;
        let mut hasher = blake3::Hasher::new_derive_key(LIMIT);
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        add(url.to_string().as_bytes());
        match key {
            Some(Key(secret)) if !secret.is_empty() => add(secret.as_bytes()),
            _ => {
                add(among.as_bytes());
                headers.iter().for_each(|(_, value)| add(value.as_bytes())); // one of them may be the key
            }
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns true if the API format supports the attachment, as itself or as text; whether the model can see it depends on
    /// the model.
    pub fn shows(&self, attachment: &Attachment) -> bool {
        match self.0.api_format {
            ApiFormat::OpenAi => openai::shows(attachment),
            ApiFormat::Anthropic => anthropic::shows(attachment),
        }
    }

    /// Makes one attempt (LP1). Parts go to `sink` as they arrive; only the returned reply counts.
    ///
    /// Dropping the future ends the request; `sink` has received the usage reported until then.
    pub fn call<'a>(&'a self, request: &'a ModelRequest, sink: Sink<'a>) -> CallFuture<'a> {
        Box::pin(self.call_once(request, sink))
    }

    async fn call_once(&self, request: &ModelRequest, sink: Sink<'_>) -> Result<ModelReply, CallError> {
        let ProviderState { api_format, name, limits, .. } = &*self.0;
        let body = self.body(request)?;
        let mut answer = ResponseReader::new(*api_format, name, limits.answer_bytes_max);
        let attempt = self.attempt(body, &mut answer, sink);
        let outcome = tokio::time::timeout(limits.call_timeout, attempt).await;
        let outcome = outcome.unwrap_or_else(|_| Err(timeout("the whole call", limits.call_timeout)));
        match outcome {
            // A complete response is kept even if the connection broke right after it: it is billed.
            Err(error) if !answer.is_complete() => Err(self.without_key(answer.fail(error))),
            _ => answer.finish().map_err(|error| self.without_key(error)),
        }
    }

    fn body(&self, request: &ModelRequest) -> Result<Bytes, CallError> {
        let ProviderState { api_format, name, max_tokens_name, .. } = &*self.0;
        let body: Object = match api_format {
            ApiFormat::OpenAi => openai::body(request, name, max_tokens_name)?,
            ApiFormat::Anthropic => anthropic::body(request, name)?,
        };
        Ok(serde_json::to_vec(&body).expect("what was JSON before").into())
    }

    async fn attempt(&self, body: Bytes, answer: &mut ResponseReader, sink: Sink<'_>) -> Result<(), CallError> {
        let ProviderState { url, headers, http, limits, .. } = &*self.0;
        let sent = within(limits.idle_timeout, "the start of the response", http.post(url, headers, body)).await?;
        let response = sent.map_err(|Lost { reached, why }| {
            CallError::new(if reached { Cause::Disconnected } else { Cause::Unreachable }, why)
        })?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let sort = response.headers().get(CONTENT_TYPE).and_then(|sort| sort.to_str().ok()).unwrap_or_default();
        if sort.starts_with("application/json") {
            let body = Limited::new(response.into_body(), limits.answer_bytes_max).collect();
            let body = within(limits.idle_timeout, "the response", body).await?;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => CallError::new(Cause::TooLarge, format!("more than {} bytes", limits.answer_bytes_max)),
                false => CallError::new(Cause::Malformed, format!("the response was cut off: {error}")),
            })?;
            return answer.whole(&body.to_bytes(), sink);
        }
        self.stream(response.into_body(), answer, sink).await
    }

    async fn stream(&self, mut body: Incoming, answer: &mut ResponseReader, sink: Sink<'_>) -> Result<(), CallError> {
        while !answer.is_done() {
            match within(self.0.limits.idle_timeout, "the next part of the response", body.frame()).await? {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        answer.feed(&bytes, sink)?;
                    }
                }
                Some(Err(error)) => return Err(CallError::new(Cause::Malformed, format!("the response was cut off: {error}"))),
                None => return answer.end(sink),
            }
        }
        // A connection that is read to its end can be reused; this happens in the background.
        tokio::spawn(tokio::time::timeout(Duration::from_secs(1), body.collect()));
        Ok(())
    }

    async fn refusal(&self, response: Response<Incoming>) -> CallError {
        let (head, body) = response.into_parts();
        let body = within(self.0.limits.idle_timeout, "an error response", Limited::new(body, REFUSAL_BYTES_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        classify::refusal(head.status.as_u16(), &head.headers, &body, SystemTime::now())
    }

    /// Removes the key from an error, because some servers repeat it (LP2).
    fn without_key(&self, error: CallError) -> CallError {
        match &self.0.key {
            Some(Key(secret)) if !secret.is_empty() => {
                let provider_message =
                    error.provider_message.as_ref().map(|provider_message| provider_message.replace(secret.as_str(), "[key]"));
                CallError { detail: error.detail.replace(secret.as_str(), "[key]"), provider_message, ..error }
            }
            _ => error,
        }
    }
}

/// Returns the default name of a provider.
fn usual_name(url: &Uri, api_format: ApiFormat) -> String {
    let address = url.authority().map_or("", |authority| authority.as_str());
    match address {
        "api.openai.com" => "openai".to_owned(),
        "api.anthropic.com" => "anthropic".to_owned(),
        _ => {
            let path = url.path().strip_suffix(api_format.path()).unwrap_or_default();
            let path = path.trim_end_matches("/v1").trim_end_matches('/');
            format!("{address}{path}")
        }
    }
}

fn headers(settings: &ProviderSettings, key: Option<&Key>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    headers.push((hyper::header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json")));
    if settings.api_format == ApiFormat::Anthropic {
        headers.push((HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01")));
    }
    if let Some(Key(secret)) = key {
        let (name, value) = match settings.api_format {
            ApiFormat::OpenAi => ("authorization", format!("Bearer {secret}")),
            ApiFormat::Anthropic => ("x-api-key", secret.clone()),
        };
        let mut value: HeaderValue =
            value.parse().map_err(|_| "the key has characters that a header must not contain".to_owned())?;
        value.set_sensitive(true);
        headers.push((HeaderName::from_static(name), value));
    }
    for (name, value) in &settings.headers {
        let value = value.parse().map_err(|_| format!("header `{name}`: invalid value"))?;
        headers.push((name.parse().map_err(|_| format!("header `{name}`: invalid name"))?, value));
    }
    Ok(headers)
}

async fn within<T>(timeout: Duration, what: &str, future: impl Future<Output = T>) -> Result<T, CallError> {
    tokio::time::timeout(timeout, future).await.map_err(|_| self::timeout(what, timeout))
}

fn timeout(what: &str, timeout: Duration) -> CallError {
    CallError::new(Cause::Timeout, format!("{what} took longer than {timeout:?}"))
}

#[cfg(test)]
mod tests;
