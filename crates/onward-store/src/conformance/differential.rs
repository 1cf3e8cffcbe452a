//! Differential test: the same operations at the same time get the same replies from two stores and leave the same state.

use std::collections::BTreeMap;

use onward_core::event::LostWorkers;
use onward_core::run::OutboxMessage;
use onward_core::{Epoch, Event, Index, Record, RunHead, RunKey};

use super::block_on;
use super::harness::{hand_over, namespaces};
use super::random::{Answer, Operation, Trace, World, perform};
use crate::{Clock, DeletedQuery, ManualClock, OutboxId, RunQuery, SESSION_DEFAULT, Store, WaitQuery};

/// Applies the same `steps` random operations to two empty stores and compares everything readable after each.
///
/// Both use `clock`. Later operations are derived from the replies of the reference.
pub fn differential(seed: u64, steps: u32, store: &dyn Store, reference: &dyn Store, clock: &ManualClock) {
    block_on(compare_stores(World::new(seed), Trace::new(seed), steps, [store, reference], clock, false));
}

/// Runs the same test with a queue whose limits change: both stores lease the same tasks.
pub fn differential_of_limits(seed: u64, steps: u32, store: &dyn Store, reference: &dyn Store, clock: &ManualClock) {
    block_on(compare_stores(World::with_limits(seed), Trace::new(seed), steps, [store, reference], clock, false));
}

/// Runs the same test for a sharded store, in which each shard knows only the workers that claimed in it. A worker sends a
/// heartbeat before it claims, so that its session is as old in every shard as in the reference.
pub fn differential_of_known_workers(seed: u64, steps: u32, store: &dyn Store, reference: &dyn Store, clock: &ManualClock) {
    block_on(compare_stores(World::new(seed), Trace::new(seed), steps, [store, reference], clock, true));
}

async fn compare_stores(
    mut world: World,
    mut trace: Trace,
    steps: u32,
    stores: [&dyn Store; 2],
    clock: &ManualClock,
    is_known: bool,
) {
    let [store, reference] = stores;
    let (mut heads, mut epochs) = (BTreeMap::new(), Epochs::default());
    for _ in 0..steps {
        clock.advance(world.pause());
        let operation = world.choose(reference, clock.now()).await;
        trace.next(&operation);
        if let Operation::Start(_, Some(worker)) | Operation::Claim(worker, _) = &operation
            && is_known
        {
            let heartbeat = Operation::Heartbeat(worker.clone(), SESSION_DEFAULT);
            assert_eq!(perform(store, &heartbeat).await, perform(reference, &heartbeat).await);
        }
        if let Operation::Deliver = operation {
            deliver_to_both(store, reference).await;
        } else {
            let mut expected = perform(reference, &operation).await;
            let mut answer = perform(store, &epochs.translate(&operation)).await;
            epochs.learn(&mut answer, &mut expected);
            assert_eq!(answer, expected);
            world.learn(&operation, &expected);
        }
        compare_state(store, reference, &mut heads).await;
    }
}

/// Maps epochs of the reference to epochs of the store, which numbers them differently.
#[derive(Default)]
struct Epochs(BTreeMap<(RunKey, Epoch), Epoch>);

impl Epochs {
    fn of(&self, key: &RunKey, epoch: Epoch) -> Epoch {
        self.0.get(&(key.clone(), epoch)).copied().unwrap_or(Epoch(u64::MAX))
    }

    fn translate(&self, operation: &Operation) -> Operation {
        let mut operation = operation.clone();
        match &mut operation {
            Operation::Commit(commit) => commit.epoch = self.of(&commit.key, commit.epoch),
            Operation::Release(key, epoch) => *epoch = self.of(key, *epoch),
            _ => {}
        }
        operation
    }

    /// Records the leases that both stores granted and replaces the epochs of the reply by the reference's.
    fn learn(&mut self, answer: &mut Answer, expected: &mut Answer) {
        expected.heads_mut().into_iter().for_each(|head| forget_lost_claims(head.lost_workers.as_deref_mut()));
        for (ours, theirs) in answer.heads_mut().into_iter().zip(expected.clone().heads_mut()) {
            self.0.insert((theirs.key.clone(), theirs.epoch), ours.epoch);
            ours.epoch = theirs.epoch;
            forget_lost_claims(ours.lost_workers.as_deref_mut());
        }
    }
}

/// Removes the epochs of the claims of lost workers.
fn forget_lost_claims(lost: Option<&mut LostWorkers>) {
    lost.into_iter().flat_map(|lost| &mut lost.latest).for_each(|lost| lost.epoch = Epoch(0));
}

/// Returns the records without their epochs.
fn plain(mut records: Vec<Record>) -> Vec<Record> {
    for event in records.iter_mut().flat_map(|record| &mut record.events) {
        if let Event::RunPaused(pause) = event {
            forget_lost_claims(pause.lost_workers.as_mut());
        }
    }
    records.iter_mut().filter_map(|record| record.commit.as_mut()).for_each(|commit| commit.epoch = Epoch(0));
    records
}

fn plain_heads(heads: impl IntoIterator<Item = RunHead>) -> Vec<RunHead> {
    let plain = |mut head: RunHead| {
        forget_lost_claims(head.lost_workers.as_deref_mut());
        RunHead { epoch: Epoch(0), ..head }
    };
    heads.into_iter().map(plain).collect()
}

/// Delivers the outbox of both stores in the order of the reference; stores number messages differently, and those of one write
/// have no order.
async fn deliver_to_both(store: &dyn Store, reference: &dyn Store) {
    let (ours, theirs) = (store.outbox_messages(1_000).await.unwrap(), reference.outbox_messages(1_000).await.unwrap());
    assert_eq!(sorted(&ours), sorted(&theirs));
    for (_, delivery) in &theirs {
        hand_over(store, delivery.clone()).await;
        hand_over(reference, delivery.clone()).await;
    }
    store.finish_deliveries(ours.into_iter().map(|(id, _)| id).collect()).await.unwrap();
    reference.finish_deliveries(theirs.into_iter().map(|(id, _)| id).collect()).await.unwrap();
}

fn sorted(outbox_messages: &[(OutboxId, OutboxMessage)]) -> Vec<Vec<u8>> {
    let mut bytes: Vec<Vec<u8>> = outbox_messages.iter().map(|(_, delivery)| delivery.to_bytes()).collect();
    bytes.sort();
    bytes
}

/// Compares the state of both stores. `heads` is the state after the previous step: only logs of changed runs are read again.
async fn compare_state(store: &dyn Store, reference: &dyn Store, heads: &mut BTreeMap<RunKey, RunHead>) {
    let mut runs = Vec::new();
    for namespace in namespaces() {
        let query = || RunQuery { namespace: namespace.clone(), limit: 1_000, ..Default::default() };
        let listed = reference.list_runs(query()).await.unwrap().runs;
        assert_eq!(plain_heads(store.list_runs(query()).await.unwrap().runs), plain_heads(listed.clone()));
        runs.extend(listed);
        let waits = || WaitQuery { namespace: namespace.clone(), limit: 1_000, ..Default::default() };
        assert_eq!(store.list_waits(waits()).await.unwrap(), reference.list_waits(waits()).await.unwrap());
        let deleted = || DeletedQuery { namespace: namespace.clone(), limit: 1_000, ..Default::default() };
        assert_eq!(store.list_deleted(deleted()).await.unwrap(), reference.list_deleted(deleted()).await.unwrap());
    }
    let moved = runs.iter().filter(|head| heads.get(&head.key) != Some(head));
    for head in moved {
        for generation in head.generation.saturating_sub(1)..=head.generation {
            let generation = Some(generation);
            let log = reference.read_log(head.key.clone(), generation, Index(0), usize::MAX).await.unwrap();
            assert_eq!(plain(store.read_log(head.key.clone(), generation, Index(0), usize::MAX).await.unwrap()), plain(log));
            let old = reference.read_run(head.key.clone(), generation).await.unwrap();
            assert_eq!(plain_heads(store.read_run(head.key.clone(), generation).await.unwrap()), plain_heads(old));
        }
    }
    *heads = runs.into_iter().map(|head| (head.key.clone(), head)).collect();
}
