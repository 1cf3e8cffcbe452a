//! A worker comes, or comes back.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, RunKey, WorkerId};
use onward_runtime::Adoption;
use onward_store::{StoreError, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::ServerFrame;

use super::{Connection, GivenTask, PAGE, Session, State, is_same_owner, known_as};

/// Why a hello was not taken.
pub(crate) enum NotServed {
    /// The session is over.
    Over,
    /// A later hello has come already.
    Overtaken,
}

/// What a hello shows about the connection before it.
struct Compared {
    /// What the store calls the worker in the session that it had before, if it names one.
    before: Option<WorkerId>,
    /// Held by both: the worker may have missed inputs.
    both: Vec<wire::HeldRun>,
    /// Sent to a connection that did not get them through.
    unheard_runs: HashMap<RunKey, Epoch>,
    unheard_tasks: BTreeSet<(TaskId, u64)>,
    /// Those of them that are known not to have started (V7).
    not_started: BTreeSet<(TaskId, u64)>,
    /// Held by the worker alone: given to it by a server that is gone, or taken from it since. Also tasks of this session if the worker
    /// was at another server in between, which may have taken them up (K10).
    doubtful_runs: Vec<(RunKey, Epoch)>,
    doubtful_tasks: Vec<wire::HeldTask>,
}

impl Session {
    /// Tells the worker what it has lost, and brings what it holds up to date.
    pub fn connect(self: &Arc<Session>, hello: &wire::Hello) -> Result<Connection, NotServed> {
        let mut state = self.lock();
        if state.over {
            return Err(NotServed::Over);
        }
        if hello.connection < state.counted {
            return Err(NotServed::Overtaken);
        }
        self.port.heard();
        state.connections += 1;
        let number = state.connections;
        // What waited for an earlier connection may have been sent or not: the worker says where it stands. Questions that were sent
        // to it are asked once more.
        state.cut_off();
        (state.served, state.counted) = (Some(number), hello.connection);
        self.port.set_present(true);
        state.enqueue(ServerFrame::Welcome(self.welcome()));
        let received = hello.received.as_ref();
        let before =
            received.map(|received| known_as(&self.namespace, &hello.worker, self.credential.as_deref(), received.session));
        let compared = Compared { before, ..state.compare(self.id, hello) };
        drop(state);
        let session = self.clone();
        tokio::spawn(async move { session.settle(compared).await });
        self.outgoing.notify_waiters();
        self.served_changed.notify_waiters();
        Ok(Connection { session: self.clone(), number })
    }

    fn welcome(&self) -> wire::Welcome {
        wire::Welcome {
            protocol: onward_wire::PROTOCOL,
            lease_ms: u64::try_from(self.runtime().options().lease.as_millis()).unwrap_or(u64::MAX),
            server: concat!("onward ", env!("CARGO_PKG_VERSION")).to_owned(),
            payload_bytes_max: u64::try_from(self.runtime().store().payload_bytes_max()).ok(),
            session: self.id,
        }
    }

    async fn settle(self: &Arc<Session>, compared: Compared) {
        self.release_doubtful(compared.before, compared.doubtful_runs).await;
        for wire::HeldTask { task, claim } in compared.doubtful_tasks {
            let is_adopted = self.adopt(&task, claim).await.is_ok_and(|adoption| adoption == Adoption::Adopted);
            self.lock().doubtful.remove(&(task.clone(), claim));
            if !is_adopted {
                self.forget_task(&task, claim);
                self.push(ServerFrame::TaskOver(wire::TaskOver { task, claim }));
            }
        }
        for held in compared.both {
            self.catch_up(held).await;
        }
        for (run, epoch) in compared.unheard_runs {
            self.forget(&run, epoch);
            drop(self.port.release(&run, epoch).await);
        }
        for (task, claim) in compared.unheard_tasks {
            // One of an earlier session is only reported if it was this worker's (Q9).
            let is_own = self.forget_task(&task, claim)
                || (self.adopt(&task, claim).await.is_ok_and(|adoption| adoption == Adoption::Adopted)
                    && self.forget_task(&task, claim));
            if !is_own {
                continue;
            }
            // One that has arrived may have begun: the worker stopped it without a report, and the ledger keeps it as unknown (LG1).
            drop(match compared.not_started.contains(&(task.clone(), claim)) {
                true => self.port.give_back_task(task, claim).await,
                false => self.port.report_for_worker(task, claim, TaskReport::Interrupted).await,
            });
        }
    }

    /// Releases the runs that the store still has with an earlier session of this worker, so that another worker gets them at once.
    /// The worker names the session, and only one of its own credential has the leases (Q9).
    async fn release_doubtful(&self, before: Option<WorkerId>, doubtful: Vec<(RunKey, Epoch)>) {
        let Some(before) = before.filter(|_| !doubtful.is_empty()) else { return };
        let store = self.runtime().store();
        let Ok(leases) = store.list_leases(before).await else { return };
        for (run, epoch) in doubtful.into_iter().filter(|lease| leases.contains(lease)) {
            drop(store.release_run(run, epoch).await);
        }
    }

    /// Takes up a task that a server before gave to this worker, if the store still has it so (Q7).
    pub(super) async fn adopt(self: &Arc<Session>, task: &TaskId, claim: u64) -> Result<Adoption, StoreError> {
        let adoption = self.port.adopt_task(task, claim, |holder| is_same_owner(holder, self.port.id())).await?;
        // Also one that this session offered is the worker's beyond doubt now.
        let given = GivenTask { claim, offer: 0 };
        if adoption == Adoption::Adopted
            && self.lock().tasks.insert(task.clone(), given).is_none_or(|before| before.claim != claim)
        {
            self.watch_task(task.clone(), claim);
        }
        Ok(adoption)
    }

    /// Sends the inputs that the worker has not seen. If they cannot be read the run is given up: the worker would wait for ever.
    async fn catch_up(self: &Arc<Session>, held: wire::HeldRun) {
        if self.send_missed(&held).await.is_err() {
            let wire::HeldRun { run, epoch, .. } = held;
            self.forget(&run, epoch);
            drop(self.port.release(&run, epoch).await);
            self.push(ServerFrame::RunLost(wire::RunLost { run, epoch }));
        }
    }

    async fn send_missed(&self, held: &wire::HeldRun) -> Result<(), StoreError> {
        let wire::HeldRun { run, generation, epoch, next_index } = held;
        let mut from = *next_index;
        loop {
            let store = self.runtime().store();
            let records = store.read_log(run.clone(), Some(*generation), from, PAGE).await?;
            let full = records.len() == PAGE || payloads::is_long(&records);
            let Some(last) = records.last() else { return Ok(()) };
            from = last.next_index();
            for record in records.into_iter().filter(|record| record.commit.is_none() && record.index >= *next_index) {
                self.push(ServerFrame::Input(wire::Input { run: run.clone(), epoch: *epoch, record }));
            }
            if !full {
                return Ok(());
            }
        }
    }
}

impl State {
    /// Compares what the worker says it holds with what it was given; what it has lost is put on its way to it.
    fn compare(&mut self, session: u64, hello: &wire::Hello) -> Compared {
        let not_started = self.not_started(session, hello.received.as_ref());
        let given = self.tasks.iter().map(|(task, given)| (task.clone(), given.claim));
        // What the hello before held may be taken up only in a moment: nobody would work on it, and everybody wait (Q7).
        let unheard_tasks = given.chain(std::mem::take(&mut self.doubtful)).collect();
        let unheard_runs = self.runs.clone();
        let (both, doubtful_runs, doubtful_tasks) = Default::default();
        let mut compared =
            Compared { before: None, both, unheard_runs, unheard_tasks, not_started, doubtful_runs, doubtful_tasks };
        for held in &hello.runs {
            if self.runs.get(&held.run) == Some(&held.epoch) {
                compared.unheard_runs.remove(&held.run);
                compared.both.push(held.clone());
            } else {
                compared.doubtful_runs.push((held.run.clone(), held.epoch));
                self.enqueue(ServerFrame::RunLost(wire::RunLost { run: held.run.clone(), epoch: held.epoch }));
            }
        }
        let was_here_last = hello.received.as_ref().is_some_and(|received| received.session == session);
        for held in &hello.tasks {
            let one = (held.task.clone(), held.claim);
            compared.unheard_tasks.remove(&one);
            if !was_here_last || !self.holds_task(&held.task, held.claim) {
                compared.doubtful_tasks.push(held.clone());
                self.doubtful.insert(one);
            }
        }
        compared
    }
}
