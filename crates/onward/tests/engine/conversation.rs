//! The conversation of an agent as clients read it, and their messages to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward::{Entry, EntryCursor, EntryPage, Event, RunHandle, Status};

use crate::site::{Site, everywhere, until_status};

const MESSAGE: Signal<String> = Signal::new("message");

/// Returns a text that is long enough to be quoted.
fn words(number: u32) -> String {
    format!("this is entry {number}, and it has a few more words to say")
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.content.read().unwrap()).collect()
}

/// Returns the entries of all pages, oldest first, and the number of pages.
async fn all<O>(run: &RunHandle<O>, limit: usize) -> (Vec<Entry>, usize) {
    let (mut entries, mut count) = (Vec::new(), 0);
    let mut pages = run.entries().limit(limit).pages();
    while let Some(page) = pages.next().await.unwrap() {
        assert!(page.entries.len() <= limit);
        assert_eq!(page.depth.is_some(), count == 0, "only the last page has the depth of the conversation");
        entries.splice(0..0, page.entries);
        count += 1;
    }
    (entries, count)
}

/// Takes turns of a few entries each, up to a number of entries.
async fn talker(ctx: AgentCtx, (turns, entries): (u32, u32)) -> Result<u32> {
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for number in turn * entries / turns..(turn + 1) * entries / turns {
                ctx.append(if number % 2 == 0 { "user" } else { "assistant" }, &words(number)).await?;
            }
            if turn + 1 == turns { Ok(Turn::Done(turn)) } else { Ok(Turn::Next(turn + 1)) }
        }
    })
    .await
}

/// Repeats every message, and ends with the message `end`.
async fn echo(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append("system", &first).await?;
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal(&MESSAGE).drain()? {
                ctx.append("user", &message).await?;
                if message == "end" {
                    return Ok(Turn::Done(turn));
                }
                ctx.append("assistant", &format!("you said: {message}")).await?;
            }
            Ok(Turn::wait_for(turn + 1, &MESSAGE))
        }
    })
    .await
}

/// Appends one of two entries before it waits.
async fn wavering(ctx: AgentCtx, (): ()) -> Result<()> {
    let is_other = ctx.dep::<Arc<AtomicBool>>();
    ctx.append("system", "choose").await?;
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            ctx.append("assistant", if is_other.load(Ordering::SeqCst) { "the other" } else { "the one" }).await?;
            ctx.append("assistant", "and nothing else").await?;
            let word: String = ctx.signal(&MESSAGE).recv().await?;
            ctx.append("user", &word).await?;
            Ok(Turn::Done(()))
        }
    })
    .await
}

async fn long_conversation(site: Site) {
    // Replaying every turn would take too long.
    let onward = site.builder().await.check_replay(onward::ReplayCheck::Off).agent("talker", talker).start().await.unwrap();
    let run = onward.start::<u32, _>("talker", &(300, 1_000)).id("r").await.unwrap();
    run.result().await.unwrap();
    assert!(run.view().await.unwrap().head.generation >= 300);
    let expected: Vec<String> = (0..1_000).map(words).collect();
    for (limit, pages) in [(64, 16), (1_000, 1)] {
        let (entries, count) = all(&run, limit).await;
        assert_eq!(texts(&entries), expected, "pages of {limit}");
        assert_eq!(count, pages);
        assert!(entries.windows(2).all(|pair| pair[1].parent == Some(pair[0].id)), "EN1");
    }
    let last = run.entries().limit(1).await.unwrap();
    assert_eq!((texts(&last.entries), last.depth), (vec![words(999)], Some(1_000)));
    assert_eq!(last.leaf, Some(last.entries[0].id));
    // The id alone is enough to continue reading.
    let before = run.entries().before(last.before.unwrap().id).limit(2).await.unwrap();
    assert_eq!(texts(&before.entries), [words(997), words(998)]);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_entries_in_three_hundred_generations_are_read_page_by_page_in_memory() {
    long_conversation(Site::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_entries_in_three_hundred_generations_are_read_page_by_page_in_a_directory() {
    long_conversation(Site::directory()).await;
}

async fn send_and_wait(run: &RunHandle<u32>, message: &str, depth: u64) -> EntryPage {
    run.signal(&MESSAGE, &message.to_owned()).await.unwrap();
    crate::site::eventually("the answer", async || {
        let page = run.entries().await.unwrap();
        (page.depth == Some(depth)).then_some(page)
    })
    .await
}

everywhere! {
    async fn a_page_has_the_texts_also_where_the_log_quotes_them(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &words(0)).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let page = send_and_wait(&run, &words(1), 3).await;
        let found = texts(&page.entries);
        assert_eq!(found, [words(0), words(1), format!("you said: {}", words(1))]);
        assert_eq!(page.entries.iter().map(|entry| entry.role.as_str()).collect::<Vec<_>>(), ["system", "user", "assistant"]);
        assert!(page.before.is_none() && page.pending.is_empty() && page.leaf == page.entries.last().map(|entry| entry.id));
        let log = run.log_of(page.entries[1].generation).await.unwrap();
        let quoted = log.iter().flat_map(|record| &record.events).any(|event| match event {
            Event::EntryAppended(entry) => entry.id == page.entries[1].id && entry.quote.is_some(),
            _ => false,
        });
        assert!(quoted, "the message is in the log once");
        let unknown = EntryCursor::from(onward_core::Hash::of_parts(&[b"nobody"]));
        assert_eq!(run.entries().leaf(unknown).await.unwrap_err().code(), "entry_not_found");
        assert_eq!(onward.run::<()>("nope").unwrap().entries().await.unwrap_err().code(), "run_not_found");
    }

    async fn what_was_abandoned_is_not_on_the_page_and_is_read_by_its_leaf(site) {
        let is_other = Arc::new(AtomicBool::new(false));
        let onward = site.builder().await.dep(is_other.clone()).agent("wavering", wavering).start().await.unwrap();
        let run = onward.start::<(), _>("wavering", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let left = run.entries().await.unwrap();
        assert_eq!(texts(&left.entries), ["choose", "the one", "and nothing else"]);
        drop(run);
        onward.shutdown().await;
        is_other.store(true, Ordering::SeqCst);
        let onward = site.builder().await.dep(is_other.clone()).agent("wavering", wavering).start().await.unwrap();
        let run = onward.run::<()>("r").unwrap();
        run.signal(&MESSAGE, &"go".to_owned()).await.unwrap();
        run.result().await.unwrap();
        let page = run.entries().await.unwrap();
        assert_eq!(texts(&page.entries), ["choose", "the other", "and nothing else", "go"]);
        assert_eq!(page.depth, Some(4));
        assert!(page.entries.iter().all(|entry| !entry.is_abandoned));
        let by_leaf = run.entries().leaf(left.leaf.unwrap()).await.unwrap();
        assert_eq!(texts(&by_leaf.entries), ["choose", "the one", "and nothing else"]);
        assert_eq!(by_leaf.entries.iter().map(|entry| entry.is_abandoned).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!((by_leaf.leaf, by_leaf.depth), (left.leaf, None));
    }

    async fn a_fork_has_the_conversation_of_its_original(site) {
        let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &words(0)).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let page = send_and_wait(&run, &words(1), 3).await;
        until_status(&run, Status::Waiting).await;
        let fork = run.fork().id("fork").await.unwrap();
        let (forked, _) = all(&fork, 2).await;
        assert_eq!(texts(&forked), texts(&page.entries));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_reads_roles_and_ids_of_a_sealed_conversation_and_not_its_contents() {
    let site = Site::sealed();
    let onward = site.builder().await.agent("echo", echo).start().await.unwrap();
    let run = onward.start::<u32, _>("echo", &words(0)).id("r").await.unwrap();
    until_status(&run, Status::Waiting).await;
    let page = send_and_wait(&run, &words(1), 3).await;
    let key = onward_core::RunKey::new(Default::default(), onward_core::RunId::new("r").unwrap());
    let seen = site.runtime(&onward).read_entries(&key, Default::default()).await.unwrap();
    let ids = |page: &EntryPage| page.entries.iter().map(|entry| (entry.id, entry.role.clone())).collect::<Vec<_>>();
    assert_eq!(ids(&seen), ids(&page));
    assert!(seen.entries.iter().all(|entry| entry.content.sealed_with().is_some()));
    onward.shutdown().await;
}
