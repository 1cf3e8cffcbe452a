//! Branches from outside: a conversation continues from an earlier entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{AgentCtx, MESSAGE, Turn};
use onward::prelude::*;
use onward::stream::StreamContent;
use onward::{Entry, RunHandle, Status};
use onward_core::Hash;
use onward_core::view::AwaitedKind;

use crate::site::{eventually, everywhere, paused, until_status};

/// Answers the last message with the number of its answers, and ends on the message `end`.
async fn talker(ctx: AgentCtx, (): ()) -> Result<u32> {
    ctx.append("system", "be brief").await?;
    ctx.turns(0u32, |answers| {
        let ctx = ctx.clone();
        async move {
            for word in ctx.signal(MESSAGE).drain::<String>()? {
                ctx.append("user", &word).await?;
            }
            let last = ctx.messages().last(1).await?.pop().expect("it has a first entry");
            if last.role.as_str() != "user" {
                return Ok(Turn::Await(answers, MESSAGE));
            }
            let last: String = last.content.read()?;
            ctx.append("assistant", &format!("{answers}: {last}")).await?;
            if last == "end" { Ok(Turn::Done(answers)) } else { Ok(Turn::Await(answers + 1, MESSAGE)) }
        }
    })
    .await
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.content.read::<String>().unwrap()).collect()
}

async fn entries<O>(run: &RunHandle<O>) -> Vec<Entry> {
    run.entries().limit(100).await.unwrap().entries
}

/// Returns the conversation, once this is its last entry.
async fn until_last_entry<O>(run: &RunHandle<O>, last: &str) -> Vec<Entry> {
    eventually(&format!("the last entry is {last}"), async || {
        Some(entries(run).await).filter(|entries| texts(entries).last().is_some_and(|text| text == last))
    })
    .await
}

async fn send_message<O>(run: &RunHandle<O>, text: &str, answer: &str) -> Vec<Entry> {
    run.message(text).await.unwrap();
    until_last_entry(run, answer).await
}

everywhere! {
    async fn an_edit_goes_on_from_the_checkpoint_before_it_and_the_other_branch_stays_readable(site) {
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.start("talker", &()).id("t").await.unwrap();
        send_message(&run, "one", "0: one").await;
        send_message(&run, "two", "1: two").await;
        let before = send_message(&run, "three", "2: three").await;
        let edited = before.iter().find(|entry| entry.content.read::<String>().unwrap() == "two").unwrap();
        run.branch(edited.parent).entry("user", "2").await.unwrap();
        let after = until_last_entry(&run, "1: 2").await;
        assert_eq!(texts(&after), ["be brief", "one", "0: one", "2", "1: 2"], "with the state of then");
        let left = run.entries().leaf(before.last().unwrap().id).limit(100).await.unwrap().entries;
        assert_eq!(left, before, "what was left is there");
        // In another process, with the next message.
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.run("t").unwrap();
        let after = send_message(&run, "4", "2: 4").await;
        assert_eq!(texts(&after)[3..], ["2", "1: 2", "4", "2: 4"]);
        // Back to the abandoned branch, without a new message.
        run.branch(Some(before.last().unwrap().id)).await.unwrap();
        let back = send_message(&run, "end", "3: end").await;
        assert_eq!(texts(&back)[..7], texts(&before)[..]);
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(run.branch(Some(back[0].id)).await.unwrap_err().code(), "run_closed");
    }

    async fn the_same_key_is_the_same_branch_and_what_cannot_be_gone_on_from_is_refused(site) {
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.start("talker", &()).id("t").await.unwrap();
        let conversation = send_message(&run, "one", "0: one").await;
        let first = run.branch(conversation[1].parent).entry("user", "uno").id("k").await.unwrap();
        until_last_entry(&run, "0: uno").await;
        let again = run.branch(conversation[1].parent).entry("user", "uno").id("k").await.unwrap();
        assert!(!first.repeated && again.repeated);
        assert_eq!(run.branch(conversation[1].parent).entry("user", "eins").id("k").await.unwrap_err().code(), "id_taken");
        assert_eq!(run.branch(None).entry("user", "x").await.unwrap_err().code(), "no_checkpoint", "it says something before its turns");
        let unknown = Hash::of_parts(&[b"nobody"]);
        assert_eq!(run.branch(Some(unknown)).await.unwrap_err().code(), "entry_not_found");
        assert_eq!(texts(&entries(&run).await), ["be brief", "uno", "0: uno"]);
    }

    /// The message of the first branch is not lost silently: the second one is refused and can be repeated later.
    async fn of_two_branches_before_the_first_is_taken_the_second_is_refused_and_can_come_later(site) {
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.start("talker", &()).id("t").await.unwrap();
        let conversation = send_message(&run, "one", "0: one").await;
        run.pause("lunch").await.unwrap();
        let first = run.branch(conversation[1].parent).entry("user", "uno").id("k").await.unwrap();
        let refused = run.branch(conversation[1].parent).entry("user", "eins").await.unwrap_err();
        assert_eq!(refused.code(), "branch_pending");
        assert!(refused.hint().is_some_and(|hint| hint.contains("resume")), "{refused}");
        let again = run.branch(conversation[1].parent).entry("user", "uno").id("k").await.unwrap();
        assert!(again.repeated && again.index == first.index, "the same request is no second one");
        // The next worker of the run finds it, too.
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.run("t").unwrap();
        let later = || run.branch(conversation[1].parent).entry("user", "eins").id("l");
        assert_eq!(later().await.unwrap_err().code(), "branch_pending");
        run.resume().await.unwrap();
        let uno = until_last_entry(&run, "0: uno").await;
        later().await.unwrap();
        assert_eq!(texts(&until_last_entry(&run, "0: eins").await), ["be brief", "eins", "0: eins"]);
        let left = run.entries().leaf(uno.last().unwrap().id).limit(100).await.unwrap().entries;
        assert_eq!(texts(&left), ["be brief", "uno", "0: uno"], "the message of the first branch is there");
    }

    /// Messages that are not entries yet are carried over; entries of the abandoned branch stay there.
    async fn messages_that_are_no_entries_go_along(site) {
        async fn hoarder(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
            ctx.turns(0u32, |turn| {
                let ctx = ctx.clone();
                async move {
                    if turn == 0 {
                        ctx.append("system", "begin").await?;
                        return Ok(Turn::Next(1));
                    }
                    let text: String = ctx.signal(MESSAGE).recv().await?;
                    ctx.append("user", &text).await?;
                    let kept: String = ctx.signal(MESSAGE).recv().await?;
                    let third: String = ctx.signal(MESSAGE).recv().await?;
                    ctx.append("user", &format!("{kept} {third}")).await?;
                    Ok(Turn::Done(vec![text, kept, third]))
                }
            })
            .await
        }
        let onward = site.builder().await.agent("hoarder", hoarder).start().await.unwrap();
        let run: RunHandle<Vec<String>> = onward.start("hoarder", &()).id("h").await.unwrap();
        let begin = until_last_entry(&run, "begin").await[0].id;
        run.message("a").await.unwrap();
        run.message("b").await.unwrap();
        until_last_entry(&run, "a").await;
        crate::site::until_logged(&run, "signal_consumed", 2).await;
        run.branch(Some(begin)).await.unwrap();
        for word in ["c", "d"] {
            run.message(word).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), ["b", "c", "d"], "the first is an entry of the branch that was left");
        assert_eq!(texts(&entries(&run).await), ["begin", "b", "c d"]);
    }

    /// The rules of abandonment apply: a call that may have had an effect is not abandoned silently.
    async fn an_effect_in_the_open_turn_pauses_the_run_before_it_is_left(site) {
        async fn payer(ctx: AgentCtx, (): ()) -> Result<String> {
            ctx.append("system", "begin").await?;
            ctx.turns((), |()| {
                let ctx = ctx.clone();
                async move {
                    let receipt: String = ctx.task("pay", &10).await?;
                    ctx.append("tool", &receipt).await?;
                    let word: String = ctx.signal(MESSAGE).recv().await?;
                    Ok(Turn::Done(format!("{receipt} {word}")))
                }
            })
            .await
        }
        let paid = Arc::new(AtomicU32::new(0));
        let counts = paid.clone();
        let builder = site.builder().await.agent("payer", payer);
        let builder = builder.task("pay", move |_: u32| {
            let number = counts.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok::<_, Failure>(format!("receipt {number}")) }
        });
        let onward = builder.start().await.unwrap();
        let run: RunHandle<String> = onward.start("payer", &()).id("p").await.unwrap();
        run.until(|view| view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Signal)).await.unwrap();
        let begin = entries(&run).await[0].id;
        run.branch(Some(begin)).await.unwrap();
        let pause = paused(&run).await;
        assert!(pause.message.contains("task `pay`"), "{}", pause.message);
        assert_eq!(paid.load(Ordering::SeqCst), 1);
        assert_eq!(run.branch(Some(begin)).await.unwrap_err().code(), "branch_pending", "until it is resumed");
        run.resume().await.unwrap();
        run.message("done").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "receipt 2 done", "resuming accepts the effect");
    }

    async fn readers_of_the_stream_get_a_reset(site) {
        let onward = site.builder().await.agent("talker", talker).start().await.unwrap();
        let run: RunHandle<u32> = onward.start("talker", &()).id("t").await.unwrap();
        let conversation = send_message(&run, "one", "0: one").await;
        let mut stream = run.stream(None);
        stream.next().await.unwrap().expect("it begins with where it stands");
        run.branch(conversation[1].parent).entry("user", "end").await.unwrap();
        until_status(&run, Status::Completed).await;
        let mut resets = Vec::new();
        while let Some(frame) = stream.next().await.unwrap() {
            if let StreamContent::BranchReset(reset) = frame.content {
                resets.push(reset.leaf);
            }
        }
        assert_eq!(resets, [conversation[1].parent], "once, with the entry from which it goes on");
    }
}
