//! Handling of frames from the server.

use std::sync::Arc;

use onward_core::task::{Task, TaskId};
use onward_core::{Epoch, Index, Record, RunKey};
use onward_runtime::Question;
use onward_store::ClaimedRun;
use onward_wire::worker as wire;
use onward_wire::worker::{ServerFrame, WorkerFrame};
use tokio::sync::oneshot;

use super::shared::{Greeting, HeldRun, RecordSink, Request, Shared};

impl Shared {
    pub fn take_in(self: &Arc<Shared>, frame: ServerFrame) {
        match frame {
            ServerFrame::Welcome(welcome) => {
                self.welcome(&welcome);
                self.greet(Greeting::Welcomed);
            }
            ServerFrame::Goodbye(_) => {} // the stream ends and is reopened
            ServerFrame::Run(run) => self.take_run(run),
            ServerFrame::Input(input) => self.take_input(input),
            ServerFrame::RunLost(lost) => self.lose(&lost.run, lost.epoch),
            ServerFrame::Task(offer) => self.take_task(offer),
            ServerFrame::TaskOver(over) => self.end_task(over.task, over.claim),
            ServerFrame::Question(question) => self.take_question(question),
            ServerFrame::Watch(wire::Watch { run, on }) => self.take_watch(&run, on),
            ServerFrame::Reply(reply) => {
                if let Some(request) = self.take_reply(reply.request) {
                    drop(request.answer.send(reply.outcome)); // the caller may have gone
                }
            }
        }
    }

    /// Takes the request that a reply belongs to. A reply proves that the server received a message of this worker after the request was
    /// made.
    fn take_reply(&self, number: u64) -> Option<Request> {
        let mut state = self.lock();
        let request = state.requests.remove(&number);
        let beat = state.beat.take_if(|(beat, _)| *beat == number);
        let requested_at = request.as_ref().map(|request| request.made_at).or(beat.map(|(_, sent_at)| sent_at));
        state.last_seen_at = state.last_seen_at.max(requested_at);
        request
    }

    fn take_run(&self, run: wire::Run) {
        let wire::Run { head, log } = run;
        let records = log.map(|log| log.records);
        let next = records.as_ref().and_then(|records| records.last()).map_or(Index(1), Record::next_index);
        let held = HeldRun {
            generation: head.generation,
            epoch: head.epoch,
            next,
            sink: RecordSink::Buffer(Vec::new()),
            is_watched: false,
        };
        let mut state = self.lock();
        let before = state.held.insert(head.key.clone(), held);
        let claimed = ClaimedRun { head, records };
        // A claim by id used no credit.
        let unwanted = match state.driving.remove(&claimed.head.key) {
            Some(waiting) => waiting.send(claimed).err(),
            None => {
                state.runs_requested = state.runs_requested.saturating_sub(1);
                state.runs.push_back(claimed);
                None
            }
        };
        if let Some(ClaimedRun { head, .. }) = &unwanted {
            state.held.remove(&head.key);
        }
        drop(state);
        if let Some(ClaimedRun { head, .. }) = unwanted {
            // The caller that claimed it has gone.
            self.release(head.key, head.epoch);
        }
        if let Some(HeldRun { sink: RecordSink::Inbox(inbox), .. }) = before {
            inbox.lost(); // the run was lost and is now held again
        }
        self.runs_came.notify_one();
    }

    fn take_input(&self, input: wire::Input) {
        let wire::Input { run, epoch, record } = input;
        let inbox = {
            let mut state = self.lock();
            let Some(held) = state.held.get_mut(&run).filter(|held| held.epoch == epoch && record.index >= held.next) else {
                return;
            };
            held.next = record.next_index();
            match &mut held.sink {
                RecordSink::Buffer(records) => {
                    records.push(record);
                    return;
                }
                RecordSink::Inbox(inbox) => inbox.clone(),
            }
        };
        inbox.push(record);
    }

    fn take_watch(&self, run: &RunKey, on: bool) {
        let inbox = self.lock().held.get_mut(run).and_then(|held| {
            held.is_watched = on;
            match &held.sink {
                RecordSink::Inbox(inbox) => Some(inbox.clone()),
                RecordSink::Buffer(_) => None, // passed on when the inbox is opened
            }
        });
        if let Some(inbox) = inbox {
            inbox.watch(on);
        }
    }

    fn lose(&self, run: &RunKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.held.get(run).is_some_and(|held| held.epoch <= epoch) {
            let held = state.held.remove(run);
            state.runs.retain(|claimed| claimed.head.key != *run);
            let void = state.take_requests_about(|other, under| other == run && under <= epoch);
            drop(state);
            self.runs_came.notify_one(); // a run that was not taken is requested again (Y3)
            if let Some(HeldRun { sink: RecordSink::Inbox(inbox), .. }) = held {
                inbox.lost();
            }
            drop(void); // their callers know the reason by now
        }
    }

    fn take_task(&self, offer: wire::TaskOffer) {
        let wire::TaskOffer { task, number } = offer;
        let mut state = self.lock();
        if state.takes_no_tasks {
            return;
        }
        if let Some(received) = &mut state.received {
            received.offer = received.offer.max(number);
        }
        state.held_tasks.insert((task.id.clone(), task.claim), Arc::default());
        state.tasks_requested = state.tasks_requested.saturating_sub(1);
        state.tasks.push_back(task);
        drop(state);
        self.tasks_came.notify_one();
    }

    pub fn end_task(&self, task: TaskId, claim: u64) {
        let mut state = self.lock();
        state.tasks.retain(|waiting| waiting.id != task || waiting.claim != claim);
        if let Some(over) = state.held_tasks.remove(&(task, claim)) {
            over.notify_one(); // the waiting side may only wait in a moment
        }
        drop(state);
        self.tasks_came.notify_one(); // a task that was not taken is requested again (Y3)
    }

    /// Reports to the server that a received task was not started.
    pub async fn give_back_task(&self, task: Task) {
        let (id, claim, report) = (task.id.clone(), task.claim, task.not_started());
        let reply = self.request(|request| WorkerFrame::Report(wire::ReportTask { request, task: task.id, claim, report }));
        drop(reply.outcome().await);
        self.end_task(id, claim);
    }

    /// Treats everything that the worker holds as lost (Y4).
    pub fn lose_all(self: &Arc<Shared>) {
        let mut state = self.lock();
        let (held, mut held_tasks) = (std::mem::take(&mut state.held), std::mem::take(&mut state.held_tasks));
        let dropped = held.iter().map(|(run, held)| wire::DroppedRun { run: run.clone(), epoch: held.epoch });
        state.dropped.extend(dropped);
        state.runs.clear();
        let waiting = std::mem::take(&mut state.tasks);
        for task in &waiting {
            // The next `hello` lists it, and then the server learns that it was not started.
            let key = (task.id.clone(), task.claim);
            state.held_tasks.extend(held_tasks.remove_entry(&key));
        }
        let void = state.take_requests_about(|_, _| true);
        drop(state);
        if !(held.is_empty() && held_tasks.is_empty()) {
            self.losses.send_modify(|losses| *losses += 1);
        }
        for held in held.into_values() {
            if let RecordSink::Inbox(inbox) = held.sink {
                inbox.lost();
            }
        }
        drop(void); // their callers know the reason by now
        for task in waiting {
            let shared = self.clone();
            tokio::spawn(async move { shared.give_back_task(task).await });
        }
        held_tasks.into_values().for_each(|over| over.notify_one());
        self.runs_came.notify_one();
        self.tasks_came.notify_one();
    }

    fn take_question(self: &Arc<Shared>, frame: wire::Question) {
        let wire::Question { question, run, name, input } = frame;
        let (answer, answered) = oneshot::channel();
        let (shared, connection) = (self.clone(), self.lock().connection);
        tokio::spawn(async move {
            // Another connection may belong to another session, whose queries have the same numbers.
            let answered = answered.await;
            let is_passed_on = answered.is_err();
            let answer = wire::AnswerQuery { question, answer: answered.ok().flatten(), is_passed_on };
            shared.send_on(connection, WorkerFrame::Answer(answer));
        });
        let question = Question { run, name, input, answer };
        let inbox = match self.lock().held.get(&question.run) {
            Some(HeldRun { sink: RecordSink::Inbox(inbox), .. }) => Some(inbox.clone()),
            _ => None,
        };
        let unanswered = match inbox {
            Some(inbox) => inbox.ask(question).err(),
            None => Some(question),
        };
        if let Some(question) = unanswered {
            self.lock().questions.push_back(question);
            self.questions_came.notify_one();
        }
    }
}
