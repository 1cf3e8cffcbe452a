//! The same random programs, forked at every commit and retried after every failure.

use onward_core::event::{ChildFailed, RunResumed, TaskFailed};
use onward_core::run::Refusal;

use super::*;

impl Outside {
    /// Fails a task or child for good.
    fn fail(&mut self, world: &mut World, call_id: CallId, owed: Owed) {
        self.answered.insert((world.generation(), call_id.clone()));
        let failure = Failure::fatal("out of luck");
        let event: Event = match owed {
            Owed::Child => ChildFailed { call_id, failure, child: None, spent: None }.into(),
            _ => TaskFailed { call_id, failure, attempts: 1, ran: None }.into(),
        };
        world.input(event).unwrap();
    }

    /// Records what a copied log has answered already.
    fn take_note_of(&mut self, world: &World) {
        let answered = |event: &Event| match event {
            Event::TaskCompleted(event) => Some(event.call_id.clone()),
            Event::ChildCompleted(event) => Some(event.call_id.clone()),
            Event::ApprovalDecided(event) => Some(event.call_id.clone()),
            _ => None,
        };
        let call_ids = world.log().events().filter_map(|(_, event)| answered(event));
        self.answered.extend(call_ids.map(|call_id| (world.generation(), call_id)));
    }
}

/// One case out of this many is forked at every commit: each fork is a case of its own.
pub const FORKED: u64 = 50;

/// Forks the last generation at each of its commits: every fork ends, agrees with the model, and leaves the original unchanged.
pub fn check_forks(world: &World, build: &Build, mutant: Option<Mutant>) {
    let before = world.log().to_json_lines();
    let program = build.programs.last().unwrap();
    if has_chance(program) {
        return; // the model has one seed, a fork two
    }
    let points = world.log().records().iter().filter(|record| record.commit.is_some() || record.index.0 == 0);
    for point in points.filter(|record| !record.ends_log()) {
        let (index, keep_signals) = (point.last_index(), point.index.0.is_multiple_of(2));
        let mut fork = match world.fork("fork", Some(index), keep_signals) {
            Err(Refusal::ChildBehindApproval { .. }) => continue, // Z8
            forked => forked.unwrap(),
        };
        approve_again(&mut fork);
        *build.recorded.lock().unwrap() = BTreeSet::new();
        note_recorded(&fork, build);
        let mut outside = Outside { next_value: 10_000, answered: BTreeSet::new(), may_cancel_in: u32::MAX };
        outside.take_note_of(&fork);
        run_to_end(&mut fork, &mut outside, build);
        let model = Model::read_as(program, fork.log(), mutant);
        let describe = || format!("forked at {index}: {program:?}\n{}", fork.log().to_json_lines());
        assert!(
            fork.output().ends_with(&tail(&model.lines[0].seen)),
            "{} is not {:?}\n{}",
            fork.output(),
            model.lines[0].seen,
            describe()
        );
        check_records(fork.log());
    }
    assert_eq!(world.log().to_json_lines(), before);
}

/// Approves what a copy asks again, so that it continues (Z8).
fn approve_again(world: &mut World) {
    let pause = world.log().events().last().and_then(|(_, event)| match event {
        Event::RunPaused(pause) => Some(pause.asks.clone()),
        _ => None,
    });
    let Some(asks) = pause else { return };
    assert!(world.input(RunResumed { budget: None }).is_err(), "it was not approved");
    for call_id in asks {
        let (approved, decision_id) = (true, "again".to_owned());
        world.input(ApprovalDecided { call_id, approved, feedback: None, decided_by: None, answer: None, decision_id }).unwrap();
    }
    world.input(RunResumed { budget: None }).unwrap();
}

fn has_chance(program: &[Op]) -> bool {
    program.iter().any(|op| match op {
        Op::Random => true,
        Op::Both(left, right) => has_chance(left) || has_chance(right),
        _ => false,
    })
}

/// Returns the output without its opening bracket: earlier generations are part of the output, but not of the model.
fn tail(seen: &Seen) -> String {
    let text = serde_json::to_string(seen).unwrap();
    text[1..].to_owned()
}

fn run_to_end(world: &mut World, outside: &mut Outside, build: &Build) {
    for _ in 0..400 {
        let draft = world.activate().unwrap_or_else(|fault| panic!("{fault:?}\n{}", world.log().to_json_lines()));
        match draft {
            Some(draft) => {
                world.commit(draft);
                note_recorded(world, build);
                if world.status().is_closed() {
                    return;
                }
            }
            None => calm(world, outside),
        }
    }
    panic!("the run did not end\n{}", world.log().to_json_lines());
}

/// A run whose tasks and children fail again and again, and that is retried each time, ends as if nothing had failed.
///
/// Returns the number of retries; `None` if a line handled a failure and continued, so that the run could not be retried.
fn failing_case(seed: u64) -> Option<u32> {
    let mut random = Random::new(seed);
    let build = Arc::new(Build::new(vec![program(&mut random, 5, false)]));
    let in_run = build.clone();
    let mut world = World::new(move |ctx: Ctx, input| interpret(ctx, input, in_run.clone()), &(0, Seen::new()));
    let mut outside = Outside { next_value: 0, answered: BTreeSet::new(), may_cancel_in: u32::MAX };
    let mut failures = 4;
    for _ in 0..400 {
        let draft = world.activate().unwrap_or_else(|fault| panic!("{fault:?}\n{}", world.log().to_json_lines()));
        let Some(draft) = draft else {
            let failing = outside.owed(&world).into_iter().find(|(_, owed)| *owed != Owed::Decision);
            match failing.filter(|_| failures > 0 && random.below(2) == 0) {
                Some((call_id, owed)) => {
                    failures -= 1;
                    outside.fail(&mut world, call_id, owed);
                }
                None if random.below(2) == 0 => outside.happen(&mut world, &mut random),
                None => calm(&mut world, &mut outside),
            }
            continue;
        };
        world.commit(draft);
        note_recorded(&world, &build);
        match world.status() {
            Status::Completed => break,
            Status::Failed => {
                world.advance_time(SECOND);
                match world.retry() {
                    Err(Refusal::FailureHandled { .. } | Refusal::ChildBehindApproval { .. }) => return None,
                    retried => retried.unwrap_or_else(|error| panic!("{error}\n{}", world.log().to_json_lines())),
                }
                approve_again(&mut world);
                outside.take_note_of(&world);
            }
            _ => {}
        }
    }
    let (program, log) = (&build.programs[0], world.log());
    assert_eq!(world.status(), Status::Completed, "{program:?}\n{}", log.to_json_lines());
    let model = Model::read(program, log);
    let expected = serde_json::to_string(&model.lines[0].seen).unwrap();
    assert_eq!(world.output(), expected, "{program:?}\n{}", log.to_json_lines());
    check_records(log);
    Some(world.generation())
}

#[test]
fn random_programs_that_fail_and_are_retried_end_as_if_nothing_had_failed() {
    if let Some(seed) = std::env::var("ONWARD_RETRY_SEED").ok().and_then(|seed| seed.parse().ok()) {
        failing_case(seed);
        return;
    }
    let (mut retried, mut handled) = (0, 0);
    for seed in 0..2_000 {
        match std::panic::catch_unwind(|| failing_case(seed)) {
            Ok(Some(times)) => retried += times,
            Ok(None) => handled += 1,
            Err(_) => panic!("reproduce with ONWARD_RETRY_SEED={seed}"),
        }
    }
    assert!(retried > 500 && handled < 400, "retried {retried} times, not retried {handled} times");
}
