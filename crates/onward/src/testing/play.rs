//! One run of a script: what could happen, what does, and what follows from it in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use onward_core::engine::Fault;
use onward_core::event::{ApprovalDecided, ChildCompleted, ChildFailed, PromiseResolved, TaskCompleted, TaskFailed};
use onward_core::run::{Delivery, Input, Wait, WaitKind};
use onward_core::{Event, Name, Place, Timestamp};

use super::background;
use super::chooser::{Choice, Chooser};
use super::script::{Decided, Script};
use super::world::World;

/// How many events one run may have before a script takes it for endless.
const EVENTS_MAX: u64 = 1_000_000;

/// Something that could happen now.
enum Happening {
    Timeline,
    Timer(Place),
    Task(Place),
    Child(usize),
    Wait(Place),
}

/// One run of a script.
pub(super) struct Play<'a> {
    pub script: &'a Script,
    pub world: World,
    pub timeline: VecDeque<(Duration, Event)>,
    pub started: Timestamp,
    /// How many approvals of a name were decided.
    pub decided: BTreeMap<Name, usize>,
}

impl Play<'_> {
    #[track_caller]
    pub fn play_out(&mut self, chooser: &mut dyn Chooser) {
        while self.timeline.front().is_some_and(|(after, _)| after.is_zero()) {
            self.next_of_timeline();
        }
        loop {
            self.work(chooser);
            if self.world.status().is_closed() || self.world.generation() >= self.script.generations_max {
                return;
            }
            let mut happenings = self.happenings();
            if happenings.is_empty() {
                return;
            }
            let chosen = happenings.swap_remove(chooser.pick(happenings.len()));
            self.happen(chosen);
        }
    }

    /// Lets the code go on until it rests.
    #[track_caller]
    fn work(&mut self, chooser: &mut dyn Chooser) {
        while self.world.generation() < self.script.generations_max {
            let past: u64 = self.world.past_logs().iter().map(|log| log.next_index().0).sum();
            let events = past + self.world.log().next_index().0;
            assert!(
                events < EVENTS_MAX,
                "the run has {EVENTS_MAX} events and does not end; `.generations(n)` stops one that never does"
            );
            let draft = match self.world.activate() {
                Ok(draft) => draft,
                Err(fault) => panic!("the activation failed: {}\n{}", explain(fault), self.world.log().to_json_lines()),
            };
            let Some(draft) = draft else {
                if !self.world.has_running_steps() {
                    return;
                }
                background::wait();
                continue;
            };
            if chooser.before_commit() == Choice::Crash {
                self.world.crash();
                continue;
            }
            self.world.commit(draft);
            if chooser.after_commit() == Choice::Crash {
                self.world.crash();
            }
        }
    }

    /// What could happen now: everything that answers the code, and the earliest of what time brings.
    fn happenings(&self) -> Vec<Happening> {
        let script = self.script;
        let mut happenings: Vec<Happening> = Vec::new();
        let tasks = self.world.tasks.iter().filter(|(_, task)| script.tasks.contains_key(&task.kind));
        happenings.extend(tasks.map(|(place, _)| Happening::Task(place.clone())));
        let answers: Vec<(Timestamp, Place)> =
            self.world.waits.values().filter_map(|wait| Some((self.answered_at(wait)?, wait.place.clone()))).collect();
        let now = self.world.now();
        happenings.extend(answers.iter().filter(|(at, _)| *at <= now).map(|(_, place)| Happening::Wait(place.clone())));
        for (position, delivery) in self.world.sent.iter().enumerate() {
            if let Delivery::Start(run) = delivery
                && script.children.contains_key(&run.started.kind)
            {
                happenings.push(Happening::Child(position));
            }
        }
        if !happenings.is_empty() {
            return happenings;
        }
        // Nothing answers by itself: time passes to whatever it brings first.
        let mut next: Vec<(Timestamp, Happening)> = Vec::new();
        next.extend(self.timeline.front().map(|(after, _)| (self.started.after(*after), Happening::Timeline)));
        next.extend(answers.into_iter().map(|(at, place)| (at, Happening::Wait(place))));
        next.extend(self.world.next_timer().map(|(place, due)| (due, Happening::Timer(place))));
        next.into_iter().min_by_key(|(at, _)| *at).map(|(_, happening)| happening).into_iter().collect()
    }

    /// When the script answers an approval or promise, if it does.
    fn answered_at(&self, wait: &Wait) -> Option<Timestamp> {
        match wait.kind {
            WaitKind::Approval => Some(wait.requested_at.after(self.decision(&wait.name)?.after)),
            WaitKind::Promise => self.script.promises.contains_key(&wait.name).then_some(wait.requested_at),
        }
    }

    /// What is said to the next approval of this name.
    fn decision(&self, approval: &Name) -> Option<&Decided> {
        let decisions = self.script.approvals.get(approval)?;
        decisions.get(self.decided.get(approval).copied().unwrap_or_default()).or(decisions.last())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Timeline => self.next_of_timeline(),
            Happening::Timer(place) => self.world.fire_timer(&place),
            Happening::Task(place) => self.finish_task(&place),
            Happening::Child(position) => self.finish_child(position),
            Happening::Wait(place) => self.answer(&place),
        }
    }

    fn next_of_timeline(&mut self) {
        let Some((after, event)) = self.timeline.pop_front() else { return };
        self.wait_until(self.started.after(after));
        // A script may outlive the run it is about.
        drop(self.world.append(match event {
            Event::SignalReceived(signal) => Input::signal(signal),
            event => Input::new(event),
        }));
    }

    /// Lets time pass to `at`, if it has not.
    fn wait_until(&mut self, at: Timestamp) {
        self.world.advance_time(at.since(self.world.now()));
    }

    fn finish_task(&mut self, place: &Place) {
        let Some(mut task) = self.world.tasks.remove(place) else { return };
        let Some(answer) = self.script.tasks.get(&task.kind) else { return };
        let event = match answer(&task.input) {
            Ok(output) => TaskCompleted { place: place.clone(), output, attempts: task.attempt }.into(),
            Err(failure) => match task.options.retry.next_attempt(task.attempt, &failure, self.world.now()) {
                Some(at) => {
                    self.wait_until(at);
                    task.attempt += 1;
                    self.world.tasks.insert(place.clone(), task);
                    return;
                }
                None => TaskFailed { place: place.clone(), failure, attempts: task.attempt }.into(),
            },
        };
        self.input(event);
    }

    fn finish_child(&mut self, position: usize) {
        let Delivery::Start(run) = self.world.sent.remove(position) else { return };
        let (Some(answer), Some(parent)) = (self.script.children.get(&run.started.kind), run.started.parent) else { return };
        let place = parent.place;
        self.input(match answer(&run.started.input) {
            Ok(output) => ChildCompleted { place, output }.into(),
            Err(failure) => ChildFailed { place, failure }.into(),
        });
    }

    fn answer(&mut self, place: &Place) {
        let Some(wait) = self.world.waits.get(place).cloned() else { return };
        let place = place.clone();
        self.wait_until(self.answered_at(&wait).unwrap_or_default());
        match wait.kind {
            WaitKind::Approval => {
                let Some(Decided { approved, feedback, .. }) = self.decision(&wait.name).cloned() else { return };
                *self.decided.entry(wait.name).or_default() += 1;
                self.input(
                    ApprovalDecided { place, approved, feedback, decided_by: None, decision_id: "script".to_owned() }.into(),
                );
            }
            WaitKind::Promise => {
                let Some(result) = self.script.promises.get(&wait.name).cloned() else { return };
                self.input(PromiseResolved { place, result, resolution_id: "script".to_owned() }.into());
            }
        }
    }

    fn input(&mut self, event: Event) {
        self.world.input(event).expect("an open run takes inputs");
    }
}

fn explain(fault: Fault) -> String {
    fault.into_pause().map_or("the run is somebody else's".to_owned(), |pause| {
        let hint = pause.divergence.map(|report| format!("\nhint: {}", report.hint)).unwrap_or_default();
        format!("{}{hint}", pause.message)
    })
}
