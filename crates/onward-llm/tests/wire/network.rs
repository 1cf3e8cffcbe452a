//! Handwritten servers with behavior that the scripted model does not have.

use std::sync::Arc;
use std::time::Duration;

use onward_llm::{ApiFormat, CallError, Http, Key, Message, ModelRequest, Provider, ProviderSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::rustls::{self, pki_types::PrivateKeyDer};

use crate::{DIALECTS, KEY, call, provider};

const ANSWER: &str = "data: {\"id\":\"r\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn request() -> ModelRequest {
    ModelRequest::new("m", vec![Message::user("go")])
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads one request with its body; `None` if the connection has ended.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase().split("content-length: ").nth(1)?.split("\r\n").next()?.parse::<usize>().ok()?;
        if body.len() >= length {
            return Some(text.into_owned());
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), status: &str, sort: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {sort}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Returns the error of a call with this response.
async fn failure(api_format: ApiFormat, status: &'static str, body: String) -> CallError {
    let (listener, url) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        write(&mut stream, status, "text/html", &body).await;
    });
    call(&provider(api_format, &url), &request()).await.0.unwrap_err()
}

#[tokio::test]
async fn unreachable_and_unresponsive_servers_are_distinguished() {
    for api_format in DIALECTS {
        let (listener, url) = listen().await;
        let hangs_up = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
        });
        let error = call(&provider(api_format, &url), &request()).await.0.unwrap_err();
        assert_eq!(error.code(), "model_disconnected");
        assert!(error.is_retryable() && error.may_have_cost());
        hangs_up.await.unwrap();
        let error = call(&provider(api_format, &url), &request()).await.0.unwrap_err();
        assert_eq!(error.code(), "model_unreachable");
        assert!(error.is_retryable() && !error.may_have_cost());
    }
}

#[tokio::test]
async fn a_key_is_never_shown() {
    for api_format in DIALECTS {
        let error = failure(api_format, "401 Unauthorized", format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#)).await;
        assert_eq!(error.to_string(), "the provider rejected the key: status 401");
        assert_eq!(error.provider_message.as_deref(), Some("bad key [key]")); // LP2
        assert!(!error.limits_key() && !error.is_retryable());
        let provider = provider(api_format, "http://localhost");
        assert!(!format!("{provider:?} {:?}", Key::new(KEY)).contains(KEY));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, target) = listen().await;
    let (listener, url) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let head =
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}/v1/chat/completions\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
    });
    let error = call(&provider(ApiFormat::OpenAi, &url), &request()).await.0.unwrap_err();
    assert_eq!((error.code(), error.status), ("model_request_refused", Some(307)));
    let nobody = tokio::time::timeout(Duration::from_millis(50), elsewhere.accept()).await;
    assert!(nobody.is_err(), "the key went elsewhere"); // LP2
}

#[tokio::test]
async fn a_page_of_some_proxy_is_no_answer() {
    for api_format in DIALECTS {
        let error = failure(api_format, "200 OK", "<html>log in first</html>".into()).await;
        assert_eq!(error.code(), "model_answer_broken");
        assert_eq!(error.provider_message.as_deref(), Some("the response begins with: <html>log in first</html>"));
        let error = failure(api_format, "200 OK", String::new()).await;
        assert_eq!(error.code(), "empty_model_response");
        let error = failure(api_format, "502 Bad Gateway", "<html>".repeat(100_000)).await;
        assert_eq!(error.code(), "model_failed");
        assert!(error.provider_message.unwrap_or_default().len() < 3_000); // LP3
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_request() {
    let (listener, url) = listen().await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let ended = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        begun.send(()).unwrap();
        read_request(&mut stream).await.is_none()
    });
    let (provider, request) = (provider(ApiFormat::OpenAi, &url), request());
    tokio::select! {
        (outcome, _) = call(&provider, &request) => panic!("nothing was answered: {outcome:?}"),
        begun = has_begun => begun.unwrap(),
    }
    assert!(ended.await.unwrap(), "the server saw the end of the connection");
}

#[tokio::test]
async fn connections_are_used_again() {
    let (listener, url) = listen().await;
    let (connections, mut connected) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.send(()).unwrap();
            tokio::spawn(async move {
                while read_request(&mut stream).await.is_some() {
                    write(&mut stream, "200 OK", "text/event-stream", ANSWER).await;
                }
            });
        }
    });
    let provider = provider(ApiFormat::OpenAi, &url);
    for _ in 0..6 {
        assert_eq!(call(&provider, &request()).await.0.unwrap().text(), "hi");
    }
    let mut count = 0;
    while connected.try_recv().is_ok() {
        count += 1;
    }
    assert!(count <= 2, "{count} connections for six calls"); // the second call may come before the first is read to its end
}

#[tokio::test]
async fn a_server_is_believed_for_its_certificate() {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            read_request(&mut stream).await;
            write(&mut stream, "200 OK", "text/event-stream", ANSWER).await;
        }
    });
    let settings = ProviderSettings::new(ApiFormat::OpenAi, &url);
    let trusting = Provider::new("p", &settings, None, &Http::trusting([authority.der().clone()])).unwrap();
    assert_eq!(call(&trusting, &request()).await.0.unwrap().text(), "hi");
    let wary = Provider::new("p", &settings, None, &Http::trusting([])).unwrap();
    let error = call(&wary, &request()).await.0.unwrap_err();
    assert_eq!(error.code(), "model_unreachable");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}
