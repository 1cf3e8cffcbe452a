//! Forks of later turns of an agent: runs with the whole conversation, whatever happens to their original.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{AgentCtx, Provider, Turn};
use onward::ledger::{SpendBy, SpendQuery};
use onward::prelude::*;
use onward::{Entry, Onward, RunHandle, Status};
use onward_core::{RunId, RunKey};
use onward_llm_scripted::ScriptedModel;
use onward_runtime::export_run;

use crate::site::{Site, eventually, everywhere, until_status};

const MESSAGE: Signal<String> = Signal::new("message");

/// Counts how often the part before the turns was executed.
type Prepared = Arc<AtomicU32>;

/// Answers with a model, and knows the length of the conversation.
async fn chat(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append("user", &first).await?;
    ctx.query("began with", move |()| Ok(first.clone()));
    ctx.turns(0u32, async |turn| {
        for message in ctx.signal(&MESSAGE).drain()? {
            ctx.append("user", &message).await?;
        }
        if ctx.messages().await?.len() as u64 != ctx.entry_count() {
            return Err(Failure::fatal("something is missing"));
        }
        let reply = ctx.llm("m").system("Be brief.").await?;
        ctx.append("assistant", &reply).await?;
        Ok(Turn::wait_for(turn + 1, &MESSAGE))
    })
    .await
}

/// Returns the messages of the last request to the model, shortened, once the agent has answered.
async fn last_prompt(run: &RunHandle<u32>, model: &ScriptedModel, depth: u64) -> Vec<String> {
    let answered = async || (run.entries().await.unwrap().depth == Some(depth)).then_some(());
    eventually("the answer", answered).await;
    until_status(run, Status::Waiting).await;
    let body = model.requests().pop().unwrap().body;
    let text = |message: &serde_json::Value| message["content"].as_str().unwrap_or_default().to_owned();
    body["messages"].as_array().unwrap().iter().map(text).collect()
}

/// Executes, before its turns, a step that must run once and has unique ids.
async fn prepared(ctx: AgentCtx, first: String) -> Result<u32> {
    let drawn = (ctx.uuid(), ctx.child::<String>("kid", &()).await?);
    let count = ctx.dep::<Prepared>();
    ctx.step("prepare", || async move { Ok::<_, Failure>(count.fetch_add(1, Ordering::SeqCst)) }).await?;
    ctx.query("drawn", move |()| Ok(drawn.clone()));
    chat(ctx, first).await
}

async fn kid(ctx: Ctx, (): ()) -> Result<String> {
    ctx.dep::<Prepared>().fetch_add(1, Ordering::SeqCst);
    Ok(ctx.run_id().to_string())
}

async fn start(site: &Site, model: &ScriptedModel, prepared_count: &Prepared) -> Onward {
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let builder = site.builder().await.model("m", &provider).dep(prepared_count.clone());
    builder.workflow("kid", kid).agent("chat", chat).agent("prepared", prepared).start().await.unwrap()
}

fn key(id: &str) -> RunKey {
    RunKey::new(Default::default(), RunId::new(id).unwrap())
}

async fn entries(run: &RunHandle<u32>) -> Vec<Entry> {
    run.entries().limit(100).await.unwrap().entries
}

async fn until_depth(run: &RunHandle<u32>, depth: u64) {
    eventually("the answer", async || (run.entries().await.unwrap().depth == Some(depth)).then_some(())).await;
    until_status(run, Status::Waiting).await;
}

/// Returns the number of attempts of each run in the ledger.
async fn attempts(onward: &Onward) -> Vec<(String, u64)> {
    let rows = onward.read_spend(SpendQuery::by(SpendBy::Run)).await.unwrap();
    let mut rows: Vec<_> = rows.into_iter().map(|row| (row.name, row.totals.attempts)).collect();
    rows.sort();
    rows
}

everywhere! {
    /// Z6: the conversation before the fork, the code before its turns, and the settings of the calls are in logs of its own.
    async fn a_fork_of_a_later_turn_goes_on_with_the_whole_conversation(site) {
        let model = ScriptedModel::start().await.unwrap();
        let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
        let onward = site.builder().await.model("m", &provider).agent("chat", chat).start().await.unwrap();
        let run = onward.start::<u32, _>("chat", "one").id("r").await.unwrap();
        last_prompt(&run, &model, 2).await;
        run.message("two").await.unwrap();
        last_prompt(&run, &model, 4).await;
        let fork = run.fork().id("fork").await.unwrap();
        fork.message("three").await.unwrap();
        let mut expected = vec!["Be brief.", "one", "You said: one", "two", "You said: two", "three"];
        assert_eq!(last_prompt(&fork, &model, 6).await, expected);
        fork.message("four").await.unwrap();
        expected.extend(["You said: three", "four"]);
        assert_eq!(last_prompt(&fork, &model, 8).await, expected);
        let view = fork.view().await.unwrap();
        assert_eq!(view.input.read::<String>().unwrap(), "one");
        assert_eq!(fork.query::<String>("began with", &()).await.unwrap(), "one");
        // A fork of the fork, and the original, which is not affected.
        let second = fork.fork().id("second").await.unwrap();
        second.message("five").await.unwrap();
        expected.extend(["You said: four", "five"]);
        assert_eq!(last_prompt(&second, &model, 10).await, expected);
        run.message("three and a half").await.unwrap();
        assert_eq!(last_prompt(&run, &model, 6).await[3..], ["two", "You said: two", "three and a half"]);
        drop((run, fork, second));
        onward.shutdown().await;
    }

    /// Z6: everything that the original could do before, the fork can do without it, and so can a copy of the fork elsewhere.
    async fn a_fork_stands_alone_when_its_original_is_gone(site) {
        let (model, prepared_count) = (ScriptedModel::start().await.unwrap(), Prepared::default());
        let onward = start(site, &model, &prepared_count).await;
        let run = onward.start::<u32, _>("prepared", "one").id("r").await.unwrap();
        until_depth(&run, 2).await;
        run.append("user", "noted").id("k").await.unwrap();
        run.message("two").await.unwrap();
        until_depth(&run, 5).await;
        run.message("three").await.unwrap();
        until_depth(&run, 7).await;
        let (conversation, drawn) = (entries(&run).await, run.query::<(String, String)>("drawn", &()).await.unwrap());
        let known = run.append("user", "noted").id("k").await.unwrap();
        drop(run.fork().id("fork").await.unwrap());
        drop(run.reset().of_generation(2).id("reset").await.unwrap());
        until_status(&run, Status::Terminated).await;
        onward.delete_run("r", "").await.unwrap();
        drop(run);
        onward.shutdown().await; // cached logs of the original are gone with the process

        let onward = start(site, &model, &prepared_count).await;
        let fork = onward.run::<u32>("fork").unwrap();
        assert_eq!(entries(&fork).await, conversation, "the same entries, in logs of the same numbers");
        assert_eq!(fork.view().await.unwrap().input.read::<String>().unwrap(), "one");
        let again = fork.append("user", "noted").id("k").await.unwrap();
        assert_eq!((again.already_existed, again.entry), (true, known.entry));
        fork.message("four").await.unwrap();
        let mut expected =
            vec!["Be brief.", "one", "You said: one", "noted", "two", "You said: two", "three", "You said: three", "four"];
        assert_eq!(last_prompt(&fork, &model, 9).await, expected);
        assert_eq!(fork.query::<(String, String)>("drawn", &()).await.unwrap(), drawn);
        assert_eq!(drawn.1, "r/1", "a child has the name that it was started under");
        assert_eq!(prepared_count.load(Ordering::SeqCst), 2, "nothing that was done before is done again");
        let reset = onward.run::<u32>("reset").unwrap();
        reset.message("four").await.unwrap();
        until_depth(&reset, 7).await;
        assert_eq!(entries(&reset).await[..4], conversation[..4]);
        // The spend of the original is counted once, and stays.
        assert_eq!(attempts(&onward).await, [("fork".to_owned(), 1), ("r".to_owned(), 3), ("reset".to_owned(), 2)]);
        // Back across the turns that it copied from the original.
        fork.branch(conversation[3].parent).entry("user", "zwei").await.unwrap();
        let wanted = ["Be brief.", "one", "You said: one", "noted", "zwei"];
        eventually("the branch", async || (last_prompt(&fork, &model, 5).await == wanted).then_some(())).await;
        let left = fork.entries().leaf(conversation[6].id).limit(100).await.unwrap();
        assert_eq!(left.entries, conversation, "what was left can be read");

        // In another store, which never had the original.
        let runtime = site.runtime(&onward);
        let alone = export_run(runtime, &key("fork")).await.unwrap();
        let elsewhere = if site.is_sealed { Site::sealed() } else { Site::memory() };
        let other = start(&elsewhere, &model, &prepared_count).await;
        let imported = elsewhere.runtime(&other).import_runs(vec![alone]).await.unwrap();
        assert_eq!(imported.created.len(), 1, "{imported:?}");
        let fork = other.run::<u32>("fork").unwrap();
        fork.message("drei").await.unwrap();
        expected = wanted.into_iter().chain(["You said: zwei", "drei"]).collect();
        assert_eq!(last_prompt(&fork, &model, 7).await, expected);
        let second = fork.fork().of_generation(3).id("second").await.unwrap();
        assert_eq!(entries(&second).await[..5], conversation[..5]);
        fork.terminate("").await.unwrap();
        other.delete_run("fork", "").await.unwrap();
        second.message("fin").await.unwrap();
        assert_eq!(last_prompt(&second, &model, 9).await.last().unwrap(), "fin");
        assert_eq!(prepared_count.load(Ordering::SeqCst), 2);
        drop((fork, second, reset));
        other.shutdown().await;
        onward.shutdown().await;
    }
}
