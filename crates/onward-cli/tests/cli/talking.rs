//! Commands for the conversation of an agent.

use onward::Status;
use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;

use crate::kit::{PATIENCE, run, with_code};

async fn chat(ctx: AgentCtx, first: String) -> Result<String> {
    ctx.append("system", &first).await?;
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal("message").drain::<String>()? {
                ctx.append("user", &message).await?;
                ctx.append("assistant", &serde_json::json!({"blocks": [{"type": "text", "text": "I see.\nGo on."}]})).await?;
            }
            Ok(Turn::Await((), "message"))
        }
    })
    .await
}

/// Runs a worker until the conversation has `depth` entries and the agent waits: an entry that is appended during a turn comes
/// after the entries of that turn.
fn until_depth(directory: &std::path::Path, depth: u64) {
    with_code(Onward::embedded(directory).agent("chat", chat), async |onward| {
        let run = onward.start::<String, _>("chat", "be brief").id("c").await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let waits = async || run.view().await.unwrap().head.status == Status::Waiting;
        while run.entries().await.unwrap().depth != Some(depth) || !waits().await {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", run.entries().await.unwrap());
            tokio::task::yield_now().await;
        }
    });
}

/// Returns roles and texts without ids and times.
fn read_entries(directory: &std::path::Path, args: &[&str]) -> Vec<String> {
    let printed = run(directory, ["run", "entries", "c"].iter().chain(args)).out;
    let line = |line: &str| if line.starts_with("  ") { line.to_owned() } else { line.split("  ").next().unwrap().to_owned() };
    printed.lines().map(line).collect()
}

#[test]
fn a_user_chats_with_an_agent_and_reads_the_conversation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    until_depth(path, 1);
    run(path, ["run", "append", "c", "tool", r#"{"text":"it \u001b[31mrains"}"#, "--idempotency-key", "k"]);
    assert_eq!(read_entries(path, &[]), ["system", "  be brief", "tool", "  it \\u{1b}[31mrains"], "pending entries come last");
    run(path, ["run", "message", "c", "hello there"]);
    until_depth(path, 4);
    let all =
        ["system", "  be brief", "tool", "  it \\u{1b}[31mrains", "user", "  hello there", "assistant", "  I see.", "  Go on."];
    assert_eq!(read_entries(path, &[]), all);
    let page = run(path, ["run", "entries", "c", "--limit", "1"]);
    assert!(page.err.contains("for older entries: --before "), "{}", page.err);
    let before = page.err.split("--before ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(read_entries(path, &["--limit", "1", "--before", &before]), ["user", "  hello there"]);
    let known = run(path, ["run", "append", "c", "tool", r#"{"text":"it \u001b[31mrains"}"#, "--idempotency-key", "k"]);
    assert!(known.out.starts_with("c: entry already exists: "), "{}", known.out);
    let entries = run(path, ["run", "entries", "c", "--json"]).json();
    assert_eq!((&entries["depth"], &entries["entries"][1]["idempotency_key"]), (&4.into(), &"k".into()));
}
