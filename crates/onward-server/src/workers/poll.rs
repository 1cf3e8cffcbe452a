//! The same frames over HTTP: `POST /v1/workers/{id}/frames`, for languages without gRPC.
//!
//! A hello opens a connection; later requests bring frames to it and take what there is, waiting for a while if there is nothing. An
//! answer that is lost is a lost connection: the worker says hello again.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{Namespace, WorkerId};
use onward_runtime::Runtime;
use onward_wire::worker::{Goodbye, Hello, ServerFrame, WorkerFrame};
use serde::{Deserialize, Serialize};

use super::{Connection, Sessions};
use crate::answer::json;
use crate::problem::{Problem, RequestError};
use crate::request::Request;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Brought {
    frames: Vec<WorkerFrame>,
}

#[derive(Serialize)]
struct Taken {
    frames: Vec<ServerFrame>,
}

pub(crate) async fn frames(mut request: Request) -> Result<Response, Problem> {
    let worker = WorkerId::new(request.id.as_deref().unwrap_or_default())?;
    let wait = request.query.wait(Duration::ZERO)?;
    let mut brought = request.json::<Brought>().await?.frames.into_iter().peekable();
    let (server, sessions) = (&request.server, request.server.sessions());
    let connection = match brought.next_if(|frame| matches!(frame, WorkerFrame::Hello(_))) {
        Some(WorkerFrame::Hello(hello)) if hello.worker == worker => {
            sessions.register(server.runtime(), &request.namespace, &hello).await?;
            sessions.open_polled(server.runtime(), &request.namespace, hello)?
        }
        Some(_) => return Err(RequestError::JsonInvalid { why: "hello names another worker than the path".to_owned() }.into()),
        None => sessions.polled(&request.namespace, &worker)?,
    };
    brought.for_each(|frame| connection.handle(frame));
    let taken = tokio::select! {
        biased;
        taken = tokio::time::timeout(wait, connection.next()) => taken,
        () = server.closed() => Ok(Some(vec![ServerFrame::Goodbye(Goodbye {})])),
    };
    match taken {
        Ok(Some(frames)) => Ok(json(StatusCode::OK, &Taken { frames })),
        Ok(None) => {
            sessions.close_polled(&request.namespace, &worker, &connection);
            Err(RequestError::HelloMissing { worker: worker.to_string() }.into())
        }
        Err(_) => Ok(json(StatusCode::OK, &Taken { frames: Vec::new() })),
    }
}

impl Sessions {
    pub(super) fn open_polled(&self, runtime: &Runtime, namespace: &Namespace, hello: Hello) -> Result<Arc<Connection>, Problem> {
        let key = (namespace.clone(), hello.worker.clone());
        let connection = Arc::new(self.greet(runtime, namespace, hello)?);
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        polled.retain(|_, connection| !connection.is_over());
        let before = polled.insert(key, connection.clone());
        drop(polled);
        drop(before); // outside of the lock: it is no longer served
        Ok(connection)
    }

    fn polled(&self, namespace: &Namespace, worker: &WorkerId) -> Result<Arc<Connection>, RequestError> {
        let polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        let known = polled.get(&(namespace.clone(), worker.clone())).cloned();
        known.ok_or_else(|| RequestError::HelloMissing { worker: worker.to_string() })
    }

    pub(super) fn close_polled(&self, namespace: &Namespace, worker: &WorkerId, connection: &Arc<Connection>) {
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.clone(), worker.clone());
        if polled.get(&key).is_some_and(|known| Arc::ptr_eq(known, connection)) {
            polled.remove(&key);
        }
    }
}
