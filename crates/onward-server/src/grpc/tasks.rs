//! Tasks and queues over gRPC.

use onward_core::Name;
use onward_runtime::{QueueInfo, StartTask, TaskView};
use onward_wire::api;

use super::Asker;
use super::calls::{Answer, acted_on, appended, bound, call_acted_on, own, told};
use crate::{Server, http::diagnosis, http::request};

pub(super) async fn start_task(server: Server, asker: Asker, request: api::StartTaskRequest) -> Answer<api::StartReply> {
    let api::StartTaskRequest { task, kind, input, options, trace } = request;
    bound(asker.caller.bounds.check_kind(&kind))?;
    bound(asker.caller.bounds.check_queue(options.queue.as_ref().map_or("", Name::as_str)))?;
    let trace = trace.or_else(|| request::trace(&asker.pass.headers));
    let start = StartTask { key: own(&asker, task)?, kind, input, options, trace };
    let started = server.runtime().start_task(start).await.map_err(told)?;
    Ok(api::StartReply { created: started.created, head: started.head, signal: None })
}

pub(super) async fn read_task(server: Server, asker: Asker, request: api::RunRequest) -> Answer<api::TaskReply> {
    let view = server.runtime().read_task(&own(&asker, request.run)?).await.map_err(told)?;
    let TaskView { head, kind, input, options, state, attempts, mut last_failure, progress, mut outcome } = view;
    last_failure.iter_mut().for_each(diagnosis::hide);
    outcome.iter_mut().for_each(diagnosis::hide_in_outcome);
    let state = state.as_str().to_owned();
    Ok(api::TaskReply { head, kind, input, options, state, attempts, last_failure, progress, outcome })
}

pub(super) async fn cancel_task(server: Server, asker: Asker, request: api::ReasonRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    server.runtime().cancel_task(&key, &request.reason).await.map(appended).map_err(told)
}

pub(super) async fn retry_task(server: Server, asker: Asker, request: api::TaskRequest) -> Answer<api::DoneReply> {
    let call = call_acted_on(&server, &asker, &request.task).await?;
    server.runtime().retry_task(&call).await.map_err(told)?;
    Ok(api::DoneReply {})
}

pub(super) async fn list_queues(server: Server, asker: Asker, _: api::NamespaceRequest) -> Answer<api::QueuesReply> {
    let queues = server.runtime().list_queues(&asker.namespace).await.map_err(told)?;
    let line = |QueueInfo { count, workers }| api::QueueLine { count, workers };
    Ok(api::QueuesReply { queues: queues.into_iter().map(line).collect() })
}
