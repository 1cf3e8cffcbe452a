//! Worker protocol over HTTP: `POST /v1/workers/{id}/frames`, for languages without gRPC.
//!
//! A hello opens a connection; later requests send frames and receive the ones that are ready, with an optional wait. A lost
//! response is a lost connection: the worker sends hello again.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use onward_core::{ErrorCode, WorkerId};
use onward_wire::worker::{Goodbye, Hello, ServerFrame, ServerFrames, WorkerFrame};

use super::{Connection, SessionKey, Sessions};
use crate::auth::{AuthRefusal, PASS_PAUSE, Pass};
use crate::handlers::prelude::*;
use crate::server::Server;
use crate::verbs::Principal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PollRequest {
    frames: Vec<WorkerFrame>,
}

/// Connection of a worker that polls, with the credential of its latest request.
pub(super) struct Polled {
    connection: Arc<Connection>,
    pass: Option<Pass>,
}

pub(crate) async fn frames(mut request: Request) -> Result<Response, Problem> {
    let worker = WorkerId::new(request.id.as_deref().unwrap_or_default())?;
    let wait = request.query.wait(Duration::ZERO)?;
    let brought: PollRequest = request.json().await.map_err(hint_at_protocol)?;
    let mut brought = brought.frames.into_iter().peekable();
    let (server, sessions, by) = (&request.server, request.server.sessions(), request.by.clone());
    let connection = match brought.next_if(|frame| matches!(frame, WorkerFrame::Hello(_))) {
        Some(WorkerFrame::Hello(hello)) if hello.worker == worker => {
            sessions.register(server.runtime(), &by, &hello).await?;
            sessions.open_polled(server, &by, hello)?
        }
        Some(_) => {
            let why = "hello names another worker than the path".to_owned();
            return Err(hint_at_protocol(RequestError::JsonInvalid { why }.into()));
        }
        None => sessions.polled(&by, &worker)?,
    };
    brought.for_each(|frame| connection.handle(frame));
    let taken = tokio::select! {
        biased;
        taken = tokio::time::timeout(wait, connection.next()) => taken,
        () = server.closed() => Ok(Some(vec![ServerFrame::Goodbye(Goodbye {})])),
    };
    match taken {
        Ok(Some(frames)) => Ok(json(StatusCode::OK, &ServerFrames { frames })),
        Ok(None) => {
            sessions.close_polled(&SessionKey::new(&by, &worker), &connection);
            Err(RequestError::HelloMissing { worker: worker.to_string() }.into())
        }
        Err(_) => Ok(json(StatusCode::OK, &ServerFrames { frames: Vec::new() })),
    }
}

/// Replaces the hint: frames are described in a document of their own.
fn hint_at_protocol(problem: Problem) -> Problem {
    if problem.code == ErrorCode::JsonInvalid {
        return Problem { hint: Some("see docs/protocol.md for the frames of workers"), ..problem };
    }
    problem
}

impl Sessions {
    pub(super) fn open_polled(&self, server: &Server, by: &Principal, hello: Hello) -> Result<Arc<Connection>, Problem> {
        let key = SessionKey::new(by, &hello.worker);
        let connection = Arc::new(self.greet(server.runtime(), by, hello)?);
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        polled.retain(|_, polled| !polled.connection.is_over());
        let before = polled.insert(key.clone(), Polled { connection: connection.clone(), pass: by.pass.clone() });
        drop(polled);
        drop(before); // dropped outside of the lock
        if by.pass.is_some() {
            tokio::spawn(watch_pass(server.clone(), key, Arc::downgrade(&connection)));
        }
        Ok(connection)
    }

    fn polled(&self, by: &Principal, worker: &WorkerId) -> Result<Arc<Connection>, RequestError> {
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        let known = polled.get_mut(&SessionKey::new(by, worker)); // Q9
        let known = known.ok_or_else(|| RequestError::HelloMissing { worker: worker.to_string() })?;
        known.pass = by.pass.clone(); // its key may have been rotated
        known.connection.set_bounds(by.caller.bounds.clone());
        Ok(known.connection.clone())
    }

    /// Returns the credential of the connection's latest request; `None` if the connection is over or was replaced.
    fn pass_of(&self, key: &SessionKey, connection: &Arc<Connection>) -> Option<Pass> {
        let polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        let current = polled.get(key).filter(|polled| Arc::ptr_eq(&polled.connection, connection));
        current.filter(|polled| !polled.connection.is_over())?.pass.clone()
    }

    pub(super) fn close_polled(&self, key: &SessionKey, connection: &Arc<Connection>) {
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        if polled.get(key).is_some_and(|known| Arc::ptr_eq(&known.connection, connection)) {
            polled.remove(key);
        }
    }
}

/// Ends the session of a worker whose key is no longer valid (G3), like the end of its stream: other workers get its work at
/// once. A refused request must not do this, because anyone can send one.
async fn watch_pass(server: Server, key: SessionKey, connection: Weak<Connection>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(PASS_PAUSE) => {}
            () = server.closed() => return,
        }
        let Some(connection) = connection.upgrade() else { return };
        let Some(pass) = server.sessions().pass_of(&key, &connection) else { return };
        match pass.check(&server).await {
            // An unreadable key file may be readable again soon.
            Ok(_) | Err(AuthRefusal::Unavailable { .. }) => {}
            Err(_) => {
                connection.end().await;
                return server.sessions().close_polled(&key, &connection);
            }
        }
    }
}
