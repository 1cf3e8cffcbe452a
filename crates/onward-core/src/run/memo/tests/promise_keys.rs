//! Promises with one key, whose messages arrive in any order and repeatedly, against the logs of their runs.

use super::*;
use crate::log::event::{RetryRequested, TimerFired, WaitCanceled};

fn world(seed: u64) -> World {
    World::new(seed, MemoCell::of_promise("k".to_owned()))
}

/// Returns true if the promise has a result, a deadline that has passed, or was withdrawn.
fn has_ended(records: &[Record], promise: &CallId) -> bool {
    records.iter().flat_map(|record| &record.events).any(|event| match event {
        Event::PromiseResolved(event) => event.call_id == *promise,
        Event::WaitCanceled(event) => event.call_id == *promise,
        Event::TimerFired(event) => event.call_id == *promise,
        _ => false,
    })
}

impl World {
    /// Creates a promise in one of the runs.
    fn create(&mut self) {
        let (run, call_id) = self.some_new_call();
        let (name, key) = (Name::new("paid").unwrap(), Some(self.memo.key.clone()));
        let created = PromiseCreated { call_id, name, deadline: Some(Timestamp(u64::MAX)), key };
        self.commit(&run, vec![created.into()]);
    }

    /// Returns the open promises, as the logs have them.
    fn open_promises(&self) -> Vec<MemoCaller> {
        let mut open = Vec::new();
        for (run, kept) in self.runs.iter().filter(|(_, kept)| kept.head.cell.is_none() && !kept.head.status.is_closed()) {
            for event in kept.records.iter().flat_map(|record| &record.events) {
                if let Event::PromiseCreated(PromiseCreated { call_id, .. }) = event
                    && !has_ended(&kept.records, call_id)
                {
                    let (run, call_id, incarnation) = (run.clone(), call_id.clone(), kept.head.incarnation);
                    open.push(MemoCaller { run, generation: 0, call_id, incarnation });
                }
            }
        }
        open
    }

    /// Ends an open promise, or its whole run.
    fn end_promise(&mut self) {
        let open = self.open_promises();
        if open.is_empty() {
            return;
        }
        let MemoCaller { run, call_id, .. } = open[self.seeded.below(open.len())].clone();
        match self.seeded.below(5) {
            0 => self.input(&run, Input::new(TimerFired { call_id })),
            1 => self.commit(&run, vec![WaitCanceled { call_id }.into()]),
            2 => self.end(&run, |world, run| {
                world.commit(run, vec![RunFailed { failure: Failure::new("f", "f"), attempts: None }.into()]);
            }),
            _ => {
                let result = Ok(Payload::null());
                let resolved = PromiseResolved { call_id: call_id.clone(), result, resolution_id: "x".to_owned() };
                self.input(&run, Input::answer(resolved, 0, &call_id, "x"));
            }
        }
    }

    fn act_on_promises(&mut self) {
        self.step += 1;
        match self.seeded.below(12) {
            0..3 => self.create(),
            3..5 => self.end_promise(),
            5 => drop(self.delete_cell()),
            _ => self.deliver(true),
        }
        let granted = self.runs.values().flat_map(|kept| &kept.head.memos).filter(|memo| memo.grant.is_some()).count();
        assert!(granted <= 1, "PK1: {granted} open promises have the key");
    }

    /// Delivers all messages and returns the only promise that is still open, which the cell names.
    fn deliver_all(&mut self) -> Option<MemoCaller> {
        for _ in 0..20_000 {
            self.step += 1;
            if self.messages.is_empty() {
                break;
            }
            self.deliver(false);
        }
        assert_eq!(self.messages, [], "the messages end");
        self.check_heads();
        let open = self.open_promises();
        assert!(open.len() <= 1, "PK1: {open:?}");
        let memos = self.runs.iter().flat_map(|(run, kept)| kept.head.memos.iter().map(move |memo| (run, memo)));
        let kept: Vec<_> = memos.map(|(run, memo)| (run, &memo.requested.call_id, memo.grant.is_some())).collect();
        let expected: Vec<_> = open.iter().map(|by| (&by.run, &by.call_id, true)).collect();
        assert_eq!(kept, expected, "only the open promise has the key");
        if let Some(by) = open.first() {
            let cell = self.runs[&self.cell_key()].head.cell.as_ref().expect("it is a cell");
            assert_eq!(cell.promise(), Some(by), "PK2");
        }
        open.into_iter().next()
    }
}

#[test]
fn a_key_belongs_to_one_open_promise_in_any_order_of_messages_and_ends() {
    let taken = for_each_seed(3_000, |seed| {
        let mut world = world(seed);
        (0..100).for_each(|_| world.act_on_promises());
        while world.deliver_all().is_some() {
            world.end_promise();
        }
        // A key without an open promise goes to the next one.
        world.create();
        let created = world.open_promises();
        assert_eq!(world.deliver_all(), created.into_iter().next());
        let events = world.runs.values().flat_map(|kept| &kept.records).flat_map(|record| &record.events);
        events.filter(|event| matches!(event, Event::PromiseResolved(event) if event.resolution_id == KEY_TAKEN)).count() as u64
    });
    assert!(taken > 1_000, "the worlds have promises that fail: {taken}");
}

/// PK1: the timer of a promise is its deadline; that of a call with a memo is its next attempt.
#[test]
fn the_timer_of_a_call_does_not_return_its_memo() {
    let mut world = World::new(1, memo());
    world.ask();
    let (run, call_id) = world.some_call(|_| true).unwrap();
    world.input(&run, Input::new(TimerFired { call_id }));
    assert_eq!(world.runs[&run].head.memos.len(), 1);
}

/// PK2: a request that is delivered again after the end of its promise does not renew the cell.
#[test]
fn a_repeated_request_leaves_the_key_with_the_promise_that_ended() {
    for seed in 1..20 {
        let mut world = world(seed);
        world.create();
        let request = world.messages[0].clone();
        let open = world.deliver_all();
        world.end_promise();
        world.deliver_all();
        world.messages.push(request);
        world.deliver_all();
        let cell = world.runs[&world.cell_key()].head.cell.clone().unwrap();
        assert_eq!(cell.promise(), open.as_ref());
    }
}

/// PK2: the run gives the answer of the cell back, because the promise has ended, before the cell learns about the end.
#[test]
fn a_promise_that_ends_before_it_learns_that_it_has_the_key_is_found_by_it_later() {
    for seed in 1..50 {
        let mut world = world(seed);
        world.create();
        let open = world.open_promises();
        world.deliver(false); // the request
        world.end_promise();
        world.deliver_all();
        let cell = world.runs[&world.cell_key()].head.cell.clone().unwrap();
        assert_eq!(cell.promise(), open.first());
    }
}

/// MM7: a copy owns nothing; the key leads to the promise as it was created.
#[test]
fn a_run_that_continues_from_a_copy_requests_no_keys() {
    let mut world = world(1);
    world.create();
    let promise = world.deliver_all().unwrap();
    let mut records = world.runs[&promise.run].records.clone();
    let (request_id, reason, children) = ("r".to_owned(), String::new(), Vec::new());
    let retry = RetryRequested { request_id, reason, children, spend: None, budget_max: None };
    records.push(Record::input(records.last().unwrap().next_index(), world.now, retry.into()));
    assert_eq!(RunHead::rebuild(promise.run, &records).unwrap().memos, []);
}
