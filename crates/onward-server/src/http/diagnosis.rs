//! Diagnoses of failures: error texts of external services, visible to operators only.
//!
//! A model provider may quote the request in its error. Therefore a diagnosis is in no JSON document except the list of failures,
//! and is removed from gRPC messages unless the caller has the scope `operate`.
//!
//! Invariant DG1: a caller without the scope `operate` is shown no diagnosis.

use onward_core::api::Reply;
use onward_core::stream::StreamContent;
use onward_core::{Event, Failure, Index, Payload, Record, Timestamp};

use crate::auth::bounds;
use crate::handlers::prelude::*;

/// Number of records per read.
const PAGE: usize = 1_000;

/// Maximum number of failures in the response; the latest ones are returned.
const FAILURES_MAX: usize = 100;

pub(crate) fn hide(failure: &mut Failure) {
    failure.diagnosis = None;
}

pub(crate) fn hide_in_outcome(outcome: &mut Result<Payload, Failure>) {
    outcome.as_mut().err().into_iter().for_each(hide);
}

pub(crate) fn hide_in_records(records: &mut [Record]) {
    records.iter_mut().flat_map(|record| &mut record.events).filter_map(Event::failure_mut).for_each(hide);
}

/// Removes the diagnoses from the reply of a verb.
pub(crate) fn hide_in_reply(reply: &mut Reply) {
    match reply {
        Reply::ReadLog(page) => hide_in_records(&mut page.records),
        Reply::AwaitChange(reply) => reply.outcome.iter_mut().for_each(hide_in_outcome),
        Reply::UpdateRun(reply) | Reply::QueryRun(reply) => reply.answer.iter_mut().for_each(hide_in_outcome),
        Reply::ReadTask(view) => {
            view.last_failure.iter_mut().for_each(hide);
            view.outcome.iter_mut().for_each(hide_in_outcome);
        }
        Reply::ReadTimeline(timeline) => {
            let attempts = timeline.calls.iter_mut().flat_map(|call| &mut call.attempts);
            attempts.filter_map(|attempt| attempt.failure.as_mut()).for_each(hide);
        }
        Reply::ReadAt(moment) => {
            moment.outcome.iter_mut().for_each(hide_in_outcome);
            moment.event.failure_mut().into_iter().for_each(hide);
        }
        Reply::ListQuarantined(reply) => {
            reply.tasks.iter_mut().filter_map(|task| task.last_failure.as_mut()).for_each(hide);
        }
        Reply::ReadStream(page) => {
            for frame in &mut page.frames {
                if let StreamContent::AttemptFailed(failed) = &mut frame.content {
                    hide(&mut failed.failure);
                }
            }
        }
        _ => {}
    }
}

documents! {
    struct Failures as FailureList {
        generation: u32,
        failures: Vec<OneFailure>,
    }

    struct OneFailure as LoggedFailure {
        index: Index,
        at: Timestamp,
        event: &'static str,
        code: String,
        message: String,
        /// Error text of the external service.
        diagnosis: Option<String>,
    }
}

/// Handles `GET /v1/runs/{id}/failures`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let (runtime, key) = (request.server.runtime(), request.key()?);
    let generation = match request.query.number("generation")? {
        Some(generation) => {
            bounds::check_generation(&request.server, &request.by.caller, &key, generation).await?; // BK1
            generation
        }
        None => runtime.read_head(&key).await?.generation,
    };
    let (mut failures, mut from) = (Vec::new(), Index(0));
    loop {
        let mut records = runtime.read_log(&key, Some(generation), from, PAGE).await?;
        let Some(last) = records.last() else { break };
        from = last.next_index();
        for record in &mut records {
            let (index, at) = (record.index, record.at);
            for (event, index) in record.events.iter_mut().zip(index.0..) {
                let name = event.name();
                if let Some(Failure { code, message, diagnosis, .. }) = event.failure_mut().map(|failure| failure.clone()) {
                    let diagnosis = diagnosis.map(|text| *text);
                    failures.push(OneFailure { index: Index(index), at, event: name, code, message, diagnosis });
                }
            }
        }
    }
    let failures = failures.split_off(failures.len().saturating_sub(FAILURES_MAX));
    Ok(json(StatusCode::OK, &Failures { generation, failures }))
}
