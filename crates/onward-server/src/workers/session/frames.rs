//! Handling of a worker's frames.

use std::sync::Arc;

use onward_core::run::Commit;
use onward_core::task::TaskId;
use onward_core::{Epoch, RunKey};
use onward_runtime::{Adoption, Emitted, WorkerConnection};
use onward_store::{StoreError, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::{ReplyOutcome, ServerFrame, WorkerFrame};

use super::{Ending, PAGE, Session};
use crate::grpc::problem::of_store;

/// Payload size after which a page of a log ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

impl Session {
    /// Handles one frame. Replies are sent later, in any order.
    pub(super) fn handle(self: &Arc<Session>, frame: WorkerFrame) {
        if let Some((run, request)) = about(&frame)
            && run.namespace != self.namespace
        {
            // Q5
            if let Some(request) = request {
                self.reply(request, Err(of_store(StoreError::RunNotFound { key: run.clone() })));
            }
            return;
        }
        match frame {
            WorkerFrame::Hello(_) | WorkerFrame::Credit(_) => {} // handled by the connection
            WorkerFrame::Heartbeat(wire::Heartbeat { request }) => {
                if request != 0 {
                    self.reply(request, Ok(ReplyOutcome::Done(wire::Done {})));
                }
            }
            WorkerFrame::Commit(wire::CommitRun { request, commit }) => self.commit(request, commit),
            WorkerFrame::Release(wire::ReleaseRun { request, run, epoch }) => {
                if self.check(&run, epoch).is_err() {
                    return self.reply(request, Ok(ReplyOutcome::Done(wire::Done {}))); // lost already, which is not an error
                }
                let released = WorkerConnection::release(&self.local, run.clone(), epoch);
                self.answer(request, async move {
                    released.await?;
                    Ok((ReplyOutcome::Done(wire::Done {}), Some((run, epoch))))
                });
            }
            WorkerFrame::Pause(wire::PauseRun { request, run, generation, epoch, report }) => {
                if let Err(problem) = self.check(&run, epoch) {
                    return self.reply(request, Err(problem));
                }
                let paused = WorkerConnection::pause(&self.local, run, generation, epoch, report);
                self.answer(request, async move { paused.await.map(|()| (ReplyOutcome::Done(wire::Done {}), None)) });
            }
            WorkerFrame::ReadLog(wire::ReadLog { request, run, generation, from, limit }) => {
                let (session, limit) = (self.clone(), (limit as usize).clamp(1, PAGE));
                self.answer(request, async move {
                    session.check_readable(&run).await?;
                    let mut records = WorkerConnection::read_log(&session.local, run, generation, from, limit).await?;
                    let more = payloads::is_long(&records) | payloads::fit(&mut records, PAGE_BYTES);
                    Ok((ReplyOutcome::Log(wire::Log { records, more }), None))
                });
            }
            WorkerFrame::Report(wire::ReportTask { request, task, claim, report }) => {
                let (session, ends) = (self.clone(), report.ends());
                let is_known = self.lock().holds_task(&task, claim);
                self.answer(request, async move {
                    // The task may be part of a hello that is still being processed.
                    if !is_known {
                        match session.adopt(&task, claim).await? {
                            Adoption::Adopted => {}
                            Adoption::Over => {
                                session.local.report_late(&task, claim, &report).await?;
                                return Err(onward_core::task::StaleReport.into());
                            }
                            Adoption::OfAnother => return Err(onward_core::task::StaleReport.into()), // Q9
                        }
                    }
                    let answer = session.local.report_task(task.clone(), claim, report).await;
                    if (ends && answer.is_ok()) || matches!(answer, Err(StoreError::TaskAttemptOver(_))) {
                        session.forget_task(&task, claim);
                    }
                    answer.map(|()| (ReplyOutcome::Done(wire::Done {}), None))
                });
            }
            WorkerFrame::Answer(wire::AnswerQuery { question, answer, is_passed_on }) => {
                let open_question = self.lock().questions.remove(&question);
                if let Some(question) = open_question.filter(|_| !is_passed_on) {
                    drop(question.answer.send(answer)); // the caller may be gone
                }
            }
            WorkerFrame::Emit(wire::Emit { run, name, value, audience, meta }) => {
                if self.lock().runs.contains_key(&run) {
                    WorkerConnection::emit(&self.local, &run, Emitted { name, value, audience, meta }); // Q2
                }
            }
            WorkerFrame::Steps(report) => {
                if !self.runtime().is_watched(&report.run) {
                    self.watch(&report.run, false); // its readers are gone
                } else if self.lock().runs.contains_key(&report.run) {
                    self.local.report_steps(report); // Q2
                }
            }
            // The stream decides which attempt of a task is shown.
            WorkerFrame::TaskFrames(task_frames) if self.lock().holds_task(&task_frames.task, task_frames.claim) => {
                drop(WorkerConnection::push_frames(&self.local, task_frames));
            }
            WorkerFrame::TaskFrames(task_frames) => {
                let session = self.clone();
                tokio::spawn(async move {
                    // The task may be part of a hello that is still being processed.
                    if session
                        .adopt(&task_frames.task, task_frames.claim)
                        .await
                        .is_ok_and(|adoption| adoption == Adoption::Adopted)
                    {
                        drop(WorkerConnection::push_frames(&session.local, task_frames));
                    }
                });
            }
            WorkerFrame::Leave(wire::Leave { request, received }) => {
                let session = self.clone();
                tokio::spawn(async move {
                    session.end(Ending::Left(received)).await;
                    session.reply(request, Ok(ReplyOutcome::Done(wire::Done {})));
                    session.finish();
                });
            }
        }
    }

    fn commit(self: &Arc<Session>, request: u64, commit: Commit) {
        let (key, generation, epoch) = (commit.key.clone(), commit.generation, commit.epoch);
        if self.holds(&key, epoch) {
            let committed = self.commit_within_bounds(commit);
            return self.answer(request, async move {
                let committed = committed.await?;
                Ok((ReplyOutcome::Committed(committed), committed.status.is_closed().then_some((key, epoch))))
            });
        }
        // The reply to the run's last commit may have been lost. A closed run accepts no commit, but returns the reply to a
        // repeat (V3).
        let session = self.clone();
        self.answer(request, async move {
            let head = session.runtime().store().read_run(key.clone(), Some(generation)).await?;
            if !head.is_some_and(|head| head.status.is_closed()) {
                return Err(fenced(key, epoch));
            }
            Ok((ReplyOutcome::Committed(session.local.commit(commit).await?), None))
        });
    }

    /// Refuses to read the log of a run unless the worker has code for its kind or executes a task of it (BK1).
    async fn check_readable(self: &Arc<Session>, run: &RunKey) -> Result<(), StoreError> {
        let unconfirmed: Vec<(TaskId, u64)> = {
            let state = self.lock();
            if state.runs.contains_key(run) || state.tasks.keys().any(|task| task.run == *run) {
                return Ok(());
            }
            state.unconfirmed.iter().filter(|(task, _)| task.run == *run).cloned().collect()
        };
        for (task, claim) in unconfirmed {
            if self.adopt(&task, claim).await? == Adoption::Adopted {
                return Ok(());
            }
        }
        let head = self.local.runtime().store().read_run(run.clone(), None).await?;
        let readable = head.filter(|head| self.local.has_code_for(&head.kind));
        readable.map(drop).ok_or_else(|| StoreError::RunNotFound { key: run.clone() })
    }

    fn holds(&self, run: &RunKey, epoch: Epoch) -> bool {
        self.lock().runs.get(run) == Some(&epoch)
    }

    /// Fails unless the worker was given the run under this epoch (Q2).
    fn check(&self, run: &RunKey, epoch: Epoch) -> Result<(), onward_wire::Problem> {
        if self.holds(run, epoch) {
            return Ok(());
        }
        Err(of_store(fenced(run.clone(), epoch)))
    }

    /// Replies when `work` is done; a run that its result names no longer belongs to the worker.
    fn answer(
        self: &Arc<Session>,
        request: u64,
        work: impl Future<Output = Result<(ReplyOutcome, Option<(RunKey, Epoch)>), StoreError>> + Send + 'static,
    ) {
        let session = self.clone();
        tokio::spawn(async move {
            let outcome = match work.await {
                Ok((outcome, gone)) => {
                    if let Some((run, epoch)) = gone {
                        session.forget(&run, epoch);
                        session.local.close_inbox(&run, epoch); // Q6
                    }
                    Ok(outcome)
                }
                Err(error) => Err(of_store(error)),
            };
            session.reply(request, outcome);
        });
    }

    pub(super) fn reply(&self, request: u64, outcome: Result<ReplyOutcome, onward_wire::Problem>) {
        let outcome = outcome.unwrap_or_else(ReplyOutcome::Problem);
        self.push(ServerFrame::Reply(wire::Reply { request, outcome }));
    }
}

/// Returns the run that a frame is about, and the request that expects a reply.
fn about(frame: &WorkerFrame) -> Option<(&RunKey, Option<u64>)> {
    match frame {
        WorkerFrame::Commit(frame) => Some((&frame.commit.key, Some(frame.request))),
        WorkerFrame::Release(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::Pause(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::ReadLog(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::Report(frame) => Some((&frame.task.run, Some(frame.request))),
        WorkerFrame::Emit(frame) => Some((&frame.run, None)),
        WorkerFrame::Steps(report) => Some((&report.run, None)),
        WorkerFrame::TaskFrames(task_frames) => Some((&task_frames.task.run, None)),
        WorkerFrame::Hello(_)
        | WorkerFrame::Heartbeat(_)
        | WorkerFrame::Credit(_)
        | WorkerFrame::Answer(_)
        | WorkerFrame::Leave(_) => None,
    }
}

fn fenced(key: RunKey, epoch: Epoch) -> StoreError {
    onward_core::run::Refusal::Fenced { key, epoch, current: Epoch(0), n: 0, next: 0 }.into()
}
