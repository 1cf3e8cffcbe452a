//! Equality of states. Times are compared relative to now, epochs and commit ids by their owner, so that equivalent states are
//! explored once.

use std::hash::{Hash, Hasher};

use onward_core::task::Task;
use onward_core::{CommitId, Timestamp};

use crate::decide::Tx;
use crate::rows::{Id, Op, Run, Sent};
use crate::world::{Hold, World};

struct Fingers<'a> {
    world: &'a World,
    /// The server that is hashed first.
    first: usize,
    hasher: Mixer,
}

impl World {
    /// Returns a 16-byte hash of the state. Servers that are `alike` are interchangeable.
    pub fn fingerprint(&self, alike: bool) -> u128 {
        let of = |first: usize| {
            let mut fingers = Fingers { world: self, first, hasher: Mixer { sums: [1, 2] } };
            fingers.world();
            let [high, low] = fingers.hasher.sums.map(u128::from);
            high << 64 | low
        };
        if alike { of(0).min(of(1)) } else { of(0) }
    }
}

/// Two sums over one stream, each word mixed in by a multiplication and a shift; twice as wide as the hashers of the standard
/// library.
struct Mixer {
    sums: [u64; 2],
}

impl Mixer {
    fn mix(&mut self, word: u64) {
        let [a, b] = self.sums;
        let a = (a ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let b = (b.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.sums = [a ^ (a >> 29), b ^ (b >> 32)];
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }
    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }
    fn finish(&self) -> u64 {
        self.sums[0]
    }
}

impl Fingers<'_> {
    fn put(&mut self, value: impl Hash) {
        value.hash(&mut self.hasher);
    }

    fn time(&mut self, at: Option<Timestamp>) {
        self.put(at.map(|at| at.0.saturating_sub(self.world.now.0)));
    }

    fn worker(&mut self, worker: Option<Id>) {
        self.put(
            worker.map(|worker| {
                (self.first == usize::from(worker % 2), self.world.servers[usize::from(worker % 2)].worker == worker)
            }),
        );
    }

    /// Hashes whether a claim is the newest one; older ones are equivalent.
    fn claim(&mut self, claim: u64) {
        self.put(self.world.db.run.as_ref().map(|run| run.claims == claim));
    }

    fn world(&mut self) {
        let world = self.world;
        self.put(world.faults);
        self.put(&world.executed);
        self.put((world.client.start, world.client.signal, world.client.cancel));
        self.run(world.db.run.as_deref());
        self.time(world.db.timer);
        self.task(world.db.task.as_ref());
        self.worker(world.db.holder.filter(|_| world.db.task.is_some()));
        for side in [self.first, 1 - self.first] {
            let own = world.db.sessions.iter().filter(|(worker, _)| usize::from(**worker % 2) == side);
            for (worker, until) in own {
                self.worker(Some(*worker));
                self.time(Some(*until));
            }
            let server = &world.servers[side];
            self.put((
                server.up,
                server.met,
                server.task.map(|task| (task.claim, task.attempt, task.stage, task.report_kind, task.is_sent)),
            ));
            self.time(server.doubt);
            self.put(server.queue.len());
            server.queue.iter().for_each(|op| self.op(op));
            self.hold(server.hold.as_ref());
            self.tx(server.append.as_ref());
            self.tx(server.pool.as_ref());
        }
        self.put(world.cut_off.len());
        world.cut_off.iter().for_each(|tx| self.tx(Some(tx)));
    }

    fn run(&mut self, run: Option<&Run>) {
        self.put(run.is_some());
        let Some(run) = run else { return };
        self.worker(run.worker);
        self.put((run.ready, run.head.status, run.slot.is_some()));
        self.put(self.world.db.run.as_ref().map(|own| run.claims - own.claims.min(run.claims)));
        self.put(self.world.db.run.as_ref().map(|own| run.head.epoch.0 - own.head.epoch.0.min(run.head.epoch.0)));
        for entry in &run.log {
            self.put((entry.index, entry.fact, entry.by.map(|by| by.horizon)));
        }
    }

    fn task(&mut self, task: Option<&Task>) {
        self.put(task.map(|task| (task.state, task.claim, task.attempt, task.lost_workers)));
        let Some(task) = task else { return };
        self.time(Some(task.lease_until));
        self.time(Some(task.visible_at));
    }

    fn hold(&mut self, hold: Option<&Hold>) {
        self.put(hold.is_some());
        let Some(hold) = hold else { return };
        self.claim(hold.claim);
        self.put((hold.seen, hold.is_sent, hold.flight.is_some()));
        hold.flight.iter().for_each(|sent| self.sent(sent));
    }

    fn sent(&mut self, sent: &Sent) {
        self.claim(sent.claim);
        self.put((sent.fact, sent.commit.n, sent.commit.horizon));
        let position = |run: &Run| run.log.iter().position(|entry| entry.by.is_some_and(|by| by.commit == id(sent)));
        self.put(self.world.db.run.as_deref().and_then(position));
        // Open transactions know the commit by its position in their own copy.
        let call_ids: Vec<_> = self.open().map(|tx| tx.run.as_deref().and_then(position)).collect();
        self.put(call_ids);
    }

    fn open(&self) -> impl Iterator<Item = &Tx> {
        let servers = [self.first, 1 - self.first].map(|side| &self.world.servers[side]);
        servers.into_iter().flat_map(|server| server.append.iter().chain(&server.pool)).chain(&self.world.cut_off)
    }

    fn op(&mut self, op: &Op) {
        self.put(std::mem::discriminant(op));
        match op {
            Op::Start { claim } => self.worker(*claim),
            Op::Commit(sent) => self.sent(sent),
            Op::Release { claim, .. } => self.claim(*claim),
            Op::Report { claim, report_kind, by } => {
                self.put((claim, report_kind));
                self.worker(Some(*by));
            }
            Op::Signal | Op::Cancel => {}
        }
    }

    fn tx(&mut self, tx: Option<&Tx>) {
        self.put(tx.is_some());
        let Some(tx) = tx else { return };
        self.put((tx.kind, tx.holds_run, tx.holds_task, tx.timer_due, tx.ends.len(), tx.sessions.len()));
        tx.ends.iter().chain(&tx.sessions).for_each(|worker| self.worker(Some(*worker)));
        self.put(self.world.now.0 - tx.clock.0);
        self.worker(Some(tx.worker));
        self.worker(tx.greets);
        self.run(tx.run.as_deref());
        self.put(tx.timer.is_some());
        tx.timer.iter().for_each(|timer| self.time(*timer));
        self.put(tx.task.is_some());
        self.worker(tx.holder);
        tx.task.iter().for_each(|task| self.task(task.as_ref()));
        self.put((tx.ops.len(), tx.leased.is_some()));
        tx.ops.iter().for_each(|(op, answer)| {
            self.op(op);
            self.put(std::mem::discriminant(answer));
        });
    }
}

fn id(sent: &Sent) -> CommitId {
    sent.commit.commit_id
}
