//! Claims of single runs by workers: drive and resume.

use std::sync::Arc;

use onward_core::{RunHead, RunKey, WorkerId};
use onward_runtime::{DriveInput, NotResumed, Resumed, RuntimeError, WorkerConnection};
use onward_store::{Appended, ClaimedOne, StoreError};
use onward_wire::worker::{Hello, ServerFrame};

use super::session::Session;
use super::{SessionKey, Sessions};
use crate::Problem;
use crate::http::problem::RequestError;
use crate::server::Server;
use crate::verbs::Principal;

/// Result of a claim.
pub(crate) struct ClaimResult {
    pub head: RunHead,
    /// The run is being sent to the worker.
    pub is_given: bool,
    pub appended: Option<Appended>,
    /// Reason why an agent was not resumed.
    pub why: Option<NotResumed>,
}

/// Purpose of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimPurpose {
    /// Fails if another worker holds the run.
    ToDrive,
    /// Reports it as a result if another worker holds the run.
    ToResume,
}

impl Sessions {
    /// Returns the session of a worker that has a connection and belongs to the caller (Q9).
    pub fn connected(&self, by: &Principal, worker: &WorkerId) -> Result<Arc<Session>, RequestError> {
        let session = self.find(&SessionKey::new(by, worker)).filter(|session| session.is_served());
        session.ok_or_else(|| RequestError::HelloMissing { worker: worker.to_string() })
    }

    /// Creates a worker session for one run and claims the run for it. If there is nothing to do or another worker holds the run,
    /// the session ends; otherwise returns the first frames of its connection.
    pub async fn drive_polled(
        &self,
        server: &Server,
        by: &Principal,
        worker: WorkerId,
        run: &RunKey,
        (purpose, delivery): (ClaimPurpose, DriveInput),
    ) -> Result<(ClaimResult, Vec<ServerFrame>), Problem> {
        let key = SessionKey::new(by, &worker);
        let connection = self.open_polled(server, by, hello(worker))?;
        let driven = match self.find(&key) {
            Some(session) => session.take_up(run, purpose, delivery).await,
            None => Err(RuntimeError::from(StoreError::Unavailable { why: "the server is closing".to_owned() })),
        };
        let frames = match &driven {
            Ok(ClaimResult { is_given: true, .. }) => connection.next().await,
            _ => None,
        };
        if frames.is_none() {
            connection.end().await;
            self.close_polled(&key, &connection);
        }
        Ok((driven?, frames.unwrap_or_default()))
    }
}

/// Returns the hello of a worker that offers no kinds.
fn hello(worker: WorkerId) -> Hello {
    Hello {
        protocol: onward_wire::PROTOCOL,
        worker,
        kinds: Vec::new(),
        task_kinds: Vec::new(),
        queues: Vec::new(),
        runs_max: 1,
        runs: Vec::new(),
        tasks: Vec::new(),
        sdk: "drive".to_owned(),
        connection: 1,
        task_schemas: Vec::new(),
        task_limits: Vec::new(),
        received: None,
        reports_steps: false,
        dropped: Vec::new(),
    }
}

impl Session {
    /// Claims a run for the worker and gives it to the worker; no credit is needed for it (Q1).
    pub async fn take_up(
        self: &Arc<Session>,
        run: &RunKey,
        purpose: ClaimPurpose,
        delivery: DriveInput,
    ) -> Result<ClaimResult, RuntimeError> {
        let (head, appended, claimed, why) = match purpose {
            ClaimPurpose::ToDrive => {
                let ClaimedOne { appended, head, claimed } = self.local().claim_run(run.clone(), delivery).await?;
                (head, appended, claimed, None)
            }
            ClaimPurpose::ToResume => {
                let Resumed { head, appended, claimed } = self.local().resume_agent(run, delivery).await?;
                let why = claimed.as_ref().err().copied();
                (head, appended, claimed.ok(), why)
            }
        };
        let is_given = claimed.is_some();
        if let Some(claimed) = claimed {
            self.give_run(claimed, 0).await;
        }
        Ok(ClaimResult { head, is_given, appended, why })
    }
}
