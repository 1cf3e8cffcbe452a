//! Runs on demand over gRPC: the run itself is sent on the worker's stream.

use onward_runtime::{Decide, DriveInput};
use onward_wire::api;

use super::Asker;
use super::calls::{Answer, acted_on, appended, call_acted_on, malformed, signal, told};
use super::problem::status_of;
use crate::Server;
use crate::handlers::drive::scope_of;
use crate::workers::ClaimPurpose;

pub(super) async fn drive_run(server: Server, asker: Asker, request: api::DriveRequest) -> Answer<api::DriveReply> {
    let api::DriveRequest { run, worker, signal: with, decision } = request;
    let key = acted_on(&server, &asker, run).await?;
    let delivery = match (with, decision) {
        (None, None) => DriveInput::Nothing,
        (Some(with), None) => DriveInput::Signal(signal(with)),
        (None, Some(api::DecideRequest { approval, approved, feedback, decided_by, decision_id, .. })) => {
            let call = call_acted_on(&server, &asker, &approval).await?;
            // The name of the credential, if it has one, is recorded as the decider (S8).
            let decided_by = asker.caller.name.clone().or(decided_by);
            DriveInput::Decision(call, Decide { approved, feedback, decided_by, decision_id })
        }
        _ => return Err(malformed("send a signal or a decision, not both".to_owned())),
    };
    if let Some(scope) = scope_of(&delivery) {
        asker.pass.check_also(scope, &server).await.map_err(|refusal| status_of(&refusal.into()))?;
    }
    let session = server.sessions().connected(&asker.namespace, &worker, &asker.caller);
    let session = session.map_err(|error| status_of(&error.into()))?;
    let taken = session.take_up(&key, ClaimPurpose::ToDrive, delivery).await.map_err(told)?;
    Ok(api::DriveReply { is_given: taken.is_given, head: taken.head, appended: taken.appended.map(appended) })
}

pub(super) async fn resume_agent(
    server: Server,
    asker: Asker,
    request: api::ResumeAgentRequest,
) -> Answer<api::ResumeAgentReply> {
    let api::ResumeAgentRequest { run, worker, signal: with } = request;
    let key = acted_on(&server, &asker, run).await?;
    let delivery = with.map_or(DriveInput::Nothing, |with| DriveInput::Signal(signal(with)));
    if let Some(scope) = scope_of(&delivery) {
        asker.pass.check_also(scope, &server).await.map_err(|refusal| status_of(&refusal.into()))?;
    }
    let session = server.sessions().connected(&asker.namespace, &worker, &asker.caller);
    let session = session.map_err(|error| status_of(&error.into()))?;
    let taken = session.take_up(&key, ClaimPurpose::ToResume, delivery).await.map_err(told)?;
    let (success, why) = (taken.is_given, taken.why.map(|why| why.as_str().to_owned()));
    Ok(api::ResumeAgentReply { success, why, head: taken.head, appended: taken.appended.map(appended) })
}
