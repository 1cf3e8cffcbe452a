//! Invalid tools are refused at registration; tools that are not tasks, and their options.

use std::time::Duration;

use onward::agent::{Agent, AgentCtx, AgentOutcome, Provider, Tool, ToolMistake, Tools};
use onward::prelude::*;
use onward::{Builder, Error, RegisterError, RunHandle, RunQuery, Status};
use onward_llm_scripted::{ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::in_memory;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn tool(name: &str) -> Tool {
    Tool::new(name, "Does nothing", |_: Nothing| async { Ok::<_, Failure>("done") })
}

fn inline(name: &str) -> Tool {
    Tool::inline(name, "Waits", |ctx: AgentCtx, _: Nothing| async move { ctx.signal("go").recv::<String>().await })
}

async fn refused(builder: Builder) -> RegisterError {
    match builder.start().await {
        Err(Error::Register(mistake)) => mistake,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is refused"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_provider_takes_are_refused() {
    for name in ["", "look up", "look.up", "größe", &"x".repeat(65)] {
        let mistake = refused(in_memory().tools(Tools::new().with(tool(name)))).await;
        assert_eq!(mistake, RegisterError::Tool(ToolMistake::Name { name: name.to_owned() }));
        let agent = Agent::new("a").model("m").tools(&Tools::new().with(tool(name)));
        assert!(matches!(refused(in_memory().register(agent)).await, RegisterError::Tool(ToolMistake::Name { .. })));
    }
    in_memory().tools(Tools::new().with(tool("look-up_2")).with(tool(&"x".repeat(64)))).start().await.unwrap().shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tools_of_one_name_are_refused() {
    let twice = |name: &str| RegisterError::Tool(ToolMistake::Twice { name: name.to_owned() });
    assert_eq!(refused(in_memory().tools(Tools::new().with(tool("a")).with(tool("a")))).await, twice("a"));
    let agent = Agent::new("a").model("m").handoff_to("b.c").handoff_to("b_c");
    assert_eq!(refused(in_memory().register(agent)).await, twice("handoff_to_b_c"));
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_object_are_refused() {
    let odd = Tool::new("odd", "Takes a text", |text: String| async move { Ok::<_, Failure>(text) });
    let none = Tool::new("none", "Takes nothing", |(): ()| async move { Ok::<_, Failure>("done") });
    for (tool, name) in [(odd, "odd"), (none, "none")] {
        let mistake = refused(in_memory().tools(Tools::new().with(tool))).await;
        assert_eq!(mistake, RegisterError::Tool(ToolMistake::Arguments { name: name.to_owned() }));
    }
    let any = Tool::new("any", "Takes anything", |value: Value| async move { Ok::<_, Failure>(value) });
    in_memory().tools(Tools::new().with(any)).start().await.unwrap().shutdown().await;
}

/// Options that would have no effect are refused.
#[tokio::test(flavor = "multi_thread")]
async fn options_that_mean_nothing_for_a_tool_are_refused() {
    let child = || Tool::agent("child", "Works", "worker");
    for tool in [inline("w").pure(), inline("w").retry(3), child().at_most_once(), child().keyed(), child().retry(3)] {
        let mistake = refused(in_memory().tools(Tools::new().with(tool))).await;
        assert!(matches!(mistake, RegisterError::Tool(ToolMistake::Option { .. })), "{mistake}");
    }
    let timeouts = Tools::new().with(inline("w").timeout(Duration::from_secs(1))).with(child().timeout(Duration::from_secs(1)));
    in_memory().tools(timeouts).start().await.unwrap().shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_model_is_refused() {
    let mistake = refused(in_memory().register(Agent::new("a"))).await;
    assert_eq!(mistake, RegisterError::NoModel { agent: "a".to_owned() });
    assert!(mistake.hint().contains(".model("));
}

/// A call waits no longer for a person or another run than its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn tools_that_are_no_tasks_are_given_up_when_their_time_is_over() {
    let model = ScriptedModel::start().await.unwrap();
    let short = Duration::from_millis(50);
    let agent = Agent::new("a")
        .model("m")
        .tool(inline("ask").timeout(short))
        .tool(Tool::workflow::<Nothing>("child", "Waits", "waits").timeout(short));
    let waits = async |ctx: Ctx, _: Value| ctx.signal("go").recv::<String>().await;
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let onward = in_memory().model("m", &provider).register(agent).workflow("waits", waits).start().await.unwrap();
    model.next(ScriptedReply::call("ask", "{}").and_call("child", "{}"));
    model.next(ScriptedReply::text("I see."));
    let run: RunHandle<AgentOutcome> = onward.start("a", "go").id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "I see.");
    let entries = run.entries().await.unwrap().entries;
    let results: Vec<_> = entries.iter().filter(|entry| entry.role.as_str() == "tool").collect();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|entry| String::from_utf8_lossy(entry.content.data()).contains("timed_out")));
    crate::site::eventually("the child is canceled", async || {
        let runs = onward.list_runs(RunQuery::default()).await.unwrap().runs;
        runs.iter().any(|head| head.kind.as_str() == "waits" && head.status == Status::Canceled).then_some(())
    })
    .await;
    onward.shutdown().await;
}
