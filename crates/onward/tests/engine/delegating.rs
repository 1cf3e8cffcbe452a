//! Agents that delegate: runs as tools, and handoffs of conversations.

use onward::agent::{Agent, AgentCtx, AgentOutcome, MESSAGE, Provider, Stop, Tool, Turn};
use onward::prelude::*;
use onward::{Builder, Event, RunHandle, RunQuery};
use onward_core::conversation::Entry;
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply, When};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::in_memory;
use crate::site::{DEADLINE, events, everywhere};

fn with_model(builder: Builder, model: &ScriptedModel) -> Builder {
    builder.model("m", &Provider::openai(&format!("{}/v1", model.url()), None).unwrap())
}

async fn list_entries<O>(run: &RunHandle<O>) -> Vec<(String, String)> {
    let entries: Vec<Entry> = run.entries().limit(100).await.unwrap().entries;
    let text =
        |entry: &Entry| entry.content.read::<String>().unwrap_or_else(|_| String::from_utf8_lossy(entry.content.data()).into());
    entries.iter().map(|entry| (entry.role.to_string(), text(entry))).collect()
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Sum {
    a: u32,
    b: u32,
}

async fn add(ctx: Ctx, Sum { a, b }: Sum) -> Result<u32> {
    if a == 13 {
        return Err(Failure::fatal("an unlucky number").with_code("unlucky"));
    }
    ctx.step("add", async || Ok::<_, Failure>(a + b)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_workflows_are_tools_whose_runs_are_children_also_several_at_once() {
    let model = ScriptedModel::start().await.unwrap();
    let calls = ScriptedReply::call("researcher", r#"{"task": "find rivers"}"#)
        .and_call("add", r#"{"a": 1, "b": 2}"#)
        .and_call("add", r#"{"a": 13, "b": 2}"#);
    model.rule(Rule::when_user_says("find rivers", ScriptedReply::text("the Danube")));
    model.next(calls);
    let boss = Agent::new("boss")
        .model("m")
        .tool(Tool::agent("researcher", "Looks things up", "scholar"))
        .tool(Tool::workflow::<Sum>("add", "Adds two numbers", "add"));
    let builder = with_model(in_memory(), &model).register(boss).register(Agent::new("scholar").model("m"));
    let onward = builder.workflow("add", add).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("boss", "do all of it").id("b").await.unwrap();
    assert_eq!(run.result().await.unwrap().stop, Stop::Done);
    let results: Vec<String> =
        list_entries(&run).await.into_iter().filter(|(role, _)| role == "tool").map(|(_, text)| text).collect();
    assert!(results[0].contains("the Danube"), "{results:?}");
    assert!(results[1].contains("\"3\""), "{results:?}");
    assert!(results[2].contains("an unlucky number (unlucky)") && results[2].contains("\"is_error\":true"), "{results:?}");
    let children: Vec<String> = run
        .log_of(1)
        .await
        .unwrap()
        .into_iter()
        .flat_map(|record| record.events)
        .filter_map(|event| match event {
            Event::ChildStarted(child) => Some(child.child.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(children.len(), 3);
    let scholar: RunHandle<AgentOutcome> = onward.run(&children[0]).unwrap();
    assert_eq!(scholar.view().await.unwrap().head.parent.unwrap().run.id.as_str(), "b");
    assert_eq!(list_entries(&scholar).await[0], ("user".to_owned(), "find rivers".to_owned()));
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_hands_the_conversation_over_and_the_other_agent_answers_in_it() {
    let model = ScriptedModel::start().await.unwrap();
    model.next(ScriptedReply::call("handoff_to_billing", r#"{"reason": "it is about money"}"#));
    let front = Agent::new("front").model("m").system("You are the front desk.").handoff_to("billing");
    let billing = Agent::new("billing").model("m").system("You know the bills.").converse();
    let onward = with_model(in_memory(), &model).register(front).register(billing).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("front", "where is my bill?").id("c").await.unwrap();
    crate::site::eventually("it answers", async || (list_entries(&run).await.len() == 4).then_some(())).await;
    let roles = |entries: Vec<(String, String)>| entries.into_iter().map(|(role, _)| role).collect::<Vec<_>>();
    assert_eq!(roles(list_entries(&run).await), ["user", "assistant", "tool", "assistant"]);
    let last = model.requests().pop().unwrap().body.to_string();
    assert!(last.contains("You know the bills.") && last.contains("where is my bill?"), "{last}");
    run.message("thanks").await.unwrap();
    crate::site::eventually("it answers", async || (list_entries(&run).await.len() == 6).then_some(())).await;
    assert_eq!(run.view().await.unwrap().head.kind.as_str(), "billing");
    onward.shutdown().await;
}

/// Creates models `front` and `back`, each of which hands over to the other one.
fn two_who_hand_over(model: &ScriptedModel) -> Builder {
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    [("front", "handoff_to_back"), ("back", "handoff_to_front")].into_iter().fold(in_memory(), |builder, (name, call)| {
        let when = When { model: Some(name.to_owned()), ..When::default() };
        model.rule(Rule { when, ..Rule::always(ScriptedReply::call(call, "{}")) });
        builder.model(name, &provider)
    })
}

/// Two agents that hand a conversation over to each other are stopped, and a message resets the counter.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_hand_over_to_each_other_for_ever_are_stopped() {
    let model = ScriptedModel::start().await.unwrap();
    let builder = two_who_hand_over(&model);
    let agent = |name: &str, other: &str| Agent::new(name).model(name).handoff_to(other);
    let builder = builder.register(agent("front", "back").max_handoffs(3).converse());
    let onward = builder.register(agent("back", "front").max_handoffs(3).converse()).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("front", "whose is this?").id("c").await.unwrap();
    for (word, entries) in [("and now?", 9), ("thanks", 18)] {
        crate::site::eventually("it is stopped", async || {
            let attributes = run.view().await.unwrap().head.attributes;
            let stop = attributes.iter().find(|attribute| attribute.name.as_str() == "agent_stop")?;
            (stop.value == "max_handoffs".into() && list_entries(&run).await.len() == entries).then_some(())
        })
        .await;
        let (role, last) = list_entries(&run).await.pop().unwrap();
        assert!(role == "tool" && last.contains("handed over 3 times") && last.contains("\"is_error\":true"), "{last}");
        run.message(word).await.unwrap();
    }
    onward.shutdown().await;
}

/// Turns are counted per conversation, whichever agent has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_does_not_begin_to_count_turns_anew() {
    let model = ScriptedModel::start().await.unwrap();
    let builder = two_who_hand_over(&model);
    let agent = |name: &str, other: &str| Agent::new(name).model(name).handoff_to(other);
    let builder = builder.register(agent("front", "back").max_turns(5));
    let onward = builder.register(agent("back", "front").max_turns(3)).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("front", "whose is this?").id("c").await.unwrap();
    let outcome = run.result().await.unwrap();
    assert_eq!((outcome.stop, outcome.turns, model.request_count()), (Stop::MaxTurns, 3, 3));
    onward.shutdown().await;
}

/// Hands over to `front`, which hands back; with `listens`, it waits for a message before.
async fn courier(ctx: AgentCtx, listens: bool) -> Result<AgentOutcome> {
    if listens {
        let word: String = ctx.signal(MESSAGE).recv().await?;
        ctx.append("user", &word).await?;
    }
    ctx.append("user", "carried on").await?;
    ctx.turns((), async |()| ctx.handoff("front", &()).await).await
}

/// Code between two ready-made agents does not know their limits, and yet they apply.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_counted_goes_along_through_code_that_does_not_count() {
    for (id, handoffs_max, turns_max, stop) in [("h", 4, 50, "max_handoffs"), ("t", 50, 3, "max_turns")] {
        let model = ScriptedModel::start().await.unwrap();
        let agent = Agent::new("front").model("front").handoff_to("back").max_handoffs(handoffs_max).max_turns(turns_max);
        let builder = two_who_hand_over(&model).register(agent);
        let back = async |ctx: AgentCtx, (): ()| courier(ctx, false).await;
        let onward = builder.agent("back", back).start().await.unwrap();
        let run: RunHandle<AgentOutcome> = onward.start("front", "whose is this?").id(id).await.unwrap();
        let outcome = tokio::time::timeout(DEADLINE, run.result()).await.expect("it is stopped").unwrap();
        assert_eq!((outcome.stop.name(), outcome.turns), (stop, 3), "a round has two handoffs and one turn");
        onward.shutdown().await;
    }
}

/// A message resets the counter, whichever code receives it.
#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_other_code_receives_begins_to_count_anew() {
    let model = ScriptedModel::start().await.unwrap();
    let agent = Agent::new("front").model("front").handoff_to("back").max_handoffs(3);
    let builder = two_who_hand_over(&model).register(agent);
    let onward = builder.agent("back", async |ctx: AgentCtx, (): ()| courier(ctx, true).await).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("front", "whose is this?").id("c").await.unwrap();
    for round in 1..=6_usize {
        crate::site::eventually("it is handed over", async || {
            (list_entries(&run).await.len() == 1 + 2 * round + 2 * (round - 1)).then_some(())
        })
        .await;
        run.message(&format!("word {round}")).await.unwrap();
    }
    crate::site::eventually("it goes on", async || (list_entries(&run).await.len() == 27).then_some(())).await;
    assert!(!run.view().await.unwrap().head.status.is_closed());
    onward.shutdown().await;
}

/// An agent that is its own tool is told its depth, and does the rest itself.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_start_each_other_go_no_deeper_than_they_may() {
    let model = ScriptedModel::start().await.unwrap();
    let when = When { after_tools: Some(true), ..When::default() };
    model.rule(Rule { when, ..Rule::always(ScriptedReply::text("done here")) });
    model.rule(Rule::always(ScriptedReply::call("helper", r#"{"task": "go deeper"}"#)));
    let agent = Agent::new("digger").model("m").tool(Tool::agent("helper", "Does it", "digger")).max_depth(3);
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let run: RunHandle<AgentOutcome> = onward.start("digger", "dig").id("d").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "done here");
    let mut runs = onward.list_runs(RunQuery::default()).await.unwrap().runs;
    runs.sort_by_key(|head| head.nesting);
    let nesting: Vec<Option<u32>> = runs.iter().map(|head| head.nesting).collect();
    assert_eq!(nesting, [None, Some(1), Some(2), Some(3)]);
    let deepest: RunHandle<AgentOutcome> = onward.run(runs[3].key.id.as_str()).unwrap();
    let result = list_entries(&deepest).await.into_iter().find(|(role, _)| role == "tool").unwrap().1;
    assert!(result.contains("nested_too_deep") && result.contains("\"is_error\":true"), "{result}");
    onward.shutdown().await;
}

/// Receives one message and hands over, before its turns or in the second one.
async fn first(ctx: AgentCtx, (input, is_early): (String, bool)) -> Result<String> {
    ctx.append("user", &input).await?;
    if is_early {
        return ctx.handoff("second", "from the first").await;
    }
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            ctx.append("assistant", &format!("first {turn}")).await?;
            if turn == 1 {
                return ctx.handoff("second", "from the first").await;
            }
            Ok(Turn::Next(turn + 1))
        }
    })
    .await
}

async fn second(ctx: AgentCtx, input: String) -> Result<String> {
    assert_eq!(ctx.checkpointed::<String>()?.filter(|_| ctx.entry_count() == 0), None);
    ctx.append("system", &input).await?;
    ctx.turns(Vec::new(), |mut received: Vec<String>| {
        let ctx = ctx.clone();
        async move {
            for word in ctx.signal(MESSAGE).drain::<String>()? {
                ctx.append("user", &word).await?;
                received.push(word);
            }
            ctx.append("assistant", &format!("second {}", received.len())).await?;
            if received.len() == 2 { Ok(Turn::Done(received.join(" "))) } else { Ok(Turn::Await(received, MESSAGE)) }
        }
    })
    .await
}

everywhere! {
    async fn a_conversation_that_is_handed_over_goes_on_as_the_same_run(site) {
        for is_early in [false, true] {
            let id = format!("h-{is_early}");
            let onward = site.builder().await.agent("first", first).start().await.unwrap();
            let input = ("hello".to_owned(), is_early);
            let run: RunHandle<String> = onward.start("first", &input).id(&id).await.unwrap();
            crate::site::eventually("it is handed over", async || {
                (run.view().await.unwrap().head.kind.as_str() == "second").then_some(())
            })
            .await;
            run.message("one").await.unwrap();
            drop(run);
            onward.shutdown().await;
            // Another process has the other kind.
            let onward = site.builder().await.agent("second", second).start().await.unwrap();
            let run: RunHandle<String> = onward.run(&id).unwrap();
            crate::site::eventually("the message arrived", async || {
                list_entries(&run).await.iter().any(|(_, text)| text == "one").then_some(())
            })
            .await;
            drop(run);
            onward.shutdown().await;
            let onward = site.builder().await.agent("first", first).agent("second", second).start().await.unwrap();
            let again: RunHandle<String> = onward.start("first", &input).id(&id).await.unwrap();
            again.message("two").await.unwrap();
            assert_eq!(again.result().await.unwrap(), "one two", "the same start is the same run");
            let texts: Vec<String> = list_entries(&again).await.into_iter().map(|(_, text)| text).collect();
            let before: &[&str] = if is_early { &["hello"] } else { &["hello", "first 0", "first 1"] };
            assert_eq!(&texts[..before.len()], before);
            assert_eq!(texts[before.len()], "from the first");
            assert_eq!(texts.last().unwrap(), "second 2");
            assert!(events(&again).await.iter().any(|event| matches!(event, Event::RunCompleted(_))));
            drop(again);
            onward.shutdown().await;
        }
    }
}
