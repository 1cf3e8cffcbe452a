//! The schedule of faults: a list shuffled by a seed, again and again, so that each kind occurs about equally often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use onward_testkit::{Cluster, Proxy};

use super::fleet::{Fleet, LEASE};
use crate::crash::Chance;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillServer,
    KillWorker,
    /// Stopped for a while, which may be longer than its lease, and continued.
    StopServer,
    StopWorker,
    /// The database is shut down fast, shut down immediately, or killed.
    RestartFast,
    RestartImmediate,
    KillDatabase,
    /// Connections are cut before or after one of a few COMMITs.
    CutCommits,
    CutAll,
    /// Data to the database is delayed.
    Slow,
}

const DECK: [Fault; 12] = [
    Fault::KillServer,
    Fault::KillServer,
    Fault::KillWorker,
    Fault::StopServer,
    Fault::StopServer,
    Fault::StopWorker,
    Fault::RestartFast,
    Fault::RestartImmediate,
    Fault::KillDatabase,
    Fault::CutCommits,
    Fault::CutAll,
    Fault::Slow,
];

pub struct Storm {
    pub fleet: Fleet,
    pub cluster: Cluster,
    pub proxy: Proxy,
    pub met: BTreeMap<Fault, u32>,
    chance: Chance,
    deck: Vec<Fault>,
    /// End of a network fault.
    bad_until: Option<Instant>,
}

/// Base rate of cut COMMITs: one in this many.
const CUT_ONE_IN: u64 = 40;

impl Storm {
    pub fn new(fleet: Fleet, cluster: Cluster, proxy: Proxy, chance: Chance) -> Storm {
        Storm { fleet, cluster, proxy, met: BTreeMap::new(), chance, deck: Vec::new(), bad_until: None }
    }

    /// Injects faults for `span`, then ends all faults and starts all processes.
    pub fn rage(&mut self, span: Duration) {
        let end = Instant::now() + span;
        self.proxy.cut_one_in(CUT_ONE_IN);
        let mut next = Instant::now();
        while Instant::now() < end {
            if next <= Instant::now() {
                let fault = self.draw();
                self.strike(fault);
                next = Instant::now() + self.upto(1_200);
            }
            if self.bad_until.is_some_and(|until| until <= Instant::now()) {
                self.bad_until = None;
                self.calm(CUT_ONE_IN);
            }
            self.fleet.tend();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.calm(0);
        self.fleet.heal();
    }

    fn calm(&self, cut_one_in: u64) {
        self.proxy.cut_one_in(cut_one_in);
        self.proxy.delay(Duration::ZERO);
    }

    fn draw(&mut self) -> Fault {
        if self.deck.is_empty() {
            self.deck = DECK.to_vec();
            for at in (1..self.deck.len()).rev() {
                let other = self.chance.below(at as u64 + 1) as usize;
                self.deck.swap(at, other);
            }
        }
        self.deck.pop().unwrap()
    }

    fn upto(&mut self, millis: u64) -> Duration {
        Duration::from_millis(self.chance.below(millis))
    }

    fn strike(&mut self, fault: Fault) {
        let down = self.upto(1_200);
        match fault {
            Fault::KillServer => self.one_of(0, self.fleet.servers.len()).kill(down),
            Fault::KillWorker => self.one_of(self.fleet.servers.len(), self.fleet.len()).kill(down),
            Fault::StopServer | Fault::StopWorker => {
                let span = self.upto(2 * LEASE.as_millis() as u64);
                let (from, to) = match fault {
                    Fault::StopServer => (0, self.fleet.servers.len()),
                    _ => (self.fleet.servers.len(), self.fleet.len()),
                };
                let process = self.one_of(from, to);
                if process.is_running() {
                    process.stop(span);
                }
            }
            Fault::RestartFast => self.restart(2, down),
            Fault::RestartImmediate => self.restart(3, down),
            Fault::KillDatabase => self.restart(9, down),
            Fault::CutCommits => self.worsen(|proxy| proxy.cut_one_in(3)),
            Fault::CutAll => self.proxy.cut_all(),
            Fault::Slow => self.worsen(|proxy| proxy.delay(Duration::from_millis(100))),
        }
        *self.met.entry(fault).or_default() += 1;
    }

    fn one_of(&mut self, from: usize, to: usize) -> &mut super::fleet::Process {
        let index = from + self.chance.below((to - from) as u64) as usize;
        self.fleet.get(index)
    }

    fn restart(&mut self, signal: i32, down: Duration) {
        self.cluster.stop(signal).unwrap();
        std::thread::sleep(down);
        self.cluster.go_on().unwrap();
    }

    fn worsen(&mut self, how: impl FnOnce(&Proxy)) {
        let span = self.upto(2_000);
        how(&self.proxy);
        self.bad_until = Some(Instant::now() + span);
    }
}
