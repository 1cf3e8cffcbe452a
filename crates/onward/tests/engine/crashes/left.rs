//! The final state of a test: the logs, the ledger, and the requests to the model. The three must agree.

use std::collections::BTreeMap;

use onward::ledger::{SpendBy, SpendQuery};
use onward::{Event, Onward, Payload, RunQuery, Status};
use onward_core::conversation::{entries_of, leaf_of};
use onward_core::event::TaskAttemptEnded;
use onward_core::ledger::LedgerSum;
use onward_core::root_run::root_run;
use onward_core::spend::{Spend, SpendTotals, charges};
use onward_core::task::MODEL_CALL;
use onward_core::{CallId, Index, Record, RunHead, Timestamp};

/// Equal whichever process dies, and when.
#[derive(Debug, PartialEq)]
pub struct Left {
    /// All runs by their kinds: ids of spawned runs differ.
    pub runs: Vec<LeftRun>,
    /// Requests to the model, without repetitions.
    pub requests: Vec<String>,
    pub paid: usize,
}

#[derive(Debug, PartialEq)]
pub struct LeftRun {
    pub kind: String,
    pub status: Status,
    /// Identifies the whole conversation.
    pub leaf: Option<String>,
    pub entries: usize,
    pub tasks: Vec<LeftTask>,
    /// The signals, in the order of arrival.
    pub signals: Vec<String>,
    /// The decisions, likewise.
    pub decided: Vec<(bool, String)>,
    pub abandoned: usize,
}

/// A task with its one result.
#[derive(Debug, PartialEq)]
pub struct LeftTask {
    pub generation: u32,
    pub call_id: CallId,
    pub kind: String,
    pub input: String,
    pub output: String,
    /// The cost of the attempt that brought the result.
    pub spent: Vec<Spend>,
}

/// A model call, and all its attempts.
#[derive(Debug, Default)]
struct Call {
    began: Vec<Timestamp>,
    ended: Vec<TaskAttemptEnded>,
    /// The cost of the attempt that brought the answer.
    spent: Option<Vec<Spend>>,
}

/// The content of the logs of all runs.
#[derive(Default)]
struct Read {
    runs: Vec<LeftRun>,
    calls: Vec<Call>,
    /// Rows of the ledger: by model, day, run and tree.
    rows: [BTreeMap<String, LedgerSum>; 4],
}

/// Reads everything, until it was read in one consistent state: a worker that counts as lost may still report.
pub async fn look(client: &Onward) -> Result<(Vec<LeftRun>, Calls), onward::Error> {
    loop {
        let heads = client.list_runs(RunQuery::default()).await?.runs;
        let mut read = Read::default();
        for head in &heads {
            let run = read.run(client, head).await?;
            read.runs.push(run);
        }
        let mut rows = Vec::new();
        for by in SpendBy::ALL {
            rows.push((*by, client.read_spend(SpendQuery::by(*by)).await?));
        }
        if client.list_runs(RunQuery::default()).await?.runs != heads {
            continue;
        }
        for (by, rows) in rows {
            let in_ledger: BTreeMap<String, SpendTotals> = rows.into_iter().map(|row| (row.name, row.totals)).collect();
            let in_logs = &read.rows[call_id_of(by)];
            let in_logs: BTreeMap<String, SpendTotals> = in_logs.iter().map(|(name, sum)| (name.clone(), sum.totals())).collect();
            assert_eq!(in_ledger, in_logs, "the ledger by {} is what the logs say", by.as_str());
        }
        read.runs.sort_by(|a, b| a.kind.cmp(&b.kind));
        read.calls.sort_by_key(|call| call.began.first().copied());
        return Ok((read.runs, Calls(read.calls)));
    }
}

fn call_id_of(by: SpendBy) -> usize {
    SpendBy::ALL.iter().position(|other| *other == by).expect("all of them")
}

impl Read {
    async fn run(&mut self, client: &Onward, head: &RunHead) -> Result<LeftRun, onward::Error> {
        let run = client.run::<serde_json::Value>(head.key.id.as_str())?;
        let (mut leaf, mut entries, mut total) = (None, 0, LedgerSum::default());
        let (mut tasks, mut signals, mut decided, mut abandoned) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut calls: BTreeMap<(u32, CallId), Call> = BTreeMap::new();
        for generation in 0..=head.generation {
            let log = run.log_of(generation).await?;
            leaf = leaf_of(&log).or(leaf);
            entries += entries_of(generation, &log).iter().filter(|entry| !entry.is_aside && !entry.is_abandoned).count();
            let mut open = BTreeMap::new();
            let mut last_ended: Option<(Index, &TaskAttemptEnded)> = None;
            for (index, event) in log.iter().flat_map(Record::indexed) {
                for charge in charges(event) {
                    let sum = LedgerSum::of(&charge);
                    total = total.plus(&sum);
                    self.charge(head, &charge.model, charge.day, &sum);
                }
                match event {
                    Event::TaskScheduled(event) => drop(open.insert(event.call_id.clone(), event)),
                    Event::TaskAttempted(event) if event.ledger_name.is_some() => {
                        assert!(open.contains_key(&event.call_id), "an answered call is not attempted again: {event:?}");
                        let call = calls.entry((generation, event.call_id.clone())).or_default();
                        call.began.extend(event.began_at);
                    }
                    Event::TaskAttemptEnded(event) => {
                        let call = calls.get_mut(&(event.generation, event.call_id.clone())).expect("it began");
                        call.ended.push(event.clone());
                        last_ended = Some((index, event));
                    }
                    Event::TaskCompleted(event) => {
                        let scheduled = open.remove(&event.call_id).expect("a task has one result");
                        let (kind, call_id) = (scheduled.kind.to_string(), event.call_id.clone());
                        // The cost of an attempt and its outcome are one write.
                        let brought = last_ended.filter(|(at, ended)| at.plus(1) == index && ended.call_id == call_id);
                        let spent = brought.map_or(Vec::new(), |(_, ended)| anywhere(&ended.spend));
                        if kind.starts_with(MODEL_CALL) {
                            assert!(!spent.is_empty(), "an answer comes with its cost: {event:?}");
                            let call = calls.get_mut(&(generation, call_id.clone())).expect("it began");
                            call.spent = Some(spent.clone());
                        }
                        let (input, output) = (text(&scheduled.input), text(&event.output));
                        tasks.push(LeftTask { generation, call_id, kind, input, output, spent });
                    }
                    Event::SignalReceived(event) => signals.push(text(&event.payload)),
                    Event::ApprovalDecided(event) => decided.push((event.approved, event.decision_id.clone())),
                    // What a branch abandons depends on when it was requested.
                    Event::SegmentAbandoned(event) if event.divergence.attempted.starts_with("a branch from ") => {}
                    Event::SegmentAbandoned(_) => abandoned += 1,
                    _ => {}
                }
            }
            assert!(open.is_empty(), "every task has a result: {open:?}");
        }
        assert_eq!(
            head.spend.as_deref().copied().unwrap_or_default(),
            total.totals(),
            "the totals of a run are those of its log"
        );
        self.calls.extend(calls.into_values());
        tasks.sort_by(|a, b| (a.generation, &a.call_id).cmp(&(b.generation, &b.call_id)));
        let (kind, leaf) = (head.kind.to_string(), leaf.map(|leaf| leaf.to_string()));
        Ok(LeftRun { kind, status: head.status, leaf, entries, tasks, signals, decided, abandoned })
    }

    fn charge(&mut self, head: &RunHead, model: &str, day: u32, sum: &LedgerSum) {
        for by in SpendBy::ALL {
            let name = match by {
                SpendBy::Model => model.to_owned(),
                SpendBy::Day => Timestamp(u64::from(day) * 24 * 60 * 60 * 1_000).to_string().chars().take(10).collect(),
                SpendBy::Run => head.key.id.as_str().to_owned(),
                SpendBy::Tree => root_run(&head.key.id).to_owned(),
            };
            let row = self.rows[call_id_of(*by)].entry(name).or_default();
            *row = row.plus(sum);
        }
    }
}

/// Removes the address of the model server, which differs for each test.
fn anywhere(lines: &[Spend]) -> Vec<Spend> {
    lines.iter().cloned().map(|line| line.by("")).collect()
}

fn text(payload: &Payload) -> String {
    String::from_utf8_lossy(payload.data()).into_owned()
}

/// All model calls, in the order of their start: each begins when the previous one is answered.
#[derive(Debug)]
pub struct Calls(Vec<Call>);

impl Calls {
    /// Compares them with the requests to the model, one by one. Returns the requests without repetitions.
    ///
    /// An attempt is in the ledger before its request is sent, so one whose worker died in between is there without a request.
    pub fn check(&self, answers: u64, requests: &[String], losses: u64) -> Vec<String> {
        let Calls(calls) = self;
        let mut distinct: Vec<String> = Vec::new();
        for request in requests {
            if !distinct.contains(request) {
                distinct.push(request.clone());
            }
        }
        assert_eq!(
            (calls.len() as u64, distinct.len() as u64),
            (answers, answers),
            "calls, and requests: {calls:?} {requests:?}"
        );
        for (call, body) in calls.iter().zip(&distinct) {
            let spent = call.spent.as_ref().expect("every call has an answer");
            let count = requests.iter().filter(|request| *request == body).count();
            let unbegun = call.ended.iter().filter(|ended| ended.spend.is_empty()).count();
            let whole = || call.ended.iter().filter(|ended| ended.failure_code.is_none() && !ended.spend.is_empty());
            assert!(whole().count() <= count, "{count} requests, but more answers: {call:?}");
            assert!(count + unbegun <= call.began.len(), "{count} requests, one attempt for each: {call:?}");
            assert!(whole().all(|ended| anywhere(&ended.spend) == *spent), "the same request costs the same: {call:?}");
        }
        let again = calls.iter().map(|call| call.began.len() as u64).sum::<u64>() - answers;
        assert!(again <= losses, "{again} attempts more than answers, but only {losses} were lost: {calls:?}");
        distinct
    }
}
