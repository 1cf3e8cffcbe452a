//! Streamable HTTP over the connections of `onward-llm`.
//!
//! Invariant MC2: every request that was sent gets a response: from the server, or from this client as an error with its id if
//! the response is cut off or too large. A known failure never has to wait for a timeout.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use onward_llm::{Http, Lost};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse, SseStream};

use crate::raw::RawArguments;

/// Codes of the errors that this client returns itself; the protocol does not use them.
pub(crate) const TOO_LARGE: i32 = -31_901;
pub(crate) const GONE: i32 = -31_902;

const SESSION: &str = "mcp-session-id";

/// Maximum number of bytes that are read of an error response.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone)]
pub(crate) struct HttpClient {
    pub http: Http,
    pub message_bytes_max: usize,
    pub raw: RawArguments,
}

/// A body that could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Broken(Box<dyn std::error::Error + Send + Sync>);

impl Broken {
    fn is_limit(&self) -> bool {
        self.0.is::<LengthLimitError>()
    }
}

type Failure = StreamableHttpError<Lost>;

/// The headers that all requests of a session have.
struct SessionHeaders {
    session: Option<Arc<str>>,
    key: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
}

impl HttpClient {
    async fn send(
        &self,
        method: Method,
        uri: &str,
        shown: SessionHeaders,
        more: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let unusable = |error: hyper::http::Error| Failure::Client(Lost { reached: false, why: error.to_string() });
        let mut request = Request::builder().method(method).uri(uri).header(ACCEPT, "application/json, text/event-stream");
        for (name, value) in more {
            request = request.header(name, *value);
        }
        if let Some(session) = &shown.session {
            request = request.header(SESSION, &**session);
        }
        if let Some(key) = &shown.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let mut request = request.body(Full::new(body)).map_err(unusable)?;
        request.headers_mut().extend(shown.headers);
        let sent = self.http.send(request).await;
        sent.map_err(Failure::Client)
    }

    /// Returns the response to a request in one piece.
    async fn whole(&self, body: Incoming, id: Option<RequestId>) -> Result<ServerJsonRpcMessage, Failure> {
        let limit = self.message_bytes_max;
        match Limited::new(body, limit).collect().await {
            Ok(body) => serde_json::from_slice(&body.to_bytes()).map_err(Failure::from),
            Err(error) if error.is::<LengthLimitError>() => Ok(too_large(limit, id)),
            Err(error) => Ok(gone(&error.to_string(), id)),
        }
    }

    /// Returns the response to a request as events; adds an error event if the server's response is missing (MC2).
    fn events(&self, body: Incoming, id: Option<RequestId>) -> BoxStream<'static, Result<Sse, SseError>> {
        let limit = self.message_bytes_max;
        let bytes = Limited::new(body, limit).into_data_stream().map_err(Broken);
        let events = SseStream::from_bytes_stream(bytes);
        let ours = move |error: Option<&SseError>| {
            let large = matches!(error, Some(SseError::Body(error)) if error.downcast_ref().is_some_and(Broken::is_limit));
            let message = if large { too_large(limit, id.clone()) } else { gone("the response was cut off", id.clone()) };
            serde_json::to_string(&message).map(|text| Sse::default().data(text)).map_err(|error| SseError::Body(error.into()))
        };
        let state = (events.boxed(), Some(ours), false);
        let filled = stream::unfold(state, |(mut events, mut ours, mut answered)| async move {
            let next = events.next().await;
            if let Some(Ok(event)) = &next {
                answered |= event.data.as_deref().is_some_and(is_answer);
            }
            match next {
                Some(Ok(event)) => Some((Ok(event), (events, ours, answered))),
                end => {
                    let ours = ours.take().filter(|_| !answered)?;
                    let error = end.and_then(Result::err);
                    Some((ours(error.as_ref()), (stream::empty().boxed(), None, true)))
                }
            }
        });
        filled.boxed()
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = Lost;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        key: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let in_session = session.is_some();
        let body = self.raw.put_in_place(serde_json::to_vec(&message)?);
        let json = [(CONTENT_TYPE, "application/json")];
        let response = self.send(Method::POST, &uri, SessionHeaders { session, key, headers }, &json, body.into()).await?;
        let (id, probes) = match &message {
            ClientJsonRpcMessage::Request(request) => {
                (Some(request.id.clone()), matches!(request.request, ClientRequest::DiscoverRequest(_)))
            }
            _ => (None, false),
        };
        let status = response.status();
        if in_session && status == StatusCode::NOT_FOUND {
            return Err(Failure::SessionExpired);
        }
        if in_session && status == StatusCode::BAD_REQUEST {
            return Err(if is_of_session(response).await { Failure::SessionExpired } else { refused(status, None) });
        }
        if !status.is_success() {
            // A server that supports only the handshake refuses a request without one: this is a valid response.
            let legacy = probes && !in_session && status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 429);
            return if legacy {
                Ok(StreamableHttpPostResponse::Json(legacy_answer(response, id).await, None))
            } else {
                Err(refusal(&response))
            };
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (session, sort) = (header(SESSION), header("content-type").unwrap_or_default());
        if id.is_none() || status == StatusCode::ACCEPTED {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if sort.starts_with("text/event-stream") {
            Ok(StreamableHttpPostResponse::Sse(self.events(response.into_body(), id), session))
        } else if sort.starts_with("application/json") {
            Ok(StreamableHttpPostResponse::Json(self.whole(response.into_body(), id).await?, session))
        } else {
            Err(Failure::UnexpectedContentType(Some(sort)))
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        key: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let shown = SessionHeaders { session: Some(session), key, headers };
        let response = self.send(Method::DELETE, &uri, shown, &[], Bytes::new()).await?;
        // Support for it is optional.
        if response.status().is_success() || response.status() == StatusCode::METHOD_NOT_ALLOWED {
            Ok(())
        } else {
            Err(refusal(&response))
        }
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        // This stream is for requests of the server to its client, and this client offers nothing.
        Err(Failure::ServerDoesNotSupportSse)
    }
}

fn refusal(response: &Response<Incoming>) -> Failure {
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    refused(response.status(), after)
}

fn refused(status: StatusCode, after: Option<String>) -> Failure {
    Failure::HttpStatus(HttpStatusError::new(status.as_u16(), after))
}

/// Returns true if a bad request means an unknown session: restarted servers return 400 with such a text instead of 404.
async fn is_of_session(response: Response<Incoming>) -> bool {
    let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).to_lowercase()).unwrap_or_default();
    text.contains("session") || text.contains("not initialized")
}

/// Returns the response of a server without discovery as a protocol error.
async fn legacy_answer(response: Response<Incoming>, id: Option<RequestId>) -> ServerJsonRpcMessage {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let error = match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(text)) => text.error,
        _ => ErrorData::invalid_request(format!("status {status}"), None),
    };
    ServerJsonRpcMessage::error(error, id)
}

fn too_large(limit: usize, id: Option<RequestId>) -> ServerJsonRpcMessage {
    let message = Cow::from(format!("more than {limit} bytes"));
    ServerJsonRpcMessage::error(ErrorData::new(ErrorCode(TOO_LARGE), message, None), id)
}

fn gone(why: &str, id: Option<RequestId>) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::new(ErrorCode(GONE), why.to_owned(), None), id)
}

/// Returns true if an event is the response to the request: only a response has an id and no method.
fn is_answer(data: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct ResponseShape {
        id: Option<serde::de::IgnoredAny>,
        method: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<ResponseShape>(data).is_ok_and(|shape| shape.id.is_some() && shape.method.is_none())
}
