//! Start policies: each accepted start has its run once, wherever the dispatcher is interrupted, and a repeat counts once.

use std::collections::BTreeSet;

use onward_core::api::{StartWithPolicyReply, StartWithPolicyRequest};
use onward_core::budget::Budget;
use onward_core::random::RandomGenerator;
use onward_core::start_policy::{Batch, Debounce, KEPT_FOR, Singleton, StartOutcome, StartPolicy};
use onward_core::{KindSchemas, Name, Namespace, Payload, RunKey, Status};
use onward_runtime::{CallContext, Options, Runtime, RuntimeError};
use onward_store::sync::random_u64;

use crate::faulty::When;
use crate::kit::*;

/// Crash points of starts and ticks: before or after each of their calls to the store.
const STRIKES: [&str; 8] =
    ["deliveries", "start_run", "append_input", "finish_deliveries", "read_run", "read_log", "expire", "delete_runs"];

fn singleton() -> StartPolicy {
    StartPolicy::Singleton(Singleton::new("k"))
}

fn replace() -> StartPolicy {
    StartPolicy::Singleton(Singleton::new("k").cancel())
}

fn debounce() -> StartPolicy {
    StartPolicy::Debounce(Debounce::new("k", seconds(10)).with_max_wait(seconds(25)))
}

fn batch(size_max: u32) -> StartPolicy {
    StartPolicy::Batch(Batch::new("k", size_max, seconds(10)))
}

fn request(policy: StartPolicy, input: &str, id: &str) -> StartWithPolicyRequest {
    let input = Payload::from_json_text(format!("\"{input}\""));
    let request_id = Some(name(id));
    StartWithPolicyRequest { request_id, ..StartWithPolicyRequest::new(Namespace::default(), name("order"), policy, input) }
}

fn by(name: &str) -> CallContext {
    CallContext { caller: Some(name.to_owned()), ..CallContext::default() }
}

async fn send(runtime: &Runtime, request: StartWithPolicyRequest) -> StartWithPolicyReply {
    runtime.start_with_policy(request, by("ada")).await.unwrap()
}

/// Sends a start until there is an answer, as a client does whose replies are lost.
async fn insist(runtime: &Runtime, request: StartWithPolicyRequest) -> StartWithPolicyReply {
    loop {
        match runtime.start_with_policy(request.clone(), by("ada")).await {
            Ok(reply) => return reply,
            Err(error) => assert_eq!(error.code(), "store_unavailable", "{error}"),
        }
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, RuntimeError>, code: &str) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    error.to_string()
}

async fn input_of(kit: &Harness, run: &str) -> String {
    let view = kit.runtime.read_run(&key(run)).await.unwrap();
    String::from_utf8(view.input.data().to_vec()).unwrap()
}

/// Returns the inputs of all runs, sorted.
async fn inputs(kit: &Harness) -> Vec<String> {
    let mut inputs = Vec::new();
    for run in kit.runtime.store().list_runs(Default::default()).await.unwrap().runs {
        inputs.push(input_of(kit, run.key.id.as_str()).await);
    }
    inputs.sort();
    inputs
}

#[tokio::test(start_paused = true)]
async fn each_start_counts_once_wherever_the_dispatcher_is_interrupted() {
    for operation in STRIKES {
        for (when, at) in (0..4).flat_map(|at| [(When::Before, at), (When::After, at)]) {
            let kit = Harness::new();
            let mut answers = Vec::new();
            for step in 0..4 {
                if step == at {
                    kit.store.fail_once(operation, when);
                }
                for (policy, kind) in [(replace(), "s"), (debounce(), "d"), (batch(3), "b")] {
                    let id = format!("{kind}{step}");
                    answers.push(insist(&kit.runtime, request(policy.clone(), &id, &id)).await);
                    let again = insist(&kit.runtime, request(policy, &id, &id)).await;
                    let first = answers.last().unwrap();
                    assert_eq!((&again.run, again.outcome, again.due_at), (&first.run, first.outcome, first.due_at));
                    assert!(again.repeated, "{operation} {when:?} {at}");
                }
                kit.advance(seconds(1));
                kit.settle().await;
            }
            kit.advance(seconds(30));
            kit.settle().await;
            kit.store.clear();
            // The first run is canceled, and the second start waits for its end.
            let first = answers[0].run.clone();
            assert_eq!(kit.log(first.as_str()).await, ["run_started", "cancel_requested"], "SP1");
            kit.runtime.terminate_run(&key(first.as_str()), "").await.unwrap();
            kit.settle().await;
            let expected = ["\"d3\"", "\"s0\"", "\"s3\"", "[\"b0\",\"b1\",\"b2\"]", "[\"b3\"]"];
            assert_eq!(inputs(&kit).await, expected, "{operation} {when:?} {at}");
            for answer in answers {
                kit.head(answer.run.as_str()).await; // SP2
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_with_one_store_agree_on_what_is_open_and_held() {
    let mut random =
        RandomGenerator::new(std::env::var("ONWARD_SEED").map_or_else(|_| random_u64(), |seed| seed.parse().unwrap()));
    println!("ONWARD_SEED={}", random.clone().bits());
    let kit = Harness::new();
    let runtimes = [kit.runtime.clone(), kit.other_runtime()];
    let mut batched = BTreeSet::new();
    for step in 0..60 {
        let ids = [format!("x{step}"), format!("y{step}")];
        let policies = [replace(), debounce(), batch(4)];
        let policy = random.choice(&policies).unwrap();
        let (first, second) = tokio::join!(
            runtimes[0].start_with_policy(request(policy.clone(), &ids[0], &ids[0]), by("ada")),
            runtimes[1].start_with_policy(request(policy.clone(), &ids[1], &ids[1]), by("ada")),
        );
        for (id, reply) in ids.into_iter().zip([first.unwrap(), second.unwrap()]) {
            assert!(!reply.repeated);
            if matches!(policy, StartPolicy::Batch(_)) {
                batched.insert(id);
            }
        }
        if random.chance(0.5) {
            kit.advance(seconds(random.integer(0..8)));
        }
        let (first, second) = tokio::join!(runtimes[0].tick(), runtimes[1].tick());
        assert!(first.error.is_none() && second.error.is_none());
        kit.settle().await;
        let open = kit.runtime.store().list_runs(Default::default()).await.unwrap().runs;
        let singletons: Vec<RunKey> = open
            .into_iter()
            .filter(|run| run.parent.as_ref().is_some_and(|link| link.run.id.as_str().starts_with("starts:singleton")))
            .filter(|run| !run.status.is_closed())
            .map(|run| run.key)
            .collect();
        assert!(singletons.len() <= 1, "SP1: {singletons:?}");
        if random.chance(0.3) {
            for run in singletons {
                kit.runtime.terminate_run(&run, "").await.unwrap();
            }
        }
    }
    kit.advance(seconds(30));
    kit.settle().await;
    let lists: Vec<String> = inputs(&kit).await.into_iter().filter(|input| input.starts_with('[')).collect();
    let found: Vec<String> = lists.iter().flat_map(|list| serde_json::from_str::<Vec<String>>(list).unwrap()).collect();
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), batched, "SP4");
    assert_eq!(found.len(), batched.len(), "SP4");
}

#[tokio::test(start_paused = true)]
async fn a_repeat_a_day_later_has_the_first_answer_and_the_next_cell_has_the_other_id() {
    let kit = Harness::new();
    let first = send(&kit.runtime, request(debounce(), "a", "q")).await;
    assert_eq!(
        (first.outcome, first.due_at),
        (StartOutcome::Held, Some(onward_store::Clock::now(&*kit.clock).after(seconds(10))))
    );
    kit.advance(seconds(10));
    kit.settle().await;
    kit.advance(KEPT_FOR - seconds(11));
    kit.settle().await;
    assert!(send(&kit.runtime, request(debounce(), "a", "q")).await.repeated, "SY3: while the cell is open");
    kit.advance(seconds(1));
    kit.settle().await;
    // The cell has ended: it answers repeats, and a start gets the other one.
    let again = send(&kit.runtime, request(debounce(), "a", "q")).await;
    assert_eq!((again.repeated, &again.run), (true, &first.run), "SY3: of an ended cell");
    let second = send(&kit.runtime, request(debounce(), "b", "r")).await;
    assert!(!second.repeated && second.run != first.run);
    assert!(send(&kit.runtime, request(debounce(), "a", "q")).await.repeated, "SY3: beside the current cell");
    kit.advance(KEPT_FOR);
    kit.settle().await;
    let third = send(&kit.runtime, request(debounce(), "c", "t")).await;
    assert_eq!(third.outcome, StartOutcome::Held);
    assert!(send(&kit.runtime, request(debounce(), "b", "r")).await.repeated);
    kit.advance(seconds(10));
    kit.settle().await;
    assert_eq!(inputs(&kit).await, ["\"a\"", "\"b\"", "\"c\""]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_cell_answers_repeats_of_its_earlier_generations() {
    let kit = Harness::new();
    let first = send(&kit.runtime, request(singleton(), "a", "q")).await;
    for number in 0..1_100 {
        let skipped = send(&kit.runtime, request(singleton(), "b", &format!("r{number}"))).await;
        assert_eq!((skipped.outcome, &skipped.run), (StartOutcome::Skipped, &first.run));
    }
    let again = send(&kit.runtime, request(singleton(), "a", "q")).await;
    assert_eq!((again.repeated, again.outcome, again.run), (true, StartOutcome::Started, first.run));
}

#[tokio::test(start_paused = true)]
async fn what_is_invalid_is_refused_and_nothing_is_written() {
    let kit = Harness::new();
    let policy = |policy| request(policy, "a", "q");
    let kind = |kind: &str| StartWithPolicyRequest { kind: name(kind), ..request(singleton(), "a", "q") };
    let deep = Payload::from_json_text(format!("{}{}", "[".repeat(64), "]".repeat(64)));
    for (request, code) in [
        (policy(StartPolicy::Singleton(Singleton::new(""))), "start_policy_invalid"),
        (policy(StartPolicy::Debounce(Debounce::new("k", seconds(0)))), "start_policy_invalid"),
        (policy(batch(0)), "start_policy_invalid"),
        (StartWithPolicyRequest { input: Payload::binary("image/png", vec![1]), ..policy(batch(2)) }, "start_policy_invalid"),
        // A list of it would be too deep for its run.
        (StartWithPolicyRequest { input: deep, ..policy(batch(2)) }, "json_too_deep"),
        (kind("task:mail"), "kind_reserved"),
        (kind("starts:86400"), "kind_reserved"),
        (kind("schedule:x"), "kind_reserved"),
    ] {
        refused(kit.runtime.start_with_policy(request, CallContext::default()).await, code);
    }
    kit.settle().await;
    for of in onward_core::internal::InternalRuns::ALL {
        let query = onward_store::RunQuery { internal: Some(of), ..Default::default() };
        assert!(kit.runtime.store().list_runs(query).await.unwrap().runs.is_empty(), "SY1");
    }
    // Another input under a known request id.
    send(&kit.runtime, request(debounce(), "a", "q")).await;
    assert!(kit.runtime.start_with_policy(request(debounce(), "b", "q"), by("ada")).await.is_err());
}

/// SY2: when the start is accepted, and not when the run starts.
#[tokio::test(start_paused = true)]
async fn an_input_is_compared_with_the_schema_of_its_kind_once() {
    let kit = Harness::new();
    let schema = |text: &'static str| {
        let input = Some(Payload::from_json_text(text));
        vec![KindSchemas { input, ..KindSchemas::empty(Namespace::default(), name("order"), None) }]
    };
    kit.runtime.store().register_kinds(schema("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}")).await.unwrap();
    refused(kit.runtime.start_with_policy(request(debounce(), "a", "q"), by("ada")).await, "input_invalid");
    let number = StartWithPolicyRequest { input: Payload::from_json_text("1"), ..request(batch(2), "a", "q") };
    refused(kit.runtime.start_with_policy(number, by("ada")).await, "input_invalid");
    let held = send(&kit.runtime, request(batch(2), "a", "q")).await;
    kit.runtime.store().register_kinds(schema("{\"type\":\"number\"}")).await.unwrap();
    kit.advance(seconds(60));
    kit.settle().await;
    assert_eq!(input_of(&kit, held.run.as_str()).await, "[\"a\"]", "a held start is not lost to a later schema");
}

/// SP5: the later start of another credential has its own budget, and inputs of two credentials are in two batches.
#[tokio::test(start_paused = true)]
async fn a_run_has_the_credential_and_the_budget_of_its_input() {
    let kit = Harness::new();
    let with = |policy, input, tokens| StartWithPolicyRequest {
        budget: Some(Budget::default().tokens(tokens)),
        attributes: Vec::new(),
        deadline_ms: Some(tokens * 1_000),
        ..request(policy, input, input)
    };
    let send = async |request, who| kit.runtime.start_with_policy(request, by(who)).await.unwrap();
    let held = send(with(debounce(), "a", 100), "ada").await;
    assert_eq!(send(with(debounce(), "b", 7), "bob").await.run, held.run);
    let [first, second] = [send(with(batch(9), "c", 100), "ada").await, send(with(batch(9), "d", 7), "bob").await];
    assert_ne!(first.run, second.run);
    assert_eq!(send(with(batch(9), "e", 7), "bob").await.run, second.run);
    kit.advance(seconds(10));
    kit.settle().await;
    for (run, who, tokens, input) in
        [(&held.run, "bob", 7, "\"b\""), (&first.run, "ada", 100, "[\"c\"]"), (&second.run, "bob", 7, "[\"d\",\"e\"]")]
    {
        let head = kit.head(run.as_str()).await;
        assert_eq!((head.requester.as_deref(), head.budget.unwrap().limit.tokens), (Some(who), Some(tokens)));
        assert!(head.deadline_at.is_some());
        assert_eq!(input_of(&kit, run.as_str()).await, input);
    }
}

#[tokio::test(start_paused = true)]
async fn no_verb_for_runs_reaches_a_cell_and_no_list_shows_it() {
    let kit = Harness::new();
    send(&kit.runtime, request(debounce(), "a", "q")).await;
    let query =
        onward_store::RunQuery { internal: Some(onward_core::internal::InternalRuns::StartPolicies), ..Default::default() };
    let cell = kit.runtime.store().list_runs(query).await.unwrap().runs.remove(0);
    assert!(kit.runtime.store().list_runs(Default::default()).await.unwrap().runs.is_empty());
    let id = cell.key.id.as_str();
    assert!(id.starts_with("starts:debounce:") && cell.status == Status::Waiting);
    refused(kit.runtime.start_run(start(id)).await, "id_reserved");
    use onward_core::api::{Call, ReasonRequest, RunRequest};
    let reason = || ReasonRequest { run: cell.key.clone(), reason: String::new() };
    for call in [
        Call::ReadRun(RunRequest { run: cell.key.clone() }),
        Call::CancelRun(reason()),
        Call::TerminateRun(reason()),
        Call::PauseRun(reason()),
        Call::DeleteRun(reason()),
    ] {
        refused(kit.runtime.execute(call, CallContext::default()).await, "id_reserved");
    }
    let kinds: Vec<Name> =
        kit.runtime.list_kinds(&Namespace::default()).await.unwrap().into_iter().map(|kind| kind.kind).collect();
    assert!(kinds.iter().all(|kind| !kind.as_str().starts_with("starts:")));
}

/// Retention removes ended cells by their own time, whatever that of runs is.
#[tokio::test(start_paused = true)]
async fn ended_cells_are_removed_after_a_day() {
    let kit = Harness::with(Options::default());
    send(&kit.runtime, request(batch(1), "a", "q")).await;
    let count = async || {
        let query =
            onward_store::RunQuery { internal: Some(onward_core::internal::InternalRuns::StartPolicies), ..Default::default() };
        kit.runtime.store().list_runs(query).await.unwrap().runs.len()
    };
    kit.settle().await;
    kit.advance(KEPT_FOR);
    kit.settle().await;
    assert_eq!(count().await, 1);
    kit.advance(KEPT_FOR + seconds(3_600));
    kit.settle().await;
    assert_eq!(count().await, 0);
}
