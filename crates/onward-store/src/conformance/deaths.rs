//! Limits of queues over processes that die (QL1, QL3): random claims, reports, deaths and changes of limits on one database.
//!
//! The test counts holders itself, from the replies of claims: a holder is there until its report, the end of its lease, or the
//! death of a process that took its workers along.

use std::sync::Arc;

use onward_core::queue::QueueSettings;
use onward_core::queue::settings::settings_row;
use onward_core::run::NewRun;
use onward_core::task::{Task, TaskOptions, TaskReport, TaskState};
use onward_core::{Namespace, RunKey, Timestamp};

use super::harness::{self, HeldRun, json, name, seconds, worker};
use crate::{ClaimTasks, Clock, ManualClock, Registration, Store, TaskQuery};

const QUEUE: &str = "limited";

/// The steps of a case, and its tasks.
const STEPS: u32 = 40;
const TASKS: u32 = 16;

/// Servers of one database.
pub trait Mortal {
    fn count(&self) -> usize;

    fn store(&self, server: usize) -> Arc<dyn Store>;

    /// Ends a server without notice, and starts another one in its place.
    fn die(&mut self, server: usize);

    /// Returns whether workers die with their server, so that its successor frees their leases at once.
    fn takes_workers_along(&self) -> bool;
}

/// A lease that its worker has not given back.
struct Holder {
    task: Task,
    server: usize,
    until: Timestamp,
}

/// Random numbers of one case, by SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % size
    }

    fn settings(&mut self) -> QueueSettings {
        let limit = |dice: &mut Dice| (dice.below(3) > 0).then(|| 1 + dice.below(5) as u32);
        QueueSettings { concurrency_max: limit(self), key_concurrency_max: limit(self), ..QueueSettings::default() }
    }

    fn options(&mut self) -> TaskOptions {
        let key = [None, Some("a"), Some("b"), Some("c")][self.below(4) as usize].map(name);
        let slots = [None, None, None, Some(2), Some(3)][self.below(5) as usize];
        TaskOptions { queue: Some(name(QUEUE)), key, slots, ..TaskOptions::default() }
    }
}

struct Case<'t> {
    namespace: Namespace,
    servers: &'t mut dyn Mortal,
    clock: &'t ManualClock,
    dice: Dice,
    settings: QueueSettings,
    holders: Vec<Holder>,
    deaths: u32,
}

/// Plays one case in a namespace of its own; returns how often a server died.
pub async fn limits_hold_over_deaths(seed: u64, servers: &mut dyn Mortal, clock: &ManualClock) -> u32 {
    eprintln!("ONWARD_SEED={seed}");
    let namespace = Namespace::new(format!("deaths-{seed}")).expect("the name is short");
    let dice = Dice(seed.wrapping_mul(7_919).wrapping_add(3));
    let mut case = Case { namespace, servers, clock, dice, settings: QueueSettings::default(), holders: Vec::new(), deaths: 0 };
    case.change_settings().await;
    case.schedule().await;
    for _ in 0..STEPS {
        case.step().await;
    }
    case.drain().await;
    case.deaths
}

impl Case<'_> {
    fn server(&mut self) -> usize {
        self.dice.below(self.servers.count() as u64) as usize
    }

    async fn change_settings(&mut self) {
        self.settings = self.dice.settings();
        let row = settings_row(self.namespace.clone(), Some(&name(QUEUE)), Some(self.settings.clone()));
        let server = self.server();
        self.servers.store(server).register_kinds(vec![row.expect("the name is short")], Registration::Always).await.unwrap();
    }

    async fn schedule(&mut self) {
        let key = RunKey { namespace: self.namespace.clone(), ..harness::key("r") };
        let run = NewRun { key, ..harness::new_run("r") };
        let started = self.servers.store(0).start_run(run, Some(worker("w"))).await.unwrap();
        let held = HeldRun::new(&started.claimed.expect("a new run is leased"));
        let tasks = (0..TASKS).map(|at| harness::task(at, self.dice.options())).collect();
        self.servers.store(0).commit(held.commit(tasks)).await.unwrap();
    }

    async fn step(&mut self) {
        let server = self.server();
        match self.dice.below(10) {
            0 => self.change_settings().await,
            1 | 2 => self.die(server),
            3 => {
                self.clock.advance(seconds(1 + self.dice.below(20)));
                self.expire().await;
            }
            4 | 5 => self.report().await,
            _ => {
                let limit = self.dice.below(6) as usize;
                self.claim(server, limit).await;
                // Dies before any code of the tasks ran.
                if self.dice.below(6) == 0 {
                    self.die(server);
                }
            }
        }
    }

    fn die(&mut self, server: usize) {
        self.servers.die(server);
        self.deaths += 1;
        if self.servers.takes_workers_along() {
            self.holders.retain(|holder| holder.server != server);
        }
    }

    async fn expire(&mut self) {
        let now = self.clock.now();
        self.holders.retain(|holder| holder.until > now);
        self.servers.store(0).expire(1_000).await.unwrap();
    }

    async fn report(&mut self) {
        if self.holders.is_empty() {
            return;
        }
        let at = self.dice.below(self.holders.len() as u64) as usize;
        let Holder { task, .. } = self.holders.swap_remove(at);
        let server = self.server(); // workers find another server
        let done = TaskReport::Completed(json("1"));
        self.servers.store(server).report_task(task.id, task.claim, done, seconds(30)).await.unwrap();
    }

    async fn claim(&mut self, server: usize, limit: usize) -> usize {
        let (queues, kinds) = (vec![Some(name(QUEUE))], Arc::new(vec![name("mail")]));
        let by = worker(&format!("w{server}"));
        let request = ClaimTasks { worker: by, namespace: self.namespace.clone(), queues, kinds, limit, lease: seconds(30) };
        let claimed = self.servers.store(server).claim_tasks(request).await.unwrap();
        let (count, until) = (claimed.len(), self.clock.now().after(seconds(30)));
        self.holders.extend(claimed.into_iter().map(|task| Holder { task, server, until }));
        if count > 0 {
            check(&self.settings, self.holders.iter().map(|holder| &holder.task).collect(), count);
        }
        count
    }

    async fn open(&self) -> Vec<Task> {
        let query = TaskQuery { namespace: self.namespace.clone(), limit: usize::MAX, ..TaskQuery::default() };
        self.servers.store(0).list_tasks(query).await.unwrap()
    }

    /// Lets every task end, within the limits; a slot that is lost for good would leave some.
    async fn drain(&mut self) {
        for _ in 0..1_000 {
            let open = self.open().await;
            if open.is_empty() {
                return;
            }
            for task in open.into_iter().filter(|task| task.state == TaskState::Quarantined && task.refused.is_none()) {
                self.servers.store(0).retry_task(task.id).await.unwrap();
            }
            self.clock.advance(seconds(40)); // every lease has ended, and every delay (K5)
            self.expire().await;
            let server = self.server();
            self.claim(server, 100).await;
            while !self.holders.is_empty() {
                self.report().await;
            }
        }
        panic!("QL3: a slot is lost: {:?}", self.open().await);
    }
}

/// Checks what is held after a claim of the last `count` tasks. A task that needs more than a limit, which was lowered, is held
/// alone (QL8). Leases from before a limit was lowered are no excuse: nothing is claimed while they exceed it.
fn check(settings: &QueueSettings, held: Vec<&Task>, count: usize) {
    let exceeds = |held: &[&Task], limit: Option<u32>| {
        held.len() > 1 && limit.is_some_and(|limit| held.iter().map(|task| task.options.slots()).sum::<u32>() > limit)
    };
    let shown = || held.iter().map(|task| (task.options.key_text(), task.options.slots())).collect::<Vec<_>>();
    assert!(!exceeds(&held, settings.concurrency_max), "QL1: {:?} with {settings:?}", shown());
    for newest in held[held.len() - count..].iter().filter(|task| task.options.key.is_some()) {
        let of_key: Vec<&Task> = held.iter().copied().filter(|task| task.options.key == newest.options.key).collect();
        assert!(!exceeds(&of_key, settings.key_concurrency_max), "QL1: {:?} with {settings:?}", shown());
    }
}
