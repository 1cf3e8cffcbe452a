//! Plain HTTP requests over the same connection, for routes without a gRPC method.

use std::future::poll_fn;
use std::pin::Pin;

use onward_core::Namespace;
use onward_runtime::RuntimeError;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{HeaderMap, Request, Uri, header};
use tonic::codegen::{Body as _, Bytes};

use super::{Channel, Trust, parse_key};
use crate::Error;

/// A client for a server's HTTP API.
#[derive(Clone)]
pub struct HttpClient {
    channel: Channel,
}

/// A response of a server; its body arrives in chunks.
pub struct HttpAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    body: Body,
}

/// Returns an HTTP client for the server at `url`, with a key as for [`crate::connect_client`]. Without a namespace, the server uses
/// that of a key for one namespace, otherwise `default`.
pub fn connect_http(url: &str, namespace: Option<&Namespace>, key: Option<&str>) -> Result<HttpClient, Error> {
    Ok(HttpClient::new(Channel::new(url, namespace, parse_key(key)?.as_ref(), &Trust::default())?))
}

impl HttpClient {
    pub(super) fn new(channel: Channel) -> HttpClient {
        HttpClient { channel }
    }

    /// Reads the namespace in which the server executes the requests of this client.
    pub async fn namespace(&self) -> Result<Namespace, Error> {
        let answer = self.request("GET", "/v1/namespace", None).await?;
        if answer.status >= 400 {
            return Err(answer.problem().await.into());
        }
        let document: serde_json::Value = serde_json::from_str(&answer.text().await?).unwrap_or_default();
        Ok(Namespace::new(document["namespace"].as_str().unwrap_or_default())?)
    }

    /// Sends a request to `path`, which begins with a slash. Any status is a response; only an unreachable server is an error.
    pub async fn request(&self, method: &str, path: &str, body: Option<String>) -> Result<HttpAnswer, Error> {
        self.request_with(method, path, body.map(|body| ("application/json", body))).await
    }

    /// Sends a request like [`HttpClient::request`], with a body of any type.
    pub async fn request_with(
        &self,
        method: &str,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<HttpAnswer, Error> {
        let wrong = |why: String| Error::ServerUrl { url: path.to_owned(), why };
        let path: PathAndQuery = path.parse().map_err(|_| wrong("it is not a path".to_owned()))?;
        let uri = Uri::builder().path_and_query(path).build().map_err(|error| wrong(error.to_string()))?;
        let mut request =
            Request::builder().method(method).uri(uri).body(Body::empty()).map_err(|error| wrong(error.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(self.channel.headers());
        if let Some((content_type, body)) = body {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
            *request.body_mut() = Body::new(body);
        }
        let (head, body) = self.channel.send(request).await?.into_parts();
        Ok(HttpAnswer { status: head.status.as_u16(), headers: head.headers, body })
    }
}

impl HttpAnswer {
    /// Returns the next chunk of the body.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RuntimeError> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match frame {
                None => return Ok(None),
                Some(Err(status)) => return Err(super::problem::from_status(&status)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the error from a response with an error status.
    pub async fn problem(self) -> RuntimeError {
        let status = self.status;
        match self.text().await {
            Ok(text) => super::problem::from_json(&text).unwrap_or_else(|| {
                super::problem::unreachable(format!(
                    "the server responded with status {status} and without a problem; is it an Onward server?"
                ))
            }),
            Err(error) => error,
        }
    }

    /// Reads the whole body.
    pub async fn text(mut self) -> Result<String, RuntimeError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}
