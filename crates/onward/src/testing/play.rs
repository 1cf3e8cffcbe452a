//! One run of a script: possible events, their order, and their effects in virtual time; and choices of a schedule: when to
//! crash, and what happens next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use onward_core::budget::BudgetUse;
use onward_core::engine::Fault;
use onward_core::event::{ApprovalDecided, ChildCompleted, ChildFailed, PromiseResolved};
use onward_core::run::{Input, OutboxMessage, Wait, WaitKind};
use onward_core::task::{Task, TaskReport, TaskTransition};
use onward_core::{CallId, Event, Name, Timestamp, WorkerId};

use super::script::{Decided, Script};
use super::steps;
use super::world::World;

/// Number of events after which a run counts as endless.
const EVENTS_MAX: u64 = 1_000_000;

/// The lease of the script's worker, which never expires, because attempts take no time.
const LEASE: Duration = Duration::from_secs(30);

/// An event that could happen now.
enum Happening {
    Timeline,
    Timer(CallId),
    /// A worker executes an attempt of the task.
    TaskAttempt(CallId),
    /// A timeout of the task expires.
    TaskDue(CallId),
    Child(usize),
    Wait(CallId),
}

/// One run of a script.
pub(super) struct Play<'a> {
    script: &'a Script,
    world: World,
    timeline: VecDeque<(Duration, Event)>,
    started: Timestamp,
    /// Number of decided approvals by name.
    decided: BTreeMap<Name, usize>,
    /// The worker of the script's tasks.
    worker: WorkerId,
}

impl<'a> Play<'a> {
    pub fn new(script: &'a Script, world: World) -> Play<'a> {
        let mut timeline = script.timeline.clone();
        timeline.sort_by_key(|(after, _)| *after);
        let (timeline, started) = (timeline.into(), world.now());
        let worker = WorkerId::new("script").expect("a constant name");
        Play { script, world, timeline, started, decided: BTreeMap::new(), worker }
    }

    /// Plays until the run ends or nothing more can happen.
    #[track_caller]
    pub fn play_out(mut self, chooser: &mut dyn Chooser) -> World {
        while self.timeline.front().is_some_and(|(after, _)| after.is_zero()) {
            self.next_of_timeline();
        }
        loop {
            self.work(chooser);
            if self.world.status().is_closed() || self.world.generation() >= self.script.generations_max {
                return self.world;
            }
            let mut happenings = self.happenings();
            if happenings.is_empty() {
                return self.world;
            }
            let (at, chosen) = happenings.swap_remove(chooser.pick(happenings.len()));
            self.wait_until(at);
            self.happen(chosen);
            self.hurry(chooser);
        }
    }

    /// Lets more due events happen before the code sees any of them.
    fn hurry(&mut self, chooser: &mut dyn Chooser) {
        loop {
            let mut due = self.happenings();
            due.retain(|(at, _)| *at <= self.world.now());
            if due.is_empty() || !chooser.hurries() {
                return;
            }
            let (_, chosen) = due.swap_remove(chooser.pick(due.len()));
            self.happen(chosen);
        }
    }

    /// Runs the code until it waits.
    #[track_caller]
    fn work(&mut self, chooser: &mut dyn Chooser) {
        while self.world.generation() < self.script.generations_max {
            let past: u64 = self.world.past_logs().iter().map(|log| log.next_index().0).sum();
            let events = past + self.world.log().next_index().0;
            assert!(
                events < EVENTS_MAX,
                "the run has {EVENTS_MAX} events and does not end; limit an endless one with `.generations(n)`"
            );
            let draft = match self.world.activate() {
                Ok(draft) => draft,
                Err(fault) => panic!("the activation failed: {}\n{}", explain(fault), self.world.log().to_json_lines()),
            };
            let Some(draft) = draft else {
                if !self.world.has_running_steps() {
                    return;
                }
                steps::wait();
                continue;
            };
            if chooser.crashes_before_commit() {
                self.world.crash();
                continue;
            }
            self.hurry(chooser);
            self.world.commit(draft);
            if chooser.crashes_after_commit() {
                self.world.crash();
            }
        }
    }

    /// Returns the events that could happen now: all that are due, or else the earliest future one.
    fn happenings(&self) -> Vec<(Timestamp, Happening)> {
        let mut ahead = self.ahead();
        // A stable sort: of events due at the same time, task attempts come last, because work takes time.
        ahead.sort_by_key(|(at, _)| *at);
        let due = ahead.iter().take_while(|(at, _)| *at <= self.world.now()).count();
        ahead.truncate(due.max(1));
        ahead
    }

    /// Returns all events that will happen if nothing else does, with their times.
    fn ahead(&self) -> Vec<(Timestamp, Happening)> {
        let (script, world) = (self.script, &self.world);
        let mut ahead: Vec<(Timestamp, Happening)> = Vec::new();
        ahead.extend(self.timeline.front().map(|(after, _)| (self.started.after(*after), Happening::Timeline)));
        let answer = |wait: &Wait| Some((self.answered_at(wait)?, Happening::Wait(wait.call_id.clone())));
        ahead.extend(world.waits.values().filter_map(answer));
        ahead.extend(world.due_timers().map(|(call_id, due)| (due, Happening::Timer(call_id.clone()))));
        let due = |(call_id, task): (&CallId, &Task)| Some((task.due_at()?, Happening::TaskDue(call_id.clone())));
        ahead.extend(world.tasks.iter().filter_map(due));
        let scripted = world.tasks.iter().filter(|(_, task)| script.tasks.contains_key(&task.kind));
        ahead.extend(scripted.map(|(call_id, task)| (task.visible_at, Happening::TaskAttempt(call_id.clone()))));
        for (position, delivery) in world.sent.iter().enumerate() {
            if let OutboxMessage::Start(run) = delivery
                && script.children.contains_key(&run.started.kind)
            {
                ahead.push((world.now(), Happening::Child(position)));
            }
        }
        ahead
    }

    /// Returns when the script answers an approval or promise, if it does.
    fn answered_at(&self, wait: &Wait) -> Option<Timestamp> {
        match wait.kind {
            WaitKind::Approval => Some(wait.requested_at.after(self.decision(&wait.name)?.after)),
            WaitKind::Promise => self.script.promises.contains_key(&wait.name).then_some(wait.requested_at),
        }
    }

    /// Returns the decision of the next approval of this name.
    fn decision(&self, approval: &Name) -> Option<&Decided> {
        let decisions = self.script.approvals.get(approval)?;
        decisions.get(self.decided.get(approval).copied().unwrap_or_default()).or(decisions.last())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Timeline => self.next_of_timeline(),
            Happening::Timer(call_id) => self.world.fire_timer(&call_id),
            Happening::TaskAttempt(call_id) => self.try_task(&call_id),
            Happening::TaskDue(call_id) => self.expire_task(&call_id),
            Happening::Child(position) => self.finish_child(position),
            Happening::Wait(call_id) => self.answer(&call_id),
        }
    }

    fn next_of_timeline(&mut self) {
        let Some((_, event)) = self.timeline.pop_front() else { return };
        // An event of the script may come after the end of the run.
        drop(self.world.append(match event {
            Event::SignalReceived(signal) => Input::signal(signal),
            event => Input::new(event),
        }));
    }

    /// Advances the time to `at`, unless it has passed.
    fn wait_until(&mut self, at: Timestamp) {
        self.world.advance_time(at.since(self.world.now()));
    }

    /// Claims the task and executes one attempt.
    fn try_task(&mut self, call_id: &CallId) {
        let now = self.world.now();
        let Some(task) = self.world.tasks.get_mut(call_id) else { return };
        let Some(answer) = self.script.tasks.get(&task.kind) else { return };
        task.claim(&self.worker, LEASE, now);
        let report = match answer(&task.input, task.attempt) {
            Ok(output) => TaskReport::Completed(output),
            Err(failure) => TaskReport::Failed(failure),
        };
        let fate = task.report(task.claim, report, LEASE, now).expect("the attempt was begun just now");
        self.settle_task(call_id, fate);
    }

    fn expire_task(&mut self, call_id: &CallId) {
        let now = self.world.now();
        let Some(fate) = self.world.tasks.get_mut(call_id).map(|task| task.expire(now)) else { return };
        self.settle_task(call_id, fate);
    }

    fn settle_task(&mut self, call_id: &CallId, fate: TaskTransition) {
        if let TaskTransition::Ended(event) = fate {
            self.world.tasks.remove(call_id);
            self.input(*event);
        }
    }

    fn finish_child(&mut self, position: usize) {
        let OutboxMessage::Start(run) = self.world.sent.remove(position) else { return };
        let (Some(answer), Some(parent)) = (self.script.children.get(&run.started.kind), run.started.parent) else { return };
        let (call_id, spent) = (parent.call_id, run.started.budget.map(|_| BudgetUse::default()));
        self.input(match answer(&run.started.input, 1) {
            Ok(output) => ChildCompleted { call_id, output, child: None, spent }.into(),
            Err(failure) => ChildFailed { call_id, failure, child: None, spent }.into(),
        });
    }

    fn answer(&mut self, call_id: &CallId) {
        let Some(wait) = self.world.waits.get(call_id).cloned() else { return };
        let call_id = call_id.clone();
        match wait.kind {
            WaitKind::Approval => {
                let Some(Decided { approved, feedback, answer, .. }) = self.decision(&wait.name).cloned() else { return };
                *self.decided.entry(wait.name).or_default() += 1;
                self.input(
                    ApprovalDecided { call_id, approved, feedback, decided_by: None, answer, decision_id: "script".to_owned() }
                        .into(),
                );
            }
            WaitKind::Promise => {
                let Some(result) = self.script.promises.get(&wait.name).cloned() else { return };
                self.input(PromiseResolved { call_id, result, resolution_id: "script".to_owned() }.into());
            }
        }
    }

    fn input(&mut self, event: Event) {
        self.world.input(event).expect("an open run takes inputs");
    }
}

/// A source of choices. By default nothing crashes, and events happen in order.
pub(super) trait Chooser {
    fn crashes_before_commit(&mut self) -> bool {
        false
    }
    fn crashes_after_commit(&mut self) -> bool {
        false
    }
    /// Picks one of `count` possible events.
    fn pick(&mut self, _count: usize) -> usize {
        0
    }
    /// Returns whether another due event happens before the code sees the last one, or before its commit is admitted.
    fn hurries(&mut self) -> bool {
        false
    }
}

pub(super) struct DefaultChooser;

impl Chooser for DefaultChooser {}

pub(super) struct CrashAt {
    pub commit: usize,
    pub after: bool,
    pub seen: usize,
}

impl Chooser for CrashAt {
    fn crashes_before_commit(&mut self) -> bool {
        self.seen += 1;
        self.seen == self.commit + 1 && !self.after
    }
    fn crashes_after_commit(&mut self) -> bool {
        self.seen == self.commit + 1 && self.after
    }
}

/// A small random generator: the same on every machine, so that a seed reproduces a schedule.
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

impl Chooser for Random {
    fn crashes_before_commit(&mut self) -> bool {
        self.next().is_multiple_of(10)
    }
    fn crashes_after_commit(&mut self) -> bool {
        self.next().is_multiple_of(10)
    }
    fn pick(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
    fn hurries(&mut self) -> bool {
        self.next().is_multiple_of(3)
    }
}

fn explain(fault: Fault) -> String {
    fault.into_pause().map_or("another worker holds the run".to_owned(), |pause| {
        let hint = pause.divergence.map(|report| format!("\nhint: {}", report.hint)).unwrap_or_default();
        format!("{}{hint}", pause.message)
    })
}
