//! Workers in other processes: one session each, which outlives its connections.
//!
//! A session is a member of the runtime like a worker inside the process; what a connection sends is handed to it, what it has for the
//! worker waits in a queue that a connection empties. A worker that comes back within its lease goes on where it was.
//! Must never decide about a run, and never wait for a worker: a queue that grows too long ends the connection.

mod drive;
mod inbox;
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

pub(crate) use drive::Asked;
use poll::Polled;
pub(crate) use poll::frames;
pub(crate) use session::Connection;
use session::{NotServed, Session};

use crate::Problem;
use crate::auth::Caller;
use crate::http::problem::RequestError;

/// The sessions of one server.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<(Namespace, WorkerId), Arc<Session>>>,
    /// The connections of workers that come with requests instead of a stream.
    polled: Mutex<HashMap<(Namespace, WorkerId), Polled>>,
}

/// Sessions end with their server. They keep the runtime alive, and what they wait for may never come.
impl Drop for Sessions {
    fn drop(&mut self) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        for session in all.values() {
            session.stop();
        }
    }
}

impl Sessions {
    /// Takes a worker in, or takes it back.
    pub fn greet(&self, runtime: &Runtime, namespace: &Namespace, caller: &Caller, hello: Hello) -> Result<Connection, Problem> {
        if hello.protocol != onward_wire::PROTOCOL {
            return Err(RequestError::ProtocolUnsupported { theirs: hello.protocol, ours: onward_wire::PROTOCOL }.into());
        }
        caller.bounds.check_hello(&hello)?;
        loop {
            match self.session(runtime, namespace, caller, &hello)?.connect(&hello) {
                Ok(connection) => return Ok(connection),
                Err(NotServed::Over) => {} // it ended just now: the worker begins anew
                Err(NotServed::Overtaken) => {
                    return Err(RequestError::HelloOvertaken { worker: hello.worker.to_string() }.into());
                }
            }
        }
    }

    /// Whether the worker has a session that is not over.
    fn knows(&self, namespace: &Namespace, worker: &WorkerId) -> bool {
        self.find(namespace, worker).is_some()
    }

    fn find(&self, namespace: &Namespace, worker: &WorkerId) -> Option<Arc<Session>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(namespace.clone(), worker.clone())).filter(|session| !session.is_over()).cloned()
    }

    /// The workers of a namespace at all servers, under the names they gave themselves. The store knows them by longer ones, which mean
    /// nothing outside. One that has changed servers is where it was heard of last.
    pub async fn list(&self, runtime: &Runtime, namespace: &Namespace) -> Result<Vec<WorkerInfo>, RuntimeError> {
        let mut workers = runtime.list_workers(namespace);
        let names = self.names();
        for worker in &mut workers {
            if let Some(name) = names.get(&worker.id) {
                worker.id = name.clone();
            }
        }
        workers.extend(runtime.workers_elsewhere(namespace).await?);
        // One inside of a process is never silent.
        let silent_since = |worker: &WorkerInfo| worker.heard_at.unwrap_or(Timestamp(u64::MAX));
        workers.sort_by(|one, other| one.id.cmp(&other.id).then(silent_since(other).cmp(&silent_since(one))));
        workers.dedup_by(|later, first| later.id == first.id);
        Ok(workers)
    }

    /// What each worker calls itself, by the id that the store knows it by.
    pub fn names(&self) -> HashMap<WorkerId, WorkerId> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|((_, name), session)| (session.port().id().clone(), name.clone())).collect()
    }

    fn session(&self, runtime: &Runtime, namespace: &Namespace, caller: &Caller, hello: &Hello) -> Result<Arc<Session>, Problem> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| !session.is_over());
        let key = (namespace.clone(), hello.worker.clone());
        if let Some(session) = all.get(&key) {
            session.check_owner(caller, &hello.worker)?;
            return Ok(session.clone());
        }
        let session = Session::begin(runtime, namespace.clone(), caller, hello)?;
        all.insert(key, session.clone());
        Ok(session)
    }
}
