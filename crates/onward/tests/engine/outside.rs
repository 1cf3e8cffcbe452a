//! Entries that clients append to the conversation of an agent, and messages to it.

use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward::{EntryPage, Event, RunHandle, Status};
use onward_core::view::AwaitedKind;

use crate::site::{awaited, eventually, everywhere, until_status};

/// Repeats every message, and ends with the message `end`.
async fn echo(ctx: AgentCtx, (): ()) -> Result<u32> {
    ctx.append("system", "be brief").await?;
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal("message").drain::<String>()? {
                ctx.append("user", &message).await?;
                if message == "end" {
                    return Ok(Turn::Done(turn));
                }
                ctx.append("assistant", &format!("you said: {message}")).await?;
            }
            Ok(Turn::Await(turn + 1, "message"))
        }
    })
    .await
}

/// Greets in every turn, once, and repeats what a client may have appended already.
async fn greeter(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
    ctx.turns(Vec::new(), |mut seen: Vec<String>| {
        let ctx = ctx.clone();
        async move {
            let greeting = ctx.append_once("greeting", "assistant", "hello").await?;
            seen.push(greeting.to_string());
            let Some(word) = ctx.signal("message").try_recv::<String>()? else { return Ok(Turn::Await(seen, "message")) };
            ctx.append_once("from outside", "user", &word).await?;
            let taken = ctx.append_once("greeting", "assistant", "good bye").await.unwrap_err();
            assert_eq!(taken.code, "entry_key_taken");
            if seen.len() == 4 { Ok(Turn::Done(seen)) } else { Ok(Turn::Await(seen, "message")) }
        }
    })
    .await
}

/// An agent without turns: reads new entries on a signal.
async fn plain(ctx: AgentCtx, (): ()) -> Result<u32> {
    let mut count = 0;
    for _ in 0..2 {
        let () = ctx.signal("look").recv().await?;
        count += ctx.take_in().await.len() as u32;
    }
    ctx.append("assistant", &format!("{count} in all")).await?;
    Ok(count)
}

/// Receives signals of every name.
async fn all_ears(ctx: Ctx, (): ()) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "end") {
        let (name, _) = ctx.signals("*").recv::<u32>().await?;
        names.push(name.to_string());
    }
    Ok(names)
}

fn format_entries(page: &EntryPage) -> Vec<String> {
    let format_entry = |entry: &onward::Entry| format!("{}: {}", entry.role, entry.content.read::<String>().unwrap());
    page.entries.iter().map(format_entry).collect()
}

async fn until_depth<O>(run: &RunHandle<O>, depth: u64) -> EntryPage {
    eventually("the entries", async || Some(run.entries().await.unwrap()).filter(|page| page.depth == Some(depth))).await
}

everywhere! {
    async fn what_is_appended_waits_for_the_turn_and_comes_before_what_woke_it(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        awaited(&run, AwaitedKind::Signal).await;
        let long = "a tool has found something that takes a few more words to say";
        let first = run.append("tool", long).await.unwrap();
        assert!(!first.already_existed && first.woke && first.entry.is_none() && first.index.is_some());
        run.append("assistant", "I see").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let page = run.entries().await.unwrap();
        let pending: Vec<_> = page.pending.iter().map(|entry| (entry.role.as_str(), entry.content.read::<String>().unwrap())).collect();
        let entries = vec!["system: be brief".to_owned()];
        assert_eq!((format_entries(&page), pending), (entries, vec![("tool", long.to_owned()), ("assistant", "I see".to_owned())]));
        assert!(run.message("hello").await.unwrap().woke);
        let page = until_depth(&run, 5).await;
        let expected = ["system: be brief", &format!("tool: {long}"), "assistant: I see", "user: hello", "assistant: you said: hello"];
        assert_eq!((format_entries(&page), page.pending.len()), (expected.map(str::to_owned).to_vec(), 0));
        let log = run.log_of(page.entries[1].generation).await.unwrap();
        let quoted = log.iter().flat_map(|record| &record.events).any(|event| {
            matches!(event, Event::EntryAppended(entry) if entry.id == page.entries[1].id && entry.quote.is_some())
        });
        assert!(quoted, "what came from outside is in the log once");
        run.message("end").id("m").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2);
        assert_eq!(run.append("user", "too late").await.unwrap_err().code(), "run_closed");
    }

    async fn an_entry_and_a_message_that_are_found_together_keep_their_order(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        awaited(&run, AwaitedKind::Signal).await;
        run.pause("to be found together").await.unwrap();
        run.append("tool", "first").await.unwrap();
        run.message("hello").await.unwrap();
        run.append("tool", "after it").await.unwrap();
        run.resume().await.unwrap();
        let page = until_depth(&run, 4).await;
        assert_eq!(format_entries(&page)[1..], ["tool: first", "user: hello", "assistant: you said: hello"]);
        assert_eq!(page.pending.len(), 1, "what came behind the message is for the next turn");
        run.message("more").await.unwrap();
        assert_eq!(format_entries(&until_depth(&run, 7).await)[4..], ["tool: after it", "user: more", "assistant: you said: more"]);
    }

    async fn a_key_stands_for_one_entry_and_without_one_every_append_is_another(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        awaited(&run, AwaitedKind::Signal).await;
        let first = run.append("user", "once").id("k").await.unwrap();
        let again = run.append("user", "once").id("k").await.unwrap();
        assert_eq!((first.already_existed, again.already_existed, again.index), (false, true, first.index));
        for (role, content) in [("user", "twice"), ("tool", "once")] {
            let refused = run.append(role, content).id("k").await.unwrap_err();
            assert_eq!(refused.code(), "entry_key_taken", "{role} {content}");
        }
        for _ in 0..2 {
            assert!(!run.append("user", "plain").await.unwrap().already_existed);
        }
        // Ids of signals are separate from keys of entries.
        run.signal("other", &1).id("k").await.unwrap();
        run.message("go").await.unwrap();
        let page = until_depth(&run, 6).await;
        assert_eq!(format_entries(&page)[1..4], ["user: once", "user: plain", "user: plain"]);
        assert_eq!(page.entries[1].idempotency_key.as_deref(), Some("k"));
        // In the conversation it is found by its key, also turns later.
        run.message("and on").await.unwrap();
        until_depth(&run, 8).await;
        let known = run.append("user", "once").id("k").await.unwrap();
        assert_eq!((known.already_existed, known.entry), (true, Some(page.entries[1].id)));
        assert_eq!(run.append("user", "another").id("k").await.unwrap_err().code(), "entry_key_taken");
    }

    async fn a_key_is_the_same_inside_and_outside(site) {
        let onward = site.builder().await.agent("greeter", greeter).start().await.unwrap();
        let run = onward.start::<Vec<String>, _>("greeter", &()).id("r").await.unwrap();
        let greeting = until_depth(&run, 1).await;
        until_status(&run, Status::Waiting).await;
        let known = run.append("assistant", "hello").id("greeting").await.unwrap();
        assert_eq!((known.already_existed, known.entry), (true, greeting.leaf));
        assert_eq!(run.append("user", "hello").id("greeting").await.unwrap_err().code(), "entry_key_taken");
        run.append("user", "I was here").id("from outside").await.unwrap();
        for turn in 2..=4u64 {
            run.message("I was here").await.unwrap();
            let page = until_depth(&run, 2).await;
            assert_eq!(format_entries(&page), ["assistant: hello", "user: I was here"], "turn {turn}");
            let seen = async || (run.view().await.unwrap().head.generation >= u32::try_from(turn).unwrap() || turn == 4).then_some(());
            eventually("the turn is over", seen).await;
        }
        let seen = run.result().await.unwrap();
        assert!(seen.iter().all(|id| *id == seen[0]) && seen.len() == 4, "{seen:?}");
        assert_eq!(format_entries(&run.entries().await.unwrap()).len(), 2);
    }

    async fn code_without_turns_takes_pending_entries_on_request(site) {
        let onward = site.builder().await.agent("plain", plain).start().await.unwrap();
        let run = onward.start::<u32, _>("plain", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.append("user", "one").await.unwrap();
        run.append("tool", "two").await.unwrap();
        run.signal("look", &()).await.unwrap();
        until_depth(&run, 2).await;
        run.append("user", "three").await.unwrap();
        run.signal("look", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(format_entries(&run.entries().await.unwrap()), ["user: one", "tool: two", "user: three", "assistant: 3 in all"]);
    }

    async fn an_entry_is_not_a_client_message_and_its_id_cannot_be_reused(site) {
        let onward = site.builder().await.workflow("ears", all_ears).start().await.unwrap();
        let run = onward.start::<Vec<String>, _>("ears", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.append("user", &1).await.unwrap();
        assert_eq!(run.signal("onward.entry", &1).await.unwrap_err().code(), "id_reserved");
        run.signal("x", &1).await.unwrap();
        run.signal("end", &1).await.unwrap();
        assert_eq!(run.result().await.unwrap(), ["x", "end"]);
    }

    async fn a_listener_receives_that_an_agent_was_resumed(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        awaited(&run, AwaitedKind::Signal).await;
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        let mut emissions = run.emitted();
        // Over a network, the subscription takes a moment to begin.
        if site.is_remote() {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        run.message("hello").await.unwrap();
        let emitted = emissions.recv().await.unwrap();
        let value: serde_json::Value = emitted.value.read().unwrap();
        assert_eq!((emitted.name.as_str(), value["generation"].is_u64()), ("agent_resumed", true));
        until_depth(&run, 3).await;
    }
}
