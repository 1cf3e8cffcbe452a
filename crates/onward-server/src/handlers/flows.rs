//! Definitions of flows (`/v1/flows`), and pictures of them and of their runs.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_SECURITY_POLICY;
use onward_core::api::{DeleteFlowRequest, FlowQuery, FlowVersion, PutFlowRequest, verb};
use onward_core::view::RunView;
use onward_core::{Name, Status};
use onward_flow::document;
use onward_flow::graph::{Graph, Taken, mermaid, svg};
use onward_flow::machine::{PROGRESS_PREFIX, Progress, ProgressState};
use onward_runtime::RuntimeError;

use super::prelude::*;
use crate::http::response::typed;

/// A picture has styles of its own and loads nothing.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

bodies! {
    struct PutFlowBody as PutFlow {
        /// The document, YAML or JSON.
        document: String,
        /// The version that must be the current one; an empty text if the flow must not exist yet.
        expected: Option<String>,
        /// Only check the document.
        #[serde(default)]
        dry_run: bool,
    }
}

fn flow_of(request: &Request) -> Result<Name, Problem> {
    Ok(Name::new(request.id.as_deref().unwrap_or_default())?)
}

/// Handles `PUT /v1/flows/{id}`: stores a document as the current version.
pub(crate) async fn put(request: Request) -> Result<Response, Problem> {
    let (flow, namespace) = (flow_of(&request)?, request.by.namespace.clone());
    let mut request = request;
    let PutFlowBody { document, expected, dry_run } = request.json().await?;
    let put = PutFlowRequest { namespace, flow, document, expected, dry_run };
    let reply = request.execute::<verb::PutFlow>(put).await?;
    let status = if reply.is_changed && !dry_run { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &reply))
}

/// Handles `GET /v1/flows`: the current versions, without documents.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let query = FlowQuery::all(request.by.namespace.clone());
    Ok(json(StatusCode::OK, &request.execute::<verb::ListFlows>(query).await?))
}

/// Handles `GET /v1/flows/{id}`: all versions with their documents, newest first.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (flow, namespace) = (flow_of(&request)?, request.by.namespace.clone());
    let found = request.execute::<verb::ListFlows>(FlowQuery { namespace, flow: Some(flow.clone()) }).await?;
    if found.flows.is_empty() {
        return Err(RuntimeError::FlowNotFound { flow }.into());
    }
    Ok(json(StatusCode::OK, &found))
}

/// Handles `DELETE /v1/flows/{id}`.
pub(crate) async fn remove(request: Request) -> Result<Response, Problem> {
    let (flow, namespace) = (flow_of(&request)?, request.by.namespace.clone());
    let force = request.query.flag("force")?;
    request.execute::<verb::DeleteFlow>(DeleteFlowRequest { namespace, flow, force }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Handles `GET /v1/flows/{id}/graph`: a picture of the flow.
pub(crate) async fn graph(request: Request) -> Result<Response, Problem> {
    let (flow, namespace, format) = (flow_of(&request)?, request.by.namespace.clone(), PictureFormat::of(&request)?);
    let version = request.query.get("version").map(Name::new).transpose()?;
    let found = request.execute::<verb::ListFlows>(FlowQuery { namespace, flow: Some(flow.clone()) }).await?;
    let wanted = found.flows.iter().find(|flow| version.as_ref().is_none_or(|version| flow.version == *version));
    let graph = wanted.and_then(graph_of).ok_or(RuntimeError::FlowNotFound { flow })?;
    Ok(format.picture(&graph, None))
}

/// Handles `GET /v1/runs/{id}/graph`: a picture of the run's flow, with what the run has done.
pub(crate) async fn run_graph(request: Request) -> Result<Response, Problem> {
    let format = PictureFormat::of(&request)?;
    let view = request.server.runtime().read_run(&request.key()?).await?;
    let (flow, namespace) = (view.head.kind.clone(), request.by.namespace.clone());
    let found = request.execute::<verb::ListFlows>(FlowQuery { namespace, flow: Some(flow.clone()) }).await?;
    let pinned = found.flows.iter().find(|flow| Some(&flow.version) == view.head.version.as_ref());
    let graph = pinned.and_then(graph_of).ok_or(RuntimeError::FlowNotFound { flow })?;
    Ok(format.picture(&graph, Some(&taken(&view))))
}

fn graph_of(flow: &FlowVersion) -> Option<Graph> {
    document::parse(flow.document.as_deref()?, flow.flow.as_str()).flow.map(|flow| Graph::of(&flow))
}

/// Returns how far a run is, from the state that its flow sets.
fn taken(view: &RunView) -> Taken {
    let mut taken = Taken { is_completed: view.head.status == Status::Completed, ..Taken::default() };
    let steps = view.state.iter().filter(|(key, _)| key.as_str().starts_with(PROGRESS_PREFIX));
    for progress in steps.filter_map(|(_, progress)| progress.read::<Progress>().ok()) {
        // The end of a failed run is not in its state.
        let has_failed = progress.state == ProgressState::Running && view.head.status == Status::Failed;
        taken.add(if has_failed { Progress { state: ProgressState::Failed, ..progress } } else { progress });
    }
    taken
}

enum PictureFormat {
    Svg,
    Mermaid,
}

impl PictureFormat {
    fn of(request: &Request) -> Result<PictureFormat, RequestError> {
        match request.query.get("format").unwrap_or("svg") {
            "svg" => Ok(PictureFormat::Svg),
            "mermaid" => Ok(PictureFormat::Mermaid),
            _ => Err(RequestError::QueryInvalid { why: "`format` must be one of svg, mermaid".to_owned() }),
        }
    }

    fn picture(self, graph: &Graph, taken: Option<&Taken>) -> Response {
        match self {
            PictureFormat::Svg => {
                let mut response = typed(StatusCode::OK, "image/svg+xml", svg(graph, taken));
                response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PICTURE_POLICY));
                response
            }
            PictureFormat::Mermaid => typed(StatusCode::OK, "text/plain; charset=utf-8", mermaid(graph)),
        }
    }
}
