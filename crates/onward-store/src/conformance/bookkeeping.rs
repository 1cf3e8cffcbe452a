//! LG1 to LG4 over random operations: every query of the ledger agrees with a test oracle that counts every attempt once.

use std::collections::BTreeMap;

use onward_core::event::{CallAdopted, Divergence, RunContinued, RunFailed, SegmentAbandoned, TaskCanceled};
use onward_core::ledger::{LedgerSum, SpendBy, SpendQuery, SpendRow};
use onward_core::projection::Projection;
use onward_core::reopen::{self, Retry};
use onward_core::root_run::root_run;
use onward_core::run::{Commit, Input};
use onward_core::spend::{PicoDollars, Spend, SpendTotals, Tokens, day_of};
use onward_core::task::{RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Failure, Index, Record, RunId, Status, Timestamp};

use super::harness::{Harness, HeldRun, call_id, completed, json, key, seconds, settled, signal, task_of, terminate, worker};
use super::restoring::fork;
use crate::{Delete, Restore, RestoreRun, StoreError};

/// Number of operations per sequence, and number of sequences.
const STEPS: u64 = 120;
const SEQUENCES: u64 = 4;

/// An attempt in the oracle's books: its cost is unknown until a report arrives.
struct Attempt {
    run: RunId,
    began_at: Timestamp,
    lines: Vec<Spend>,
}

/// A random sequence of operations, with the oracle's ledger.
struct RandomSequence {
    harness: Harness,
    random: u64,
    /// Open runs.
    runs: Vec<String>,
    next: u32,
    /// Attempts that a worker executes, or still believes to, with their index in `books`.
    hands: Vec<(usize, Task)>,
    /// Reports that were sent, to be sent again.
    reported: Vec<(Task, TaskReport)>,
    books: Vec<Attempt>,
    /// Number of attempts in abandoned segments.
    left: usize,
}

pub async fn every_way_of_asking_agrees_with_a_bookkeeper(harness: Harness) {
    let (runs, hands, reported, books) = Default::default();
    let mut sequence = RandomSequence { harness, random: 0, runs, next: 0, hands, reported, books, left: 0 };
    for seed in 0..SEQUENCES {
        eprintln!("seed {seed}");
        sequence.random = seed;
        for _ in 0..STEPS {
            sequence.step().await;
        }
        sequence.check().await;
    }
    sequence.harness.reopen();
    sequence.check().await;
    let counted: u64 = sequence.sums(|_, _| String::new()).values().map(|totals| totals.attempts).sum();
    assert!(counted > 100, "{counted} attempts are too few for a meaningful test");
    assert!(sequence.left > 20, "{} abandoned attempts are too few for a meaningful test", sequence.left);
}

impl RandomSequence {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn some_run(&mut self) -> Option<String> {
        let count = self.runs.len() as u64;
        (count > 0).then(|| self.below(count) as usize).map(|at| self.runs[at].clone())
    }

    async fn step(&mut self) {
        let span = if self.below(12) == 0 { seconds(40_000) } else { seconds(1) };
        self.harness.pass(span);
        match self.below(18) {
            0 => self.start().await,
            1 | 2 => self.schedule().await,
            3..=6 => self.hand_out().await,
            7..=9 => self.report().await,
            10 => self.repeat_report().await,
            11 => drop(self.harness.expire().await),
            12 => self.fork().await,
            13 => self.go_on().await,
            14 => self.withdraw().await,
            15 | 16 => self.leave().await,
            _ => self.end().await,
        }
    }

    async fn start(&mut self) {
        // Some of them are children, by their ids.
        let parent = self.some_run().filter(|_| self.next.is_multiple_of(2));
        let number = self.number();
        let id = parent.map_or(format!("r{number}"), |parent| format!("{parent}/{number}"));
        self.harness.start_held(&id).await;
        self.runs.push(id);
    }

    /// Claims the run, whichever worker held it.
    async fn take(&self, id: &str) -> HeldRun {
        let (store, head) = (self.harness.store(), self.harness.head(id).await);
        store.release_run(key(id), head.epoch).await.unwrap();
        let taken = store.claim_run(key(id), worker("w"), Some(signal(None))).await.unwrap();
        HeldRun::new(&taken.claimed.expect("it has a signal to read"))
    }

    async fn commit(&self, id: &str, events: Vec<Event>) {
        let held = self.take(id).await;
        self.harness.store().commit(held.commit(events)).await.unwrap();
    }

    async fn schedule(&mut self) {
        let Some(id) = self.some_run() else { return };
        let (number, costs) = (self.number(), self.below(4) > 0);
        let options = TaskOptions { costs, retry: Some(RetryPolicy::attempts(3).delay(seconds(1))), ..TaskOptions::default() };
        self.commit(&id, vec![task_of("mail", number, options)]).await;
    }

    async fn hand_out(&mut self) {
        for task in self.harness.claim_tasks("t", 2).await {
            let (ledger_name, began_at) = (task.ledger_name(), task.started_at);
            let lines = ledger_name.map(Spend::unknown).into_iter().collect();
            self.books.push(Attempt { run: task.id.run.id.clone(), began_at: began_at.unwrap(), lines });
            self.hands.push((self.books.len() - 1, task));
        }
    }

    /// Reports the outcome of an attempt, possibly long after another worker took the task over.
    async fn report(&mut self) {
        if self.hands.is_empty() {
            return;
        }
        let at = self.below(self.hands.len() as u64) as usize;
        let (book, task) = self.hands.swap_remove(at);
        let models = self.below(3);
        let line = |number: u64, tokens: u64| {
            let tokens = Tokens { input: tokens, output: number, ..Tokens::default() };
            Spend::on(format!("m{number}")).tokens(tokens).cost(PicoDollars(tokens.total() * 3))
        };
        let lines: Vec<Spend> = (0..models).map(|number| line(number, self.below(1_000))).collect();
        let report = match self.below(3) {
            0 => TaskReport::Completed(json("1")),
            1 => TaskReport::Failed(Failure::retryable("busy")),
            _ if lines.is_empty() => TaskReport::NotStarted,
            _ => TaskReport::Interrupted,
        };
        let report = if lines.is_empty() { task.unbegun(report) } else { report.with_spend(task.attempt_spend(lines.clone())) };
        if self.send_report(&task, &report).await {
            self.books[book].lines = lines;
            self.reported.push((task, report));
        }
    }

    /// Sends a report and returns whether its cost was recorded.
    async fn send_report(&self, task: &Task, report: &TaskReport) -> bool {
        let reply = self.harness.store().report_task(task.id.clone(), task.claim, report.clone(), seconds(30)).await;
        let Err(error) = reply else { return true };
        assert_eq!(error.code(), "task_attempt_over", "{error}");
        let Some(ended) = report.attempt_ended(&task.id, task.claim) else { return true };
        match self.harness.append(task.id.run.id.as_str(), Input::attempt_ended(ended)).await {
            Ok(_) => true,
            Err(StoreError::RunNotFound { .. }) => false,
            Err(error) => {
                assert_eq!(error.code(), "run_closed", "{error}");
                false
            }
        }
    }

    /// Repeats a report, as after a lost reply.
    async fn repeat_report(&mut self) {
        if let Some((task, report)) = self.reported.pop() {
            self.send_report(&task, &report).await;
        }
    }

    async fn fork(&mut self) {
        let Some(id) = self.some_run() else { return };
        let held = self.take(&id).await;
        self.harness.store().commit(held.commit(vec![settled()])).await.unwrap();
        let (head, log) = (self.harness.head(&id).await, self.harness.records(&id).await);
        let fork_id = format!("{id}/fork-{}", self.number());
        let wanted = fork(&fork_id, log.last().unwrap().last_index().0, false);
        let forked = reopen::fork(&head, Vec::new(), &log, &wanted, self.harness.now()).unwrap();
        let what = Restore::Run { logs: forked.logs };
        self.harness.store().restore_run(RestoreRun { key: key(&fork_id), what, outbox: forked.outbox }).await.unwrap();
        self.runs.push(fork_id);
    }

    /// Continues a run as new, or fails and retries it.
    async fn go_on(&mut self) {
        let Some(id) = self.some_run() else { return };
        if self.below(2) == 0 {
            self.commit(&id, vec![RunContinued { input: json("2"), checkpoint: None }.into()]).await;
            return;
        }
        let failure = Failure::fatal("no paper");
        self.commit(&id, vec![RunFailed { failure, attempts: None }.into()]).await;
        let (head, log) = (self.harness.head(&id).await, self.harness.records(&id).await);
        let request_id = format!("again-{}", self.number());
        let again = reopen::retry(&head, &log, &Retry::new(request_id.clone()), self.harness.now()).unwrap();
        let what = Restore::Retry { after: head.generation, log: again.records, request_id };
        self.harness.store().restore_run(RestoreRun { key: key(&id), what, outbox: again.outbox }).await.unwrap();
    }

    /// Cancels a task that a worker may be executing.
    async fn withdraw(&mut self) {
        let Some((_, task)) = self.hands.last() else { return };
        let (id, number) = (task.id.run.id.as_str().to_owned(), task.id.call_id.clone());
        if self.runs.contains(&id) && self.harness.head(&id).await.generation == task.id.generation {
            self.commit(&id, vec![TaskCanceled { call_id: number }.into()]).await;
        }
    }

    /// Diverges as an agent's code may: abandons some of the last commits; their calls continue or are adopted. The cost of an
    /// attempt counts wherever its event is in the log.
    async fn leave(&mut self) {
        let Some(id) = self.some_run() else { return };
        let held = self.take(&id).await;
        let log = self.harness.records(&id).await;
        let commits: Vec<&Record> = log.iter().filter(|record| record.commit.is_some()).collect();
        if commits.is_empty() {
            return;
        }
        let first = commits[self.below(commits.len() as u64) as usize];
        let range: Vec<&Event> =
            log.iter().filter(|record| record.index >= first.index).flat_map(|record| &record.events).collect();
        let is_begun = |call_id: &CallId| {
            let is_it = |event: &Event| matches!(event, Event::TaskAttempted(event) if event.call_id == *call_id);
            log.iter().flat_map(|record| &record.events).any(is_it)
        };
        let scheduled = range.iter().filter_map(|event| match event {
            Event::TaskScheduled(event) => Some(event.call_id.clone()),
            _ => None,
        });
        let (begun, withdrawn): (Vec<CallId>, Vec<CallId>) = scheduled.partition(is_begun);
        self.left += range.iter().filter(|event| matches!(event, Event::TaskAttempted(_))).count();
        let before = log.iter().filter(|record| matches!(record.events.first(), Some(Event::SegmentAbandoned(_)))).count();
        let attempt = u32::try_from(before).unwrap_or(u32::MAX) + 1;
        let (from, to, number) = (first.index, held.horizon, self.number());
        let divergence =
            Divergence { index: from, recorded: String::new(), attempted: String::new(), nearest: None, hint: String::new() };
        let mut events: Vec<Event> = vec![SegmentAbandoned { from, to, attempt, withdrawn, divergence }.into()];
        let adopted = begun.first().filter(|_| number.is_multiple_of(2)).cloned();
        events.push(match adopted {
            Some(from) => CallAdopted { call_id: call_id(number), from }.into(),
            None => task_of("mail", number, TaskOptions { costs: true, ..TaskOptions::default() }),
        });
        // The commit takes the horizon of the first abandoned one.
        let horizon = first.commit.map_or(Index(0), |commit| commit.horizon);
        self.harness.store().commit(Commit { horizon, ..held.commit(events) }).await.unwrap();
    }

    async fn end(&mut self) {
        let Some(id) = self.some_run().filter(|_| self.runs.len() > 3) else { return };
        self.runs.retain(|other| *other != id);
        match self.below(3) {
            0 => drop(self.harness.append(&id, terminate()).await.unwrap()),
            _ => self.commit(&id, vec![completed()]).await,
        }
        assert!(self.harness.head(&id).await.status != Status::Pending);
        if self.below(2) == 0 {
            self.harness.store().delete_runs(Delete::Run { key: key(&id), reason: String::new() }).await.unwrap();
        }
    }

    fn sums(&self, by: impl Fn(&Attempt, &Spend) -> String) -> BTreeMap<String, SpendTotals> {
        let mut sums: BTreeMap<String, SpendTotals> = BTreeMap::new();
        for attempt in &self.books {
            for line in &attempt.lines {
                let known = sums.entry(by(attempt, line)).or_default();
                *known = known.plus(&SpendTotals::of(line));
            }
        }
        sums
    }

    /// Returns the totals derived from the logs of a run alone.
    async fn by_logs(&self, id: &str) -> SpendTotals {
        let mut sum = LedgerSum::default();
        for generation in 0..=self.harness.head(id).await.generation {
            let records = self.harness.store().read_log(key(id), Some(generation), Index(0), usize::MAX).await.unwrap();
            let rows = Projection::of(key(id), &records).expect("a log begins with its run").ledger;
            sum = rows.values().fold(sum, |sum, row| sum.plus(row));
        }
        sum.totals()
    }

    async fn check(&self) {
        let day = |attempt: &Attempt, _: &Spend| {
            let midnight = Timestamp(u64::from(day_of(attempt.began_at)) * 86_400_000).to_string();
            midnight[..10].to_owned()
        };
        for by in SpendBy::ALL.iter().copied() {
            let expected = match by {
                SpendBy::Model => self.sums(|_, line| line.model.clone()),
                SpendBy::Day => self.sums(day),
                SpendBy::Run => self.sums(|attempt, _| attempt.run.as_str().to_owned()),
                SpendBy::Tree => self.sums(|attempt, _| root_run(&attempt.run).to_owned()),
            };
            let query = SpendQuery { limit: usize::MAX, ..SpendQuery::by(by) };
            let rows = self.harness.store().spend(query).await.unwrap();
            let reply: BTreeMap<String, SpendTotals> = rows.into_iter().map(|SpendRow { name, totals }| (name, totals)).collect();
            assert_eq!(reply, expected, "by {}", by.as_str());
        }
        let by_run = self.sums(|attempt, _| attempt.run.as_str().to_owned());
        for id in &self.runs {
            let own = self.harness.head(id).await.spend.map(|totals| *totals).unwrap_or_default();
            let expected = by_run.get(id).copied().unwrap_or_default();
            assert_eq!(own, expected, "LG3 of {id}");
            assert_eq!(self.by_logs(id).await, expected, "LG3 of the logs of {id}");
        }
    }
}
