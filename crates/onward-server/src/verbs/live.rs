//! Live views for callers of both APIs: which runs they may watch, and what they are shown.
//!
//! Invariant LC1: a caller without the scope `operate` is shown no internal value and no diagnosis (DG1).

use onward_core::RunKey;
use onward_core::api::{Emitted, WatchRequest};
use onward_core::live::{Audience, LiveContent, LiveFrame};
use onward_runtime::{RunUpdates, RuntimeError};
use onward_store::StoreError;

use super::Principal;
use crate::auth::{Scope, bounds};
use crate::http::diagnosis;
use crate::http::problem::Problem;
use crate::server::Server;

/// The frames of a run for one caller.
pub(crate) struct LiveView {
    server: Server,
    by: Principal,
    updates: RunUpdates,
    /// A frame that is not checked yet.
    unchecked: Option<LiveFrame>,
}

impl LiveView {
    /// Opens a live view. A run of another namespace is not found (S6); one of a kind that the key is not for is refused.
    pub async fn open(server: &Server, by: &Principal, request: WatchRequest) -> Result<LiveView, Problem> {
        let key = &request.run;
        if key.namespace != by.namespace {
            return Err(RuntimeError::from(StoreError::RunNotFound { key: key.clone() }).into());
        }
        bounds::check_live(server, &by.caller, key).await?;
        if let Some(generation) = request.generation {
            bounds::check_generation(server, &by.caller, key, generation).await?;
        }
        let updates = server.runtime().watch_updates(request).await?;
        Ok(LiveView { server: server.clone(), by: by.clone(), updates, unchecked: None })
    }

    /// Returns the next frame that the caller may see; `None` after the last one. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<LiveFrame>, Problem> {
        loop {
            if self.unchecked.is_none() {
                self.unchecked = self.updates.next().await?;
            }
            let Some(frame) = &mut self.unchecked else { return Ok(None) };
            if let LiveContent::Log(log) = &frame.content
                && let Some(started) = log.record.started()
            {
                self.by.caller.bounds.check_kind(&started.kind)?; // the run may be handed off to another kind (BK1)
            }
            let is_internal = matches!(&frame.content, LiveContent::Emitted(emitted) if emitted.audience == Audience::Internal);
            let has_diagnosis = frame.failures_mut().iter().any(|failure| failure.diagnosis.is_some());
            let sees_all = !(is_internal || has_diagnosis) || self.by.check_also(Scope::Operate, &self.server).await.is_ok();
            let Some(mut frame) = self.unchecked.take() else { return Ok(None) };
            if is_internal && !sees_all {
                continue; // LC1
            }
            if !sees_all {
                frame.failures_mut().into_iter().for_each(diagnosis::hide); // LC1
            }
            frame.workers_mut().into_iter().for_each(|worker| *worker = worker.chosen_name());
            return Ok(Some(frame));
        }
    }
}

/// Returns whether the caller may see a value that a run emitted (LC1).
pub(crate) async fn may_see(server: &Server, by: &Principal, run: &RunKey, emitted: &Emitted) -> bool {
    bounds::check_live(server, &by.caller, run).await.is_ok()
        && (emitted.audience == Audience::Public || by.check_also(Scope::Operate, server).await.is_ok())
}
