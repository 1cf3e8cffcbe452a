//! `onward check`: programs are checked against runs, in separate processes.

use std::path::Path;

use onward::agent::{AgentCtx, Turn};
use onward::{Builder, Encryption, EncryptionKey, Onward};

use crate::kit::{self, Ran, one_order, one_order_with, run};

const MESSAGE: &str = "message";

/// Not a test, but the program that the tests below check: this binary, started again.
#[tokio::test]
async fn the_program_itself() {
    let Ok(code) = std::env::var("PROGRAM_CODE") else { return };
    // A missing directory: a program that is only checked opens no store.
    let builder = Onward::embedded("/nonexistent/onward-data");
    let builder: Builder = match code.as_str() {
        "same" => builder.workflow("order", kit::order),
        "changed" => builder.workflow("order", kit::changed_order),
        "dying" => {
            builder.workflow("order", async |_: onward::Ctx, _: String| -> onward::Result<String> { std::process::abort() })
        }
        "next" => builder.workflow("order", kit::changed_order).version("2"),
        "agent" => builder.agent("greeter", greeter),
        "reader" => builder.agent("reader", reader).agent("chat", reader),
        "sealed reader" => sealed(builder.agent("reader", reader), 7),
        "other" => builder.workflow("other", kit::order),
        "sealed" => sealed(builder.workflow("order", kit::order), 7),
        "sealed with another key" => sealed(builder.workflow("order", kit::order), 8),
        "idle" => panic!("this program starts nothing"),
        _ => unreachable!("{code}"),
    };
    let error = builder.start().await.err().expect("it only checks");
    assert_eq!(error.code(), "only_checked");
    println!("{error}");
}

/// Greets, and waits for a signal in its first turn.
async fn greeter(ctx: AgentCtx, name: String) -> onward::Result<String> {
    ctx.append("user", &name).await?;
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            ctx.append("assistant", &"hello").await?;
            Ok(Turn::Done(ctx.signal("word").recv().await?))
        }
    })
    .await
}

/// The calls before the first turn are in another log.
#[test]
fn an_agent_in_a_turn_is_checked_with_what_it_did_before() {
    let directory = tempfile::tempdir().unwrap();
    kit::with_code(Onward::embedded(directory.path()).agent("greeter", greeter), async |onward| {
        let run = onward.start::<String, _>("greeter", "Ada").id("g").await.unwrap();
        run.until(|view| view.head.generation == 1 && view.head.status == onward::Status::Waiting).await.unwrap();
    });
    check(directory.path(), &[], "agent")
        .assert_output(0, "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\ngreeter 1 0 0 0 0");
}

/// Counts the messages so far, and waits for a signal in every turn but the first.
async fn reader(ctx: AgentCtx, first: String) -> onward::Result<()> {
    ctx.append("user", &first).await?;
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal(MESSAGE).drain::<String>()? {
                ctx.append("user", &message).await?;
            }
            let count = ctx.messages().await?.len();
            ctx.append("assistant", &format!("so much was said: {count}")).await?;
            if turn > 0 {
                let word: String = ctx.signal("word").recv().await?;
                ctx.append("user", &word).await?;
            }
            Ok(Turn::Await(turn + 1, MESSAGE))
        }
    })
    .await
}

/// Makes a directory with the run `r` in its second turn and its fork `fork` in the third.
fn readers(with: impl FnOnce(Builder) -> Builder) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    kit::with_code(with(Onward::embedded(directory.path()).agent("reader", reader)), async |onward| {
        let run = onward.start::<(), _>("reader", "one").id("r").await.unwrap();
        kit::until_waiting(&run, MESSAGE).await;
        run.message("two").await.unwrap();
        kit::until_waiting(&run, "word").await;
        let fork = run.fork().id("fork").await.unwrap();
        fork.signal("word", "three").await.unwrap();
        kit::until_waiting(&fork, MESSAGE).await;
        fork.message("four").await.unwrap();
        kit::until_waiting(&fork, "word").await;
        run.fork().id("fork-of-second-turn").await.unwrap();
    });
    directory
}

/// Earlier messages are in earlier logs.
#[test]
fn an_agent_that_reads_its_conversation_is_checked_with_its_messages() {
    let safe = "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\nreader 3 0 0 0 0";
    check(readers(|builder| builder).path(), &[], "reader").assert_output(0, safe);
    check(readers(|builder| sealed(builder, 7)).path(), &[], "sealed reader").assert_output(0, safe);
}

fn end_and_delete(directory: &Path, id: &str) {
    assert_eq!(run(directory, ["run", "terminate", id]).code, 0);
    assert_eq!(run(directory, ["run", "delete", id]).code, 0);
}

/// One fork branches to an entry that was encrypted for the original, and no worker has run it since.
#[test]
fn a_fork_is_checked_without_its_original() {
    let directory = readers(|builder| sealed(builder, 7));
    let page = run(directory.path(), ["run", "entries", "fork", "--json"]).json();
    let first = page["entries"][0]["id"].as_str().unwrap().to_owned();
    end_and_delete(directory.path(), "r");
    assert_eq!(run(directory.path(), ["run", "branch", "fork", &first]).code, 0);
    let safe = "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\nreader 2 0 0 0 0";
    check(directory.path(), &[], "sealed reader").assert_output(0, safe);
}

fn sealed(builder: Builder, byte: u8) -> Builder {
    builder.codec(Encryption::new([EncryptionKey::new("k", [byte; 32]).unwrap()]).unwrap())
}

/// Runs `onward check … -- PROGRAM` with the code of that name.
fn check(directory: &Path, args: &[&str], code: &str) -> Ran {
    let program = std::env::current_exe().unwrap();
    let mut command = kit::onward();
    command.arg("check").args(args).arg("--data").arg(directory).arg("--").arg(program);
    command.args(["check::the_program_itself", "--exact", "--nocapture"]).env("PROGRAM_CODE", code).env("RUST_BACKTRACE", "0");
    kit::ran(&mut command)
}

#[test]
fn code_that_makes_the_recorded_calls_is_safe() {
    let directory = one_order("order-1");
    let before = run(directory.path(), ["run", "events", "order-1"]).out;
    check(directory.path(), &[], "same")
        .assert_output(0, "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\norder 1 0 0 0 0");
    assert_eq!(run(directory.path(), ["run", "events", "order-1"]).out, before, "nothing was recorded");
}

#[test]
fn code_that_makes_other_calls_is_shown_with_the_recorded_ones() {
    let directory = one_order("order-1");
    check(directory.path(), &[], "changed").assert_output(
        1,
        "
KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE
order 0 1 0 0 0

run order-1 (order) would pause
  why the code diverged from the log
  at event #1
  recorded step `charge` at 0
  attempted step `refund` at 0
  hint the code changed while this run was open, or it depends on something that is not recorded (time, randomness, environment, map order); deploy the change under `ctx.version` or as a new version, then `onward run resume order-1`
",
    );
}

#[test]
fn verdicts_are_json_lines_for_programs() {
    let directory = one_order("order-1");
    let ran = check(directory.path(), &["--json"], "changed");
    assert_eq!(ran.code, 1);
    let verdict: serde_json::Value = serde_json::from_str(ran.out.trim()).unwrap();
    assert_eq!((&verdict["run"]["id"], &verdict["kind"]), (&"order-1".into(), &"order".into()));
    assert_eq!(verdict["found"]["pauses"]["divergence"]["index"], 1);
}

#[test]
fn a_run_that_the_program_has_no_code_for_is_counted_apart() {
    let directory = one_order("order-1");
    check(directory.path(), &[], "other")
        .assert_output(0, "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\norder 0 0 0 0 1");
}

#[test]
fn a_run_of_a_version_that_the_program_has_forgotten_is_not_safe() {
    let directory = one_order_with("order-1", |builder| builder.version("1"));
    let text = "
KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE
order 1 0 0 0 1 0

run order-1 (order) is pinned to a version that the program has no code for
";
    check(directory.path(), &[], "next").assert_output(1, text);
}

#[test]
fn sealed_runs_are_read_with_the_keys_of_the_program() {
    let directory = one_order_with("order-1", |builder| sealed(builder, 7));
    check(directory.path(), &[], "sealed")
        .assert_output(0, "KIND VERSION SAFE PAUSES UNREADABLE NO VERSION NO CODE\norder 1 0 0 0 0");
    let other = check(directory.path(), &[], "sealed with another key");
    assert_eq!(other.code, 1);
    assert!(other.out.contains("run order-1 (order) cannot be read by the program"), "{}", other.out);
}

#[test]
fn a_set_of_runs_can_be_saved_and_checked_without_a_store() {
    let directory = one_order("order-1");
    let set = directory.path().join("set.jsonl");
    let saved = run(directory.path(), ["check", "--save", set.to_str().unwrap()]);
    assert_eq!((saved.code, saved.out.as_str()), (0, ""), "{}", saved.err);
    let nowhere = Path::new("/nonexistent");
    assert_eq!(check(nowhere, &["--from", set.to_str().unwrap()], "same").code, 0);
    assert_eq!(check(nowhere, &["--from", set.to_str().unwrap()], "changed").code, 1);
}

#[test]
fn a_program_that_does_not_start_or_dies_of_a_run_is_reported_as_such() {
    let directory = one_order("order-1");
    let idle = check(directory.path(), &[], "idle");
    assert_eq!(idle.code, 1);
    assert!(idle.err.contains("before it checked a run") && idle.err.contains("starts nothing"), "{}", idle.err);
    let dying = check(directory.path(), &[], "dying");
    assert_eq!(dying.code, 1);
    assert!(dying.err.contains("while replaying run order-1 of kind order"), "{}", dying.err);
}

#[test]
fn without_open_runs_everything_is_safe() {
    let directory = one_order("order-1");
    assert_eq!(run(directory.path(), ["run", "terminate", "order-1"]).code, 0);
    check(directory.path(), &[], "changed").assert_output(0, "no runs to check");
    assert_eq!(check(directory.path(), &["--closed"], "changed").code, 1);
    let saved = directory.path().join("closed.jsonl");
    let saved = saved.to_str().unwrap();
    assert_eq!(check(directory.path(), &["--closed", "--save", saved], "same").code, 0);
    for arguments in [&["--closed", "--from", saved][..], &["--from", saved]] {
        assert_eq!(check(directory.path(), arguments, "same").code, 0, "{arguments:?}");
        assert_eq!(check(directory.path(), arguments, "changed").code, 1, "{arguments:?}");
    }
}
