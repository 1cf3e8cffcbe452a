//! Agents that call models and tools, against a scripted model server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{Agent, AgentCtx, AgentOutcome, MESSAGE, Provider, Role, Stop, Tool, Tools, Turn};
use onward::prelude::*;
use onward::{Budget, Builder, Decide, Encryption, EncryptionKey, Event, Failure, Record, Status, join_all};
use onward_core::conversation::{Entry, Walk, entries_of, leaf_of};
use onward_core::event::PauseReason;
use onward_core::stream::StreamContent;
use onward_core::view::{Awaited, AwaitedKind};
use onward_llm_scripted::{Fault, Rule, ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{embedded, in_memory};

pub(super) fn with_model(builder: Builder, model: &ScriptedModel) -> Builder {
    builder.model("m", &Provider::openai(&format!("{}/v1", model.url()), None).unwrap())
}

async fn all_logs(onward: &Onward, id: &str) -> Vec<Vec<Record>> {
    let run = onward.run::<Value>(id).unwrap();
    let last = run.view().await.unwrap().head.generation;
    let mut logs = Vec::new();
    for generation in 0..=last {
        logs.push(run.log_of(generation).await.unwrap());
    }
    logs
}

/// Returns the conversation on the live path, oldest first.
async fn conversation(onward: &Onward, id: &str) -> Vec<Entry> {
    let logs = all_logs(onward, id).await;
    let leaf = logs.iter().rev().find_map(|log| leaf_of(log));
    let mut walk = Walk::from(leaf, usize::MAX);
    for (generation, log) in logs.iter().enumerate().rev() {
        walk.read(&entries_of(generation as u32, log));
    }
    assert_eq!(walk.wants(), None, "every entry is in some log");
    walk.into_entries()
}

pub(super) async fn roles(onward: &Onward, id: &str) -> Vec<String> {
    conversation(onward, id).await.iter().map(|entry| entry.role.to_string()).collect()
}

async fn until_it_waits(onward: &Onward, id: &str, kind: AwaitedKind) {
    let run = onward.run::<Value>(id).unwrap();
    run.until(|view| view.awaiting.iter().any(|awaited| awaited.kind == kind)).await.unwrap();
}

/// Waits until the agent waits for a message in this generation.
pub(super) async fn until_turn(onward: &Onward, id: &str, generation: u32) {
    let run = onward.run::<Value>(id).unwrap();
    let waits = |view: &onward::RunView| view.head.generation == generation && !view.awaiting.is_empty();
    let reached = tokio::time::timeout(crate::site::DEADLINE, run.until(waits)).await;
    let Ok(reached) = reached else { panic!("turn {generation} is not reached: {:#?}", run.view().await) };
    reached.unwrap();
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct City {
    city: String,
}

fn weather(calls: &Arc<AtomicU32>) -> Tool {
    let calls = calls.clone();
    let look = move |City { city }| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("sunny in {city}")) }
    };
    Tool::new("weather", "Tells the weather of a city", look).pure()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_made_agent_calls_its_tools_and_ends_with_a_reason() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let agent = Agent::new("helper").model("m").system("Be brief.").tool(weather(&calls));
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("helper", r#"weather {"city":"Ulm"}"#).id("a").await.unwrap();
    let outcome = run.result().await.unwrap();
    assert_eq!((outcome.stop, outcome.turns), (Stop::Done, 2));
    assert_eq!(outcome.text, "weather says: sunny in Ulm");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(roles(&onward, "a").await, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(model.request_count(), 2);
    onward.shutdown().await;
}

/// Answers every message, as in the guide.
async fn chat(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append(Role::User, &first).await?;
    ctx.turns(1u32, async |answered| {
        for message in ctx.signal("message").drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        let reply = ctx.llm("m").system("s".repeat(20_000)).await?;
        ctx.append(Role::Assistant, &reply).await?;
        Ok(if answered == 20 { Turn::Done(answered) } else { Turn::Await(answered + 1, "message") })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_stored_once_and_models_get_all_of_them() {
    let model = ScriptedModel::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let onward = with_model(embedded(directory.path()), &model).agent("chat", chat).start().await.unwrap();
    let long = |n: u32| format!("message {n} {}", "x".repeat(1_000));
    let run = onward.start::<u32, _>("chat", &long(1)).id("c").await.unwrap();
    for n in 2..=20 {
        until_turn(&onward, "c", n).await;
        run.signal("message", &long(n)).await.unwrap();
    }
    assert_eq!(run.result().await.unwrap(), 20);
    let entries = conversation(&onward, "c").await;
    assert_eq!(entries.len(), 40);
    let content_bytes: usize = entries.iter().map(|entry| entry.content.data().len()).sum::<usize>() + 20_000;
    let logs = all_logs(&onward, "c").await;
    let mut stored = 0;
    for record in logs.iter().flatten() {
        let mut body = Vec::new();
        record.encode_body(&mut body);
        stored += body.len();
    }
    assert!(stored < content_bytes * 13 / 10, "{stored} bytes for {content_bytes}");
    assert_eq!(run.view().await.unwrap().input.read::<String>().unwrap(), long(1), "the input is shown in every generation");
    let last = model.requests().pop().unwrap();
    assert_eq!(last.body["messages"].as_array().unwrap().len(), 40, "a system prompt and 39 messages");
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_model_answers_are_retried_and_the_last_is_reported() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m")).start().await.unwrap();
    model.next(ScriptedReply::fault(Fault::Empty));
    let run = onward.start::<AgentOutcome, _>("a", "hello").id("once").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "You said: hello");
    assert_eq!(model.request_count(), 2);
    model.rule(Rule::always(ScriptedReply::fault(Fault::Empty)));
    let run = onward.start::<AgentOutcome, _>("a", "hello").id("never").await.unwrap();
    let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
    assert_eq!(failure.code, "empty_model_response");
    let details: Value = failure.details.unwrap().read().unwrap();
    assert_eq!((&details["attempts"], &details["last_response"]["blocks"]), (&json!(3), &json!([])));
    assert_eq!(model.request_count(), 5);
    // Counters are updated after the report, like the end of the run.
    let counted = || onward.runtime().unwrap().counts().empty_answers.value();
    crate::site::eventually("all are counted", async || (counted() >= 4).then_some(())).await;
    assert_eq!(counted(), 4);
    let spend = run.view().await.unwrap().head.spend.unwrap();
    assert_eq!(spend.attempts, 3, "every one of them is in the totals");
    assert_eq!(roles(&onward, "never").await, ["user"], "an answer that was none is no entry");
    onward.shutdown().await;
}

#[derive(Deserialize, JsonSchema)]
struct Payment {
    cents: u64,
}

fn pay(paid: &Arc<AtomicU32>) -> Tool {
    let paid = paid.clone();
    let pay = move |Payment { cents }| {
        paid.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(json!({ "paid": cents })) }
    };
    Tool::new("pay", "Pays", pay).keyed().needs_approval_if(|arguments| arguments.get().contains("9000"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dangerous_call_waits_for_a_person_who_is_shown_its_exact_arguments() {
    let model = ScriptedModel::start().await.unwrap();
    let paid = Arc::new(AtomicU32::new(0));
    let agent = Agent::new("payer").model("m").tool(pay(&paid));
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    for (id, approved, times) in [("yes", true, 1), ("no", false, 1)] {
        let run = onward.start::<AgentOutcome, _>("payer", r#"pay { "cents" : 9000 }"#).id(id).await.unwrap();
        until_it_waits(&onward, id, AwaitedKind::Approval).await;
        let wait = run.view().await.unwrap().awaiting.remove(0);
        let show = all_logs(&onward, id)
            .await
            .into_iter()
            .flatten()
            .flat_map(|record| record.events)
            .find_map(|event| if let Event::ApprovalRequested(event) = event { event.show } else { None });
        let shown = String::from_utf8(show.unwrap().data().to_vec()).unwrap();
        assert_eq!(shown, r#"{"tool":"pay","arguments":{ "cents" : 9000 }}"#);
        assert_eq!(paid.load(Ordering::SeqCst), times - u32::from(approved));
        let decide =
            Decide { approved, feedback: Some("as told".into()), decided_by: None, answer: None, decision_id: "d".into() };
        onward.decide_approval(&wait.id, decide).await.unwrap();
        assert_eq!(run.result().await.unwrap().stop, Stop::Done);
        assert_eq!(paid.load(Ordering::SeqCst), times);
        let tool = conversation(&onward, id).await.into_iter().find(|entry| entry.role.as_str() == "tool").unwrap();
        let tool = String::from_utf8(tool.content.data().to_vec()).unwrap();
        assert_eq!(tool.contains("declined this call: as told"), !approved, "{tool}");
    }
    // A call for which the policy needs no approval.
    let run = onward.start::<AgentOutcome, _>("payer", r#"pay {"cents":1}"#).id("small").await.unwrap();
    run.result().await.unwrap();
    assert_eq!(paid.load(Ordering::SeqCst), 2);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_call_of_a_model_gets_a_result() {
    let model = ScriptedModel::start().await.unwrap();
    let large = Tool::new("large", "Is too large", |_: City| async { Ok::<_, Failure>("x".repeat(50_000_000)) }).pure();
    let fails = Tool::new("fails", "Fails", |_: City| async { Err::<String, _>(Failure::fatal("no such city")) }).pure();
    let never = Tool::new("never", "Never returns", |_: City| std::future::pending::<Result<String>>())
        .pure()
        .timeout(std::time::Duration::from_millis(50));
    let agent = Agent::new("a").model("m").tool(large).tool(fails).tool(never);
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let city = r#"{"city":"Ulm"}"#;
    model.next(
        ScriptedReply::call("large", city)
            .and_call("fails", city)
            .and_call("never", city)
            .and_call("unknown", city)
            .and_call("fails", "{not json")
            .and_call("fails", r#"{"town":1}"#),
    );
    model.next(ScriptedReply::text("I see."));
    let run = onward.start::<AgentOutcome, _>("a", "go").id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "I see.");
    let results: Vec<String> = conversation(&onward, "r")
        .await
        .into_iter()
        .filter(|entry| entry.role.as_str() == "tool")
        .map(|entry| String::from_utf8(entry.content.data().to_vec()).unwrap())
        .collect();
    let expected = [
        "tool_result_too_large",
        "no such city",
        "timed_out",
        "unknown_tool",
        "the arguments are not valid JSON",
        "invalid arguments",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected) && result.contains(r#""is_error":true"#), "{result} contains {expected}");
    }
    assert_eq!(results.len(), expected.len());
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_repeats_one_call_for_ever_is_stopped() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let agent = |name: &str| Agent::new(name).model("m").tool(weather(&calls));
    let builder = with_model(in_memory(), &model).register(agent("a")).register(agent("b").max_turns(3));
    let onward = builder.start().await.unwrap();
    model.rule(Rule::always(ScriptedReply::call("weather", r#"{"city":"Ulm"}"#)));
    let run = onward.start::<AgentOutcome, _>("a", "go").id("a").await.unwrap();
    assert_eq!(run.result().await.unwrap().stop, Stop::RepeatedCall);
    assert_eq!((calls.load(Ordering::SeqCst), model.request_count()), (5, 6));
    let run = onward.start::<AgentOutcome, _>("b", "go").id("b").await.unwrap();
    let outcome = run.result().await.unwrap();
    assert_eq!((outcome.stop, outcome.turns), (Stop::MaxTurns, 3));
    onward.shutdown().await;
}

/// What comes before the first answer is not a turn: neither the start of the loop nor a wait for the first message.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_turns_is_a_number_of_answers() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m").converse()).start().await.unwrap();
    for (id, first, answered) in [("input", Some("one"), 1), ("none", None, 0)] {
        let before = model.request_count();
        let run = onward.start::<Value, _>("a", &first).id(id).budget(Budget::default().turns(2)).await.unwrap();
        for (generation, message) in (2..).zip(["two", "three", "four"]).take(3 - answered) {
            until_turn(&onward, id, generation).await;
            run.message(message).await.unwrap();
        }
        let view = run.until(|view| view.pause.is_some()).await.unwrap();
        assert_eq!(view.pause.unwrap().reason, PauseReason::BudgetExhausted, "{id}");
        assert_eq!(model.request_count() - before, 2, "{id}");
        assert_eq!(view.head.budget.unwrap().turns, 2, "{id}");
    }
    onward.shutdown().await;
}

/// The copied generation is closed, its run is not: it has one successor, like any other run that is reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_reset_to_an_earlier_turn_ends() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let run = onward.start::<Value, _>("a", "one").id("c").await.unwrap();
    for (generation, message) in (2..).zip(["two", "three"]) {
        until_turn(&onward, "c", generation).await;
        run.message(message).await.unwrap();
    }
    until_turn(&onward, "c", 4).await;
    let reset = run.reset().of_generation(2).id("d").await.unwrap();
    let view = run.until(|view| view.head.status.is_closed()).await.unwrap();
    assert_eq!((view.head.status, view.reset_to.unwrap().as_str()), (Status::Terminated, "d"));
    let refused = run.reset().of_generation(1).id("e").await.err().unwrap();
    assert!(refused.to_string().contains("already reset to run d"), "{refused}");
    assert_eq!(run.reset().of_generation(2).id("d").await.unwrap().id(), reset.id(), "the same again is the same");
    onward.shutdown().await;
}

/// A conversation waits after every kind of stop; the stop must not look like a regular end of the model.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_was_stopped_says_so_before_it_waits() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let agent = Agent::new("a").model("m").tool(weather(&calls)).max_turns(2).converse();
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let stop = async |run: &onward::RunHandle<Value>| {
        let attributes = run.view().await.unwrap().head.attributes;
        attributes.into_iter().find(|attribute| attribute.name.as_str() == "agent_stop").map(|attribute| attribute.value)
    };
    let run = onward.start::<Value, _>("a", "hello").id("c").await.unwrap();
    until_turn(&onward, "c", 2).await;
    assert_eq!(stop(&run).await, None, "nothing has happened yet");
    let mut emissions = run.emitted();
    let mut generation = 2;
    for (answers, turns, reason) in [
        (vec![ScriptedReply { cut: true, ..ScriptedReply::text("I could say much more") }], 1, "max_tokens"),
        (vec![ScriptedReply::refusal("No.")], 1, "refused"),
        (
            vec![ScriptedReply::call("weather", r#"{"city":"Ulm"}"#), ScriptedReply::call("weather", r#"{"city":"Bonn"}"#)],
            2,
            "max_turns",
        ),
        (vec![ScriptedReply::text("That is all.")], 1, "done"),
    ] {
        answers.into_iter().for_each(|answer| model.next(answer));
        run.message("go on").await.unwrap();
        generation += turns;
        until_turn(&onward, "c", generation).await;
        assert_eq!(stop(&run).await, Some(reason.into()), "{reason}");
        if reason != "done" {
            let emitted = emissions.recv().await.unwrap();
            assert_eq!(
                (emitted.name.as_str(), emitted.value.read::<Value>().unwrap()),
                ("agent_stopped", json!({ "stop": reason }))
            );
        }
    }
    onward.shutdown().await;
}

/// Creates an agent with a tool that pays, with or without an approval, and counts its calls.
fn payer(directory: &std::path::Path, model: &ScriptedModel, needs_approval: bool, calls: &Arc<AtomicU32>) -> Builder {
    payer_who_is(Agent::new("a"), directory, model, needs_approval, calls)
}

fn payer_who_is(
    agent: Agent,
    directory: &std::path::Path,
    model: &ScriptedModel,
    needs_approval: bool,
    calls: &Arc<AtomicU32>,
) -> Builder {
    let calls = calls.clone();
    let pay = Tool::new("pay", "Pays", move |City { city }| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("{city} is paid")) }
    });
    let agent = agent.model("m").tool(if needs_approval { pay.needs_approval() } else { pay }).converse();
    with_model(embedded(directory), model).register(agent)
}

/// The settings change after a question was asked: the decision is not ignored, whatever it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_question_that_is_no_longer_asked_stops_the_run_before_anything_is_done() {
    let (directory, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start().await.unwrap());
    let calls = Arc::new(AtomicU32::new(0));
    model.next(ScriptedReply::call("pay", r#"{"city":"Ulm"}"#));
    let first = payer(directory.path(), &model, true, &calls).start().await.unwrap();
    let run = first.start::<Value, _>("a", "pay Ulm").id("c").await.unwrap();
    let question = crate::site::awaited(&run, AwaitedKind::Approval).await;
    drop(run);
    first.shutdown().await;
    let onward = payer(directory.path(), &model, false, &calls).start().await.unwrap();
    let run = onward.run::<Value>("c").unwrap();
    onward.disapprove(&question, "never").await.unwrap();
    let pause = crate::site::paused(&run).await;
    assert_eq!(pause.reason, PauseReason::EffectAbandoned);
    let parts =
        ["approval `tool.pay`", "which was DECLINED (never)", "now attempts task `", "then accept it with `onward run resume c`"];
    assert!(parts.iter().all(|words| pause.message.contains(words)), "{}", pause.message);
    assert_eq!(calls.load(Ordering::SeqCst), 0, "a person has declined");
    run.resume().await.unwrap();
    until_turn(&onward, "c", 3).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1, "after a resume the new settings apply");
    assert!(onward.list_approvals().await.unwrap().is_empty());
    onward.shutdown().await;
}

/// The same question is asked again because the conversation before it has changed: if the decisions agree, no operator is
/// needed.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_left_stops_the_run_only_where_the_next_one_differs() {
    for agrees in [true, false] {
        let (directory, model) = (tempfile::tempdir().unwrap(), ScriptedModel::start().await.unwrap());
        let calls = Arc::new(AtomicU32::new(0));
        model.next(ScriptedReply::call("pay", r#"{"city":"Ulm"}"#));
        let first = payer(directory.path(), &model, true, &calls).start().await.unwrap();
        let run = first.start::<Value, _>("a", "pay Ulm").id("c").await.unwrap();
        let old = crate::site::awaited(&run, AwaitedKind::Approval).await;
        drop(run);
        first.shutdown().await;
        model.next(ScriptedReply::call("pay", r#"{"city":"Ulm"}"#));
        let thrifty = Agent::new("a").system("Be thrifty.");
        let onward = payer_who_is(thrifty, directory.path(), &model, true, &calls).start().await.unwrap();
        let run = onward.run::<Value>("c").unwrap();
        if agrees {
            onward.approve(&old).await.unwrap()
        } else {
            onward.disapprove(&old, "never").await.unwrap()
        };
        let new = crate::site::eventually("it is asked again", async || {
            let open = onward.list_approvals().await.unwrap();
            open.into_iter().map(|wait| onward::CallRef::from(&wait).to_string()).find(|id| *id != old)
        })
        .await;
        onward.approve(&new).await.unwrap();
        if !agrees {
            let pause = crate::site::paused(&run).await;
            assert!(pause.message.contains("which was DECLINED (never)"), "{}", pause.message);
            assert_eq!(calls.load(Ordering::SeqCst), 0, "two people have decided differently");
            run.resume().await.unwrap();
        }
        until_turn(&onward, "c", 3).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        onward.shutdown().await;
    }
}

/// A question that the code has abandoned for another one cannot be answered: the answer would have no effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_the_code_has_left_takes_no_answer() {
    async fn approving(ctx: AgentCtx, title: &'static str) -> Result<bool> {
        ctx.turns((), |()| {
            let ctx = ctx.clone();
            async move {
                let decision = ctx.approval("go", title).await?;
                Ok(Turn::Done(decision.approved))
            }
        })
        .await
    }
    let directory = tempfile::tempdir().unwrap();
    let with = |title: &'static str| embedded(directory.path()).agent("a", move |ctx, (): ()| approving(ctx, title));
    let first = with("May I pay?").start().await.unwrap();
    let run = first.start::<bool, _>("a", &()).id("c").await.unwrap();
    let old = crate::site::awaited(&run, AwaitedKind::Approval).await;
    drop(run);
    first.shutdown().await;
    let onward = with("May I pay twice?").start().await.unwrap();
    let run = onward.run::<bool>("c").unwrap();
    run.signal("nudge", &()).await.unwrap();
    let new = crate::site::eventually("it asks something else", async || {
        let awaited = run.view().await.unwrap().awaiting.into_iter().find(|awaited| awaited.kind == AwaitedKind::Approval)?;
        (awaited.id != old).then_some(awaited.id)
    })
    .await;
    let refused = onward.approve(&old).await.unwrap_err();
    assert_eq!(refused.code(), "wait_abandoned", "{refused}");
    let listed: Vec<String> =
        onward.list_approvals().await.unwrap().iter().map(|wait| onward::CallRef::from(wait).to_string()).collect();
    assert_eq!(listed, [new.as_str()], "only open questions are listed");
    onward.approve(&new).await.unwrap();
    assert!(run.result().await.unwrap());
    assert_eq!(onward.approve(&old).await.unwrap_err().code(), "run_closed");
    onward.shutdown().await;
}

/// The API refuses an empty message; one that comes as a bare signal is not sent to the model, and does not end the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_message_begins_no_turn() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let run = onward.start::<Value, _>("a", "hello").id("c").await.unwrap();
    until_turn(&onward, "c", 2).await;
    assert_eq!(run.message("").await.unwrap_err().code(), "message_empty");
    for (generation, nothing) in [(3, json!("")), (4, json!({"blocks": [{"type": "text", "text": ""}]})), (5, json!(null))] {
        run.signal(MESSAGE, &nothing).await.unwrap();
        until_turn(&onward, "c", generation).await;
        assert_eq!((model.request_count(), conversation(&onward, "c").await.len()), (1, 2), "{nothing}");
    }
    // Appended entries are answered, whatever the signal contains.
    run.append("user", "are you there?").await.unwrap();
    run.signal(MESSAGE, &json!(null)).await.unwrap();
    until_turn(&onward, "c", 6).await;
    assert_eq!((model.request_count(), conversation(&onward, "c").await.len()), (2, 4));
    run.message("and now?").await.unwrap();
    until_turn(&onward, "c", 7).await;
    assert_eq!((model.request_count(), conversation(&onward, "c").await.len()), (3, 6));
    onward.shutdown().await;
}

/// A new message may repeat an earlier request: a stopped conversation is not stuck forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_message_begins_to_count_repeated_calls_anew() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let agent = Agent::new("a").model("m").tool(weather(&calls)).converse();
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    model.rule(Rule::always(ScriptedReply::call("weather", r#"{"city":"Ulm"}"#)));
    let mut emissions = onward.run::<Value>("c").unwrap().emitted();
    let run = onward.start::<Value, _>("a", "go").id("c").await.unwrap();
    let mut rests_in = 0;
    for count in 1..=3 {
        let waits = |awaited: &Awaited| awaited.kind == AwaitedKind::Signal;
        let view = run.until(|view| view.head.generation > rests_in && view.awaiting.iter().any(waits)).await.unwrap();
        rests_in = view.head.generation;
        assert_eq!((calls.load(Ordering::SeqCst), model.request_count()), (5 * count, u64::from(6 * count)), "message {count}");
        let stop = view.head.attributes.iter().find(|attribute| attribute.name.as_str() == "agent_stop").unwrap();
        assert_eq!(stop.value, "repeated_call".into());
        let emitted = emissions.recv().await.unwrap();
        assert_eq!(emitted.value.read::<Value>().unwrap(), json!({ "stop": "repeated_call" }));
        run.message("go on").await.unwrap();
    }
    onward.shutdown().await;
}

/// Models are called while budget is left; then the run waits for an operator.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_spent_its_own_budget_pauses_and_another_one_wins_over_it() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let agent = Agent::new("a").model("m").tool(weather(&calls)).budget(Budget::default().tokens(1));
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let input = r#"weather {"city":"Ulm"}"#;
    let run = onward.start::<AgentOutcome, _>("a", input).id("own").await.unwrap();
    let view = run.until(|view| view.pause.is_some()).await.unwrap();
    assert_eq!(view.pause.unwrap().reason, PauseReason::BudgetExhausted);
    assert_eq!((model.request_count(), calls.load(Ordering::SeqCst)), (1, 1));
    run.resume_with(Budget::default().tokens(100_000)).await.unwrap();
    let outcome = run.result().await.unwrap();
    assert_eq!((outcome.stop, outcome.turns, model.request_count()), (Stop::Done, 2, 2));
    let more = Budget::default().tokens(50_000);
    let run = onward.start::<AgentOutcome, _>("a", input).id("given").budget(more).await.unwrap();
    assert_eq!(run.result().await.unwrap().stop, Stop::Done);
    assert_eq!(run.view().await.unwrap().head.budget.unwrap().limit, more);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_at_its_budget_reports_it_and_ends_with_the_last_words() {
    let model = ScriptedModel::start().await.unwrap();
    let agent = |name: &str| {
        let agent = Agent::new(name).model("m").tool(weather(&Arc::default()));
        agent.budget(Budget::default().tokens(1)).stop_at_budget()
    };
    let builder = with_model(in_memory(), &model).register(agent("a")).register(agent("c").converse());
    let onward = builder.start().await.unwrap();
    model.next(ScriptedReply::text("Let me see.").and_call("weather", r#"{"city":"Ulm"}"#));
    let outcome = onward.start::<AgentOutcome, _>("a", "go").id("a").await.unwrap().result().await.unwrap();
    assert_eq!((outcome.stop, outcome.text.as_str(), outcome.turns), (Stop::BudgetExhausted, "Let me see.", 1));
    let run = onward.start::<Value, _>("c", "hello").id("c").await.unwrap();
    until_it_waits(&onward, "c", AwaitedKind::Signal).await;
    let request_count = model.request_count();
    run.message("go on").await.unwrap();
    let stop = |view: &onward::RunView| {
        let attributes = view.head.attributes.iter();
        attributes
            .filter(|attribute| attribute.name.as_str() == "agent_stop")
            .any(|found| found.value == "budget_exhausted".into())
    };
    run.until(stop).await.unwrap();
    assert_eq!((model.request_count(), run.view().await.unwrap().pause), (request_count, None), "it waits for the next message");
    onward.shutdown().await;
}

/// Input of front ends: the conversation so far in their format, and the last message like later ones.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_of_a_front_end_is_taken_like_later_ones() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m").converse()).start().await.unwrap();
    let parts = json!([{"type": "text", "text": "hello"}, {"type": "text", "text": " there"}]);
    let before = json!({"id": "u0", "role": "user", "content": "hm"});
    let first = json!({"id": "u1", "role": "user", "content": parts});
    let input = json!({"id": "u1", "text": "hello there", "messages": [before, first], "tools": [], "state": {"mood": "good"}});
    let run = onward.start::<Value, _>("a", &input).id("c").await.unwrap();
    until_turn(&onward, "c", 2).await;
    run.message(&json!({"id": "u2", "text": "and now?"})).await.unwrap();
    until_turn(&onward, "c", 3).await;
    let entries = conversation(&onward, "c").await;
    let contents: Vec<Value> =
        entries.iter().filter(|entry| entry.role.as_str() == "user").map(|entry| entry.content.read().unwrap()).collect();
    assert_eq!(contents, [json!("hm"), json!({"id": "u1", "text": "hello there"}), json!({"id": "u2", "text": "and now?"})]);
    let prompt = model.requests().remove(0).body["messages"].to_string();
    assert!(prompt.contains(r#""hello there""#) && !prompt.contains("type"), "{prompt}");
    onward.shutdown().await;
}

/// Steering: a message that arrives during a model call is answered, too, and no entry is there twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_comes_while_the_model_thinks_is_answered_next() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m")).start().await.unwrap();
    model.next(ScriptedReply { chunk_delay_ms: 150, ..ScriptedReply::text("One moment please, I am thinking about it.") });
    let run = onward.start::<AgentOutcome, _>("a", "first").id("s").await.unwrap();
    while model.request_count() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    run.signal("message", "second").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "You said: second");
    assert_eq!(roles(&onward, "s").await, ["user", "assistant", "user", "assistant"]);
    onward.shutdown().await;
}

/// Scenario 54: a long conversation is summarized before it overflows; the raw entries stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_compacted_and_nothing_is_lost() {
    let model = ScriptedModel::start().await.unwrap();
    let agent = Agent::new("a").model("m").converse().compact_at(120);
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    model.rule(Rule::when_user_says("Summarize the conversation", ScriptedReply::text("THE SUMMARY")));
    let run = onward.start::<Value, _>("a", "word 0 of a long conversation").id("c").await.unwrap();
    for n in 1..20 {
        until_turn(&onward, "c", n + 1).await;
        run.signal("message", &format!("word {n} of a long conversation")).await.unwrap();
    }
    until_turn(&onward, "c", 21).await;
    let entries = conversation(&onward, "c").await;
    let summaries = entries.iter().filter(|entry| entry.role.as_str() == "summary").count();
    assert!(summaries >= 1, "there is a summary");
    assert_eq!(entries.len() - summaries, 40, "every word is still there");
    let last = model.requests().pop().unwrap().body;
    let messages = last["messages"].as_array().unwrap();
    assert!(messages.len() < 30, "the model gets less: {}", messages.len());
    assert!(messages[0]["content"].to_string().contains("THE SUMMARY"));
    onward.shutdown().await;
}

/// A custom agent whose tool waits for a person: no error entry, and the conversation continues.
async fn careful(ctx: AgentCtx, input: String) -> Result<String> {
    if ctx.messages().await?.is_empty() {
        ctx.append(Role::User, &input).await?;
    }
    ctx.turns((), async |()| {
        let reply = ctx.llm("m").tools(&ctx.dep::<Tools>()).await?;
        ctx.append(Role::Assistant, &reply).await?;
        if reply.wants_tools() {
            for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
                ctx.append(Role::Tool, &outcome).await?;
            }
            return Ok(Turn::Next(()));
        }
        Ok(Turn::Done(format!("{} after {}", reply.text(), ctx.messages().await?.len())))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_waits_for_a_person_leaves_no_error_and_survives_the_process() {
    let model = ScriptedModel::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let start = || async {
        let weather_tool = Tool::inline("weather", "Asks somebody", |ctx: AgentCtx, City { city }| async move {
            let answer: String = ctx.signal("answer").recv().await?;
            Ok(format!("{city}: {answer}"))
        });
        let builder =
            with_model(embedded(directory.path()), &model).tools(Tools::new().with(weather_tool)).agent("careful", careful);
        builder.start().await.unwrap()
    };
    let onward = start().await;
    onward.start::<String, _>("careful", r#"weather {"city":"Ulm"}"#).id("c").await.unwrap();
    until_it_waits(&onward, "c", AwaitedKind::Signal).await;
    onward.shutdown().await;
    let onward = start().await;
    let run = onward.run::<String>("c").unwrap();
    assert_eq!(roles(&onward, "c").await, ["user", "assistant"]);
    run.signal("answer", "rain").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "weather says: Ulm: rain after 4");
    assert_eq!(roles(&onward, "c").await, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(model.request_count(), 2, "no call of the model was repeated");
    assert_eq!(run.view().await.unwrap().head.status, Status::Completed);
    onward.shutdown().await;
}

/// Appends three entries, goes back to the first, and appends another one in the next turn.
async fn think_again(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
    ctx.turns(0u32, async |turn| {
        if turn == 0 {
            for word in ["one", "two", "three"] {
                ctx.append(Role::User, word).await?;
            }
            return Ok(Turn::Next(1));
        }
        if turn == 1 {
            let first = ctx.messages().await?.first().map(Into::into).ok_or_else(|| Failure::fatal("there are entries"))?;
            ctx.branch(first).await?;
            ctx.append(Role::User, "another").await?;
            return Ok(Turn::Next(2));
        }
        assert_eq!(ctx.entry_count(), 2);
        Ok(Turn::Done(ctx.messages().await?.iter().map(|entry| entry.content.read().unwrap()).collect()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_goes_on_from_an_earlier_entry_and_the_other_one_stays() {
    let onward = in_memory().agent("thinker", think_again).start().await.unwrap();
    let run = onward.start::<Vec<String>, _>("thinker", &()).id("b").await.unwrap();
    assert_eq!(run.result().await.unwrap(), ["one", "another"]);
    let logs = all_logs(&onward, "b").await;
    let left = leaf_of(&logs[1]).unwrap();
    let page = run.entries().leaf(left).await.unwrap();
    assert_eq!(page.entries.len(), 3, "the earlier branch can be read by its last entry");
    onward.shutdown().await;
}

/// An invalid prompt will not become valid: it is not retried.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_be_put_together_fails_at_once() {
    let model = ScriptedModel::start().await.unwrap();
    let odd = async |ctx: AgentCtx, (): ()| ctx.task::<Value>("llm.m", "nonsense").pure().retry(100).await;
    let onward = with_model(in_memory(), &model).agent("odd", odd).start().await.unwrap();
    let run = onward.start::<Value, _>("odd", &()).id("o").await.unwrap();
    let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
    assert!(failure.message.contains("invalid input of a model call"), "{failure:?}");
    let attempts = all_logs(&onward, "o")
        .await
        .into_iter()
        .flatten()
        .flat_map(|record| record.events)
        .find_map(|event| if let Event::TaskFailed(event) = event { Some(event.attempts) } else { None });
    assert_eq!((attempts, model.request_count()), (Some(1), 0));
    onward.shutdown().await;
}

/// Failures are counted by cause: retries of a rate-limited key do not use up the attempts for an outage.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_one_cause_do_not_count_for_another() {
    let model = ScriptedModel::start().await.unwrap();
    let onward = with_model(in_memory(), &model).register(Agent::new("a").model("m")).start().await.unwrap();
    for fault in [Fault::Empty, Fault::Empty, Fault::ServerError, Fault::BreakAfter { chunks: 1 }, Fault::Overloaded] {
        model.next(ScriptedReply::fault(fault));
    }
    let run = onward.start::<AgentOutcome, _>("a", "hello").id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "You said: hello");
    assert_eq!(model.request_count(), 6);
    onward.shutdown().await;
}

/// The server is down at first; a conversation outlasts that.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_waited_out_and_readers_are_told_of_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let provider = Provider::openai(&format!("http://{address}/v1"), None).unwrap();
    let onward = in_memory().model("m", &provider).register(Agent::new("a").model("m")).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", "hello").id("r").await.unwrap();
    let mut stream = run.stream(None);
    let failed = loop {
        if let StreamContent::AttemptFailed(failed) = stream.next().await.unwrap().unwrap().content
            && failed.attempt == 3
        {
            break failed;
        }
    };
    assert_eq!((failed.failure.code.as_str(), failed.attempts_max, failed.next_delay_ms), ("model_unreachable", 0, Some(4_000)));
    let so_far: Value = failed.failure.details.unwrap().read().unwrap();
    assert_eq!(so_far, json!({"counts": {"model_unreachable": 3}, "waited_ms": 7_000}));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let _model = ScriptedModel::start_on(listener).unwrap();
    assert_eq!(run.result().await.unwrap().text, "You said: hello");
    onward.shutdown().await;
}

/// The failures of a call so far are stored encrypted, and count in the next process.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted_over_processes_and_behind_a_codec() {
    let model = ScriptedModel::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let start = || async {
        let key = EncryptionKey::new("k", [7; 32]).unwrap();
        let builder = with_model(embedded(directory.path()), &model).codec(Encryption::new([key]).unwrap());
        builder.register(Agent::new("a").model("m")).start().await.unwrap()
    };
    model.rule(Rule::always(ScriptedReply::fault(Fault::Empty)));
    let onward = start().await;
    let run = onward.start::<AgentOutcome, _>("a", "hello").id("r").await.unwrap();
    let mut stream = run.stream(None);
    while !matches!(stream.next().await.unwrap().unwrap().content, StreamContent::AttemptFailed(_)) {}
    drop((stream, run));
    onward.shutdown().await;
    let onward = start().await;
    let run = onward.run::<AgentOutcome>("r").unwrap();
    let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
    assert_eq!((failure.code.as_str(), model.request_count()), ("empty_model_response", 3));
    onward.shutdown().await;
}

/// S14: addresses of models and tools are settings of the operator. Addresses from a caller are text for the model and nothing
/// else.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_an_input_or_a_message_is_never_called() {
    let model = ScriptedModel::start().await.unwrap();
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", elsewhere.local_addr().unwrap());
    let called = tokio::spawn(async move { elsewhere.accept().await.is_ok() });
    let agent = Agent::new("helper").model("m").system("Be brief.").converse();
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let settings = json!({
        "text": "hello", "base_url": url, "model": "other", "api_key": "k", "provider": {"type": "openai", "base_url": url},
        "options": {"base_url": url}, "mcp": [{"url": url}], "mcp_servers": {"evil": {"url": url}}, "tools": [{"type": "mcp", "server_url": url}],
    });
    let mut conversation = settings.clone();
    conversation["messages"] = json!([{"id": "1", "role": "user", "content": "hello", "base_url": url}]);
    for (id, input) in [("a", &settings), ("b", &conversation)] {
        let run = onward.start::<Value, _>("helper", input).id(id).await.unwrap();
        until_turn(&onward, id, 2).await;
        run.signal(MESSAGE, &settings).await.unwrap();
        until_turn(&onward, id, 3).await;
    }
    assert_eq!(model.request_count(), 4, "the operator's model answers each input and each message");
    assert!(!called.is_finished(), "nothing has called the address");
    called.abort();
    onward.shutdown().await;
}
