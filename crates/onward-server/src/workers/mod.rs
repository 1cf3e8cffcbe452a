//! Remote workers: one session each, which outlives its connections.
//!
//! For the runtime a session is a worker like one inside the process. Frames from a connection go to the session; frames for the
//! worker wait in a queue until a connection sends them. A worker that reconnects within its lease continues its work. Makes no
//! decisions about runs, and never waits for a worker: if the queue grows too long, the connection is closed.

mod drive;
mod kinds;
mod poll;
mod session;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use onward_core::{Namespace, Timestamp, WorkerId};
use onward_runtime::{Runtime, RuntimeError, WorkerInfo};
use onward_wire::worker::Hello;

pub(crate) use drive::{ClaimPurpose, ClaimResult};
use poll::Polled;
pub(crate) use poll::frames;
pub(crate) use session::Connection;
use session::{NotServed, Session};

use crate::Problem;
use crate::http::problem::RequestError;
use crate::verbs::Principal;

/// Sessions of one server.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Connections of workers that poll over HTTP.
    polled: Mutex<HashMap<SessionKey, Polled>>,
}

/// The worker of a session: the same id in another namespace or with another credential is another worker (Q9).
#[derive(Clone, PartialEq, Eq, Hash)]
struct SessionKey {
    namespace: Namespace,
    worker: WorkerId,
    credential: Option<String>,
}

impl SessionKey {
    fn new(by: &Principal, worker: &WorkerId) -> SessionKey {
        SessionKey { namespace: by.namespace.clone(), worker: worker.clone(), credential: by.caller.credential.clone() }
    }
}

/// Stops all sessions, which would otherwise keep the runtime alive.
impl Drop for Sessions {
    fn drop(&mut self) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        for session in all.values() {
            session.stop();
        }
    }
}

impl Sessions {
    /// Connects a worker to a new session or to its existing one.
    pub fn greet(&self, runtime: &Runtime, by: &Principal, hello: Hello) -> Result<Connection, Problem> {
        if hello.protocol != onward_wire::PROTOCOL {
            return Err(RequestError::ProtocolUnsupported { theirs: hello.protocol, ours: onward_wire::PROTOCOL }.into());
        }
        by.caller.bounds.check_hello(&hello)?;
        loop {
            match self.session(runtime, by, &hello)?.connect(&hello, by.caller.bounds.clone()) {
                Ok(connection) => return Ok(connection),
                Err(NotServed::Over) => {} // it has just ended: begin a new session
                Err(NotServed::Overtaken) => {
                    return Err(RequestError::HelloOvertaken { worker: hello.worker.to_string() }.into());
                }
            }
        }
    }

    /// Returns the session of a worker, unless it is over.
    fn find(&self, key: &SessionKey) -> Option<Arc<Session>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).filter(|session| !session.is_over()).cloned()
    }

    /// Returns the workers of a namespace at all servers, with the ids that they chose; the ids in the store are longer. A worker
    /// that has changed servers is listed with the latest heartbeat.
    pub async fn list(&self, runtime: &Runtime, namespace: &Namespace) -> Result<Vec<WorkerInfo>, RuntimeError> {
        let mut workers = runtime.list_workers(namespace);
        let names = self.names();
        for worker in &mut workers {
            if let Some(name) = names.get(&worker.id) {
                worker.id = name.clone();
            }
        }
        workers.extend(runtime.workers_elsewhere(namespace).await?);
        // Workers inside the process have no heartbeat and count as present.
        let silent_since = |worker: &WorkerInfo| worker.last_seen_at.unwrap_or(Timestamp(u64::MAX));
        workers.sort_by(|one, other| one.id.cmp(&other.id).then(silent_since(other).cmp(&silent_since(one))));
        workers.dedup_by(|later, first| later.id == first.id);
        Ok(workers)
    }

    /// Returns the id that each worker chose, by its id in the store.
    pub fn names(&self) -> HashMap<WorkerId, WorkerId> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(key, session)| (session.local().id().clone(), key.worker.clone())).collect()
    }

    fn session(&self, runtime: &Runtime, by: &Principal, hello: &Hello) -> Result<Arc<Session>, Problem> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| !session.is_over());
        let key = SessionKey::new(by, &hello.worker);
        if let Some(session) = all.get(&key) {
            return Ok(session.clone());
        }
        let session = Session::begin(runtime, by, hello)?;
        all.insert(key, session.clone());
        Ok(session)
    }
}
