//! Connecting and reconnecting of a worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::LostWorker;
use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, RunKey, WorkerId};
use onward_runtime::{Adoption, WorkerConnection};
use onward_store::{Consequence, StoreError, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::ServerFrame;

use crate::auth::bounds::Bounds;

use super::{Connection, GivenTask, PAGE, Session, SessionState};

/// Pause before another try to adopt a task, if the store is unavailable.
const ADOPTION_PAUSE: Duration = Duration::from_millis(200);

/// Reason why a hello was refused.
pub(crate) enum NotServed {
    /// The session is over.
    Over,
    /// There was a later hello.
    Overtaken,
}

/// Differences between a hello and the session.
struct Compared {
    /// Store id of the worker in the previous session that the hello names.
    before: Option<WorkerId>,
    /// Runs that both have: the worker may have missed inputs.
    both: Vec<wire::HeldRun>,
    /// Runs and tasks that were sent and did not arrive at the worker.
    undelivered_runs: HashMap<RunKey, Epoch>,
    undelivered_tasks: BTreeSet<(TaskId, u64)>,
    /// Those of the tasks that cannot have started (V7).
    not_started: BTreeSet<(TaskId, u64)>,
    /// Runs that only the worker has, or had until it dropped them: given by a server that is gone, or lost since.
    unconfirmed_runs: Vec<(RunKey, Epoch)>,
    /// The tasks that the worker has, also those of this session: the worker may have been at another server in between, which
    /// has adopted them, and not know it (K10).
    unconfirmed_tasks: Vec<wire::HeldTask>,
}

impl Session {
    /// Opens a connection, reports what the worker has lost, and sends the inputs that it has missed.
    pub fn connect(self: &Arc<Session>, hello: &wire::Hello, bounds: Bounds) -> Result<Connection, NotServed> {
        let mut state = self.lock();
        if state.over {
            return Err(NotServed::Over);
        }
        if hello.connection < state.counted {
            return Err(NotServed::Overtaken);
        }
        self.local.mark_seen();
        state.connections += 1;
        let number = state.connections;
        // Frames for an earlier connection may or may not have arrived; the hello shows it. Questions that were sent to it are
        // sent again.
        state.cut_off();
        (state.served, state.counted, state.reports_steps) = (Some(number), hello.connection, hello.reports_steps);
        state.bounds = bounds;
        self.local.set_present(true);
        state.enqueue(ServerFrame::Welcome(self.welcome()));
        let received = hello.received.as_ref();
        let before =
            received.map(|received| hello.worker.in_session(&self.namespace, self.credential.as_deref(), received.session));
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
        self.release_unconfirmed(compared.before, compared.unconfirmed_runs).await;
        for wire::HeldTask { task, claim } in compared.unconfirmed_tasks {
            let is_adopted = self.adopt_or_retry(&task, claim).await == Adoption::Adopted;
            self.lock().unconfirmed.remove(&(task.clone(), claim));
            if !is_adopted {
                self.forget_task(&task, claim);
                self.push(ServerFrame::TaskOver(wire::TaskOver { task, claim }));
            }
        }
        for held in compared.both {
            if self.runtime().is_watched(&held.run) {
                self.watch(&held.run, true);
            }
            self.catch_up(held).await;
        }
        for (run, epoch) in compared.undelivered_runs {
            self.forget(&run, epoch);
            drop(self.local.release(run, epoch).await);
        }
        for (task, claim) in compared.undelivered_tasks {
            // A task of an earlier session is reported only if it was this worker's (Q9).
            let is_own = self.forget_task(&task, claim)
                || (self.adopt(&task, claim).await.is_ok_and(|adoption| adoption == Adoption::Adopted)
                    && self.forget_task(&task, claim));
            if !is_own {
                continue;
            }
            // A task that has arrived may have begun. The worker stopped it without a report, so its cost is recorded as unknown
            // (LG1).
            drop(match compared.not_started.contains(&(task.clone(), claim)) {
                true => self.local.give_back_task(task, claim).await,
                false => self.local.report_for_worker(task, claim, TaskReport::Interrupted).await,
            });
        }
    }

    /// Releases the runs that the store still has with an earlier session of this worker, so that another worker gets them at
    /// once, and those that it counts as lost with this worker (CW3). The worker names the session, and its id includes the
    /// credential (Q9).
    async fn release_unconfirmed(&self, before: Option<WorkerId>, unconfirmed: Vec<(RunKey, Epoch)>) {
        let Some(before) = before.filter(|_| !unconfirmed.is_empty()) else { return };
        let store = self.runtime().store();
        let Ok(leases) = store.list_leases(before).await else { return };
        for lease in unconfirmed {
            if leases.contains(&lease) || self.is_counted_lost(&lease.0, lease.1).await {
                drop(store.release_run(lease.0, lease.1).await);
            }
        }
    }

    /// Returns whether a run of this namespace counts this worker as lost under that claim. The head of the run has the id that
    /// the worker chose, which no other worker has.
    async fn is_counted_lost(&self, run: &RunKey, epoch: Epoch) -> bool {
        let chosen = self.local.id().chosen_name();
        let is_its = |lost: &LostWorker| lost.epoch == epoch && lost.worker == chosen;
        let Ok(Some(head)) = self.runtime().store().read_run(run.clone(), None).await else { return false };
        run.namespace == self.namespace && head.lost_workers.is_some_and(|lost| lost.latest.iter().any(is_its))
    }

    /// Adopts a task; tries again while the store is unavailable, because the worker continues to execute it.
    async fn adopt_or_retry(self: &Arc<Session>, task: &TaskId, claim: u64) -> Adoption {
        loop {
            match self.adopt(task, claim).await {
                Ok(adoption) => return adoption,
                Err(error) if error.consequence() == Consequence::Retry && !self.is_over() => {
                    tokio::time::sleep(ADOPTION_PAUSE).await;
                }
                Err(_) => return Adoption::Over,
            }
        }
    }

    /// Adopts a task that an earlier server gave to this worker, if the store still has it so (Q7).
    pub(super) async fn adopt(self: &Arc<Session>, task: &TaskId, claim: u64) -> Result<Adoption, StoreError> {
        let adoption = self.local.adopt_task(task, claim, |holder| holder.is_same_owner(self.local.id())).await?;
        // A task that this session offered is certainly with the worker now, too.
        let given = GivenTask { claim, offer: 0 };
        if adoption == Adoption::Adopted
            && self.lock().tasks.insert(task.clone(), given).is_none_or(|before| before.claim != claim)
        {
            self.watch_task(task.clone(), claim);
        }
        Ok(adoption)
    }

    /// Sends the inputs that the worker has missed. Releases the run if they cannot be read, because the worker would wait for
    /// ever.
    async fn catch_up(self: &Arc<Session>, held: wire::HeldRun) {
        if self.send_missed(&held).await.is_err() {
            let wire::HeldRun { run, epoch, .. } = held;
            self.forget(&run, epoch);
            drop(self.local.release(run.clone(), epoch).await);
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

impl SessionState {
    /// Compares what the worker holds with what it was given; queues notices about runs that it has lost.
    fn compare(&mut self, session: u64, hello: &wire::Hello) -> Compared {
        let not_started = self.not_started(session, hello.received.as_ref());
        let given = self.tasks.iter().map(|(task, given)| (task.clone(), given.claim));
        // A task of the previous hello may be adopted only after this one; without a worker it would stay claimed (Q7).
        let undelivered_tasks = given.chain(std::mem::take(&mut self.unconfirmed)).collect();
        let undelivered_runs = self.runs.clone();
        let (both, unconfirmed_runs, unconfirmed_tasks) = Default::default();
        let mut compared = Compared {
            before: None,
            both,
            undelivered_runs,
            undelivered_tasks,
            not_started,
            unconfirmed_runs,
            unconfirmed_tasks,
        };
        for held in &hello.runs {
            if self.runs.get(&held.run) == Some(&held.epoch) {
                compared.undelivered_runs.remove(&held.run);
                compared.both.push(held.clone());
            } else {
                compared.unconfirmed_runs.push((held.run.clone(), held.epoch));
                self.enqueue(ServerFrame::RunLost(wire::RunLost { run: held.run.clone(), epoch: held.epoch }));
            }
        }
        let dropped = hello.dropped.iter().map(|dropped| (dropped.run.clone(), dropped.epoch));
        compared.unconfirmed_runs.extend(dropped.filter(|(run, epoch)| self.runs.get(run) != Some(epoch)));
        for held in &hello.tasks {
            let one = (held.task.clone(), held.claim);
            compared.undelivered_tasks.remove(&one);
            compared.unconfirmed_tasks.push(held.clone());
            self.unconfirmed.insert(one);
        }
        compared
    }
}
