//! Router made from the table of routes, with the steps around every handler: scope, namespace, query, metrics and log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams, Request as HttpRequest};
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use onward_core::{ErrorCode, Name, RunId, RunKey};
use onward_runtime::{CallRef, RuntimeError};
use onward_store::StoreError;

use crate::auth::bounds;
use crate::auth::{self, AuthRefusal, Caller, Pass, Scope};
use crate::http::middleware;
use crate::http::problem::{Problem, RequestError, ResponseCode};
use crate::http::request::{self, Query, Request};
use crate::http::routes::{ROUTES, Route};
use crate::serve::RequestTrust;
use crate::server::Server;
use crate::trace::Level;
use crate::verbs::Principal;

/// The largest number of characters of an unknown path that an error repeats.
const PATH_SHOWN_MAX: usize = 200;

/// Returns the HTTP API.
pub fn router(server: Server) -> Router {
    router_with(server, Router::new())
}

/// Returns the HTTP API together with `others` on the same port, such as gRPC services. They pass the same middleware and check
/// their own scopes with [`crate::Authenticate`].
pub fn router_with(server: Server, others: Router) -> Router {
    let mut paths: BTreeMap<&str, MethodRouter> = BTreeMap::new();
    for route in ROUTES {
        let server = server.clone();
        let handler = move |request: HttpRequest| answer(server.clone(), route, request);
        let methods = paths.remove(route.path).unwrap_or_default();
        let method = MethodFilter::try_from(route.method.clone()).expect("the table has methods that axum routes");
        paths.insert(route.path, methods.on(method, handler));
    }
    let mut router = Router::new();
    for (path, methods) in paths {
        router = router.route(path, methods);
    }
    let (nowhere, nohow) = (server.clone(), server.clone());
    // The fallback comes last: that of `others` would answer unknown paths with success.
    router
        .merge(others)
        .method_not_allowed_fallback(move |request: HttpRequest| refuse(nohow.clone(), request, true))
        .fallback(move |request: HttpRequest| refuse(nowhere.clone(), request, false))
        .layer(axum::middleware::from_fn_with_state(server, middleware::watch))
}

async fn refuse(server: Server, request: HttpRequest, path_known: bool) -> Response {
    let method = request.method().as_str();
    let shown = method.chars().take(20).collect();
    let error = match path_known {
        true => RequestError::MethodNotAllowed { method: shown },
        false => RequestError::RouteNotFound { method: shown, path: request.uri().path().chars().take(PATH_SHOWN_MAX).collect() },
    };
    let problem = Problem::from(error);
    server.metrics().request(method, "none", problem.status.as_u16());
    problem.into_response()
}

async fn answer(server: Server, route: &'static Route, request: HttpRequest) -> Response {
    let begun = Instant::now();
    let (mut parts, body) = request.into_parts();
    let ids = path_ids(&mut parts).await;
    let shown = ids.as_ref().ok().and_then(|(id, _)| id.clone());
    let trust = parts.extensions.remove::<RequestTrust>();
    // Unauthenticated until the credential is checked (SV1).
    trust.iter().for_each(|trust| trust.set_authenticated(false));
    let (method, headers) = (parts.method.clone(), Arc::new(parts.headers));
    let prepared = prepare(&server, route, &headers, shown.as_deref(), parts.uri.query()).await;
    let mut by = None;
    let result = match prepared.and_then(|prepared| Ok((prepared, ids?))) {
        Err(problem) => Err(problem),
        Ok(((principal, query), (id, index))) => {
            by = principal.caller.name.clone();
            let pass = principal.pass.clone();
            if pass.is_some() {
                trust.iter().for_each(|trust| trust.set_authenticated(true));
            }
            let served = server.clone();
            let request = Request { server: served, by: principal, trust, headers, query, id, index, body, memory: None };
            let handled = async {
                if let Some((scope, run)) = acts_on(route, &request)? {
                    let (server, caller) = (request.server.clone(), request.by.caller.clone());
                    bounds::check_run(&server, scope, &caller, &run).await?;
                }
                (route.handler)(request).await
            };
            tokio::select! {
                biased;
                result = handled => result,
                problem = auth::ended(pass.as_ref(), &server) => Err(problem),
            }
        }
    };
    let response = result.unwrap_or_else(Problem::into_response);
    let status = response.status().as_u16();
    server.metrics().request(method.as_str(), route.path, status);
    let level = match status {
        500.. => Level::Error,
        _ if method.is_safe() => Level::Debug,
        _ => Level::Info,
    };
    let code = response.extensions().get::<ResponseCode>().map_or("-", |response_code| response_code.0);
    let (id, took) =
        (shown.or_else(|| made(&response)).unwrap_or_default(), format!("{:.1}", begun.elapsed().as_secs_f64() * 1_000.0));
    let by = by.unwrap_or_else(|| "-".to_owned());
    let fields: [(&str, &dyn std::fmt::Display); 7] = [
        ("method", &method),
        ("route", &route.path),
        ("id", &id),
        ("by", &by),
        ("status", &status),
        ("code", &code),
        ("ms", &took),
    ];
    server.trace().log(level, "request", &fields);
    response
}

/// Checks everything that does not need the body. The credential comes first, so that an unauthorized caller learns nothing else.
async fn prepare(
    server: &Server,
    route: &Route,
    headers: &Arc<axum::http::HeaderMap>,
    id: Option<&str>,
    query: Option<&str>,
) -> Result<(Principal, Query), Problem> {
    let namespace = request::namespace(server, headers)?;
    let (pass, caller) = match route.scope {
        Some(scope) => {
            let begun = Pass::begin(server, scope, &namespace, route.server_wide, headers).await;
            let (pass, caller) = begun.map_err(|refusal| refused(route, id, refusal))?;
            (Some(pass), caller)
        }
        None => (None, Caller::default()),
    };
    Ok((Principal { namespace, caller, pass }, Query::parse(query, route.query)?))
}

/// Returns the scope and the run that the path names, if the caller's key is bound to kinds (BK1). A run that the body names is
/// checked where the body is read.
fn acts_on(route: &Route, request: &Request) -> Result<Option<(Scope, RunKey)>, Problem> {
    let Some(scope) = route.scope.filter(|scope| *scope != Scope::Read) else { return Ok(None) };
    let bounds = &request.by.caller.bounds;
    if bounds.is_none() || request.id.is_none() {
        return Ok(None);
    }
    let run = match route.path.split('/').nth(2) {
        Some("agents") if route.path.ends_with("/ag-ui") => {
            bounds.check_kind(&Name::new(request.id.as_deref().unwrap_or_default())?)?;
            return Ok(None);
        }
        // A flow is a kind.
        Some("flows") => {
            bounds.check_kind(&Name::new(request.id.as_deref().unwrap_or_default())?)?;
            return Ok(None);
        }
        // The kind is that of the runs: checked with the verb.
        Some("schedules") => return Ok(None),
        Some("runs" | "drive" | "agents") => request.key()?,
        Some("tasks") if !route.path.ends_with("/retry") => request.key()?,
        Some("promises") if route.path.contains("/by-key/") => return Ok(None), // checked when the promise is found
        Some("tasks" | "approvals" | "promises") => request.call()?.run,
        Some("workers") => return Ok(None), // kinds are checked in hello
        // An external engine may give its run any kind and queue.
        _ => return Err(AuthRefusal::EveryKind.into()),
    };
    Ok(Some((scope, run)))
}

/// Converts a refusal to a problem: for an id in a namespace that the caller may not use, the response is "not found" (S6).
fn refused(route: &Route, id: Option<&str>, refusal: AuthRefusal) -> Problem {
    let (AuthRefusal::Namespace { namespace }, Some(id)) = (&refusal, id) else { return refusal.into() };
    let run = match route.path.split('/').nth(2) {
        Some("agents") if route.path.ends_with("/ag-ui") => return RequestError::KindNotFound { kind: id.to_owned() }.into(),
        Some("runs" | "drive" | "external" | "agents") => {
            RunId::new(id).map(|id| RunKey::new(namespace.clone(), id)).map_err(RuntimeError::from)
        }
        Some("tasks") => {
            let key = RunId::new(id).map(|id| RunKey::new(namespace.clone(), id));
            return key.map_or_else(Problem::from, |key| RuntimeError::TaskNotFound { key }.into());
        }
        Some("flows") => {
            return Name::new(id).map_or_else(Problem::from, |flow| RuntimeError::FlowNotFound { flow }.into());
        }
        Some("schedules") => {
            return Name::new(id).map_or_else(Problem::from, |schedule| RuntimeError::ScheduleNotFound { schedule }.into());
        }
        Some("kinds") => return RequestError::KindNotFound { kind: id.to_owned() }.into(),
        Some("promises") if route.path.contains("/by-key/") => {
            return RuntimeError::PromiseKeyNotFound { key: id.to_owned() }.into();
        }
        Some("approvals" | "promises") => CallRef::parse(namespace, id).map(|call| call.run),
        _ => return refusal.into(),
    };
    run.map_or_else(Problem::from, |key| RuntimeError::from(StoreError::RunNotFound { key }).into())
}

/// Returns the id of what the request created: the last segment of the Location header.
fn made(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let id = location.rsplit('/').next()?;
    // The id has no plain `+`, only `%2B`, so a form decoder reads it correctly.
    form_urlencoded::parse(id.as_bytes()).next().map(|(id, _)| id.into_owned())
}

/// Returns the percent-decoded values of `{id}` and `{index}`.
async fn path_ids(parts: &mut Parts) -> Result<(Option<String>, Option<String>), Problem> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|_| Problem::new(ErrorCode::NameInvalid, "an id in the path is not UTF-8".to_owned(), None))?;
    let mut params = params.iter().map(|(_, value)| value.to_owned());
    Ok((params.next(), params.next()))
}
