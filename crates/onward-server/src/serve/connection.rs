//! Serving of one connection: protocol, timeouts, shutdown.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::ConnectionSlots;
use super::activity::{Activity, Answering};
use super::write_timeout::WriteTimeoutStream;
use crate::http::limits::Limits;
use crate::server::Server;
use crate::trace::Level;

/// Time limit for the graceful shutdown of an idle connection.
const GOODBYE: Duration = Duration::from_millis(500);

/// Interval of HTTP/2 pings, and time to wait for the reply.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves one connection until it ends.
pub(super) async fn serve(server: Server, stream: TcpStream, router: Router, slots: Arc<ConnectionSlots>) {
    let _counted = server.metrics().connections.hold();
    let stream = WriteTimeoutStream::new(stream, server.limits().write_timeout);
    match server.options().tls.clone() {
        None => serve_stream(server, stream, router, slots).await,
        Some(tls) => {
            let greeted = greet(&server, tls.acceptor().accept(stream), &slots).await;
            match greeted {
                Some(Ok(stream)) => serve_stream(server, stream, router, slots).await,
                Some(Err(error)) => {
                    server.metrics().tls_refused.add(1);
                    server.trace().log(Level::Debug, "TLS handshake failed", &[("error", &error)]);
                }
                None => server.metrics().tls_refused.add(1),
            }
        }
    }
}

/// Waits for the TLS handshake, at most the header timeout. A connection in its handshake can be closed like an idle one (S25).
async fn greet<T>(server: &Server, handshake: impl Future<Output = T>, slots: &ConnectionSlots) -> Option<T> {
    tokio::select! {
        greeted = handshake => Some(greeted),
        () = tokio::time::sleep(server.limits().header_timeout) => None,
        () = slots.close_one.notified() => None,
        () = server.closed() => None,
    }
}

async fn serve_stream<S>(server: Server, stream: S, router: Router, slots: Arc<ConnectionSlots>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = server.limits();
    let activity = Activity::new();
    let service = service(router, activity.clone());
    let builder = protocol(limits);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        let deadline = idle_deadline(&activity, limits);
        let (is_idle, may_close) = (deadline.is_some(), activity.may_close());
        tokio::select! {
            // An error needs no handling: the connection is gone.
            _ = connection.as_mut() => return,
            () = activity.changed() => {}
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if is_idle => break,
            // Only connections that are idle or unauthenticated wait here, so the one that has waited longest is closed first
            // (S25).
            () = slots.close_one.notified(), if may_close => break,
            () = server.closed() => {
                connection.as_mut().graceful_shutdown();
                drop(connection.await);
                return;
            }
        }
    }
    // Unauthenticated requests are aborted: another connection needs the slot now.
    if activity.idle_since().is_some() {
        connection.as_mut().graceful_shutdown();
        drop(tokio::time::timeout(GOODBYE, connection).await);
    }
}

/// Returns when the idle timeout of the connection expires; `None` while a request is open.
fn idle_deadline(activity: &Activity, limits: &Limits) -> Option<Instant> {
    let timeout = if activity.is_fresh() { limits.header_timeout } else { limits.idle_timeout };
    activity.idle_since().map(|since| since + timeout)
}

fn service(
    router: Router,
    activity: Arc<Activity>,
) -> impl Service<Request<Incoming>, Response = Response<Answering>, Error = std::convert::Infallible, Future: Send + 'static> + Clone
{
    let router = TowerToHyperService::new(router);
    service_fn(move |mut request: Request<Incoming>| {
        let open_request = activity.begin();
        request.extensions_mut().insert(open_request.trust());
        let answer = router.call(request);
        async move {
            let response = answer.await?;
            Ok(response.map(|body| Answering { body, _open_request: open_request }))
        }
    })
}

fn protocol(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.headers_max)
        .max_buf_size(limits.header_bytes_max.max(8 * 1024));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams_max)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
