//! Pauses that would go unnoticed are logged.

use std::process::Command;

use onward::RunHandle;
use onward::prelude::*;

use crate::heard::Warnings;
use crate::in_memory;
use crate::site::{eventually, paused};

async fn waits_elsewhere(_: Ctx, (): ()) -> Result<()> {
    std::future::pending().await
}

async fn pauses(id: &str) {
    let onward = in_memory().workflow("waits elsewhere", waits_elsewhere).start().await.unwrap();
    let run: RunHandle<()> = onward.start("waits elsewhere", &()).id(id).await.unwrap();
    paused(&run).await;
    onward.shutdown().await;
}

#[tokio::test]
async fn a_run_that_pauses_because_of_its_code_is_told() {
    let heard = Warnings::heard();
    pauses("told").await;
    let said = eventually("the pause is told", async || heard.about("told").pop()).await;
    assert_eq!((said["kind"].as_str(), said["code"].as_str()), ("waits elsewhere", "activation_failed"));
    for part in ["await only what `ctx` returns", "`onward run resume told`"] {
        assert!(said["message"].contains(part), "{said:?}");
    }
}

/// Set for a process that is the program of a test.
const ALONE: &str = "ONWARD_TEST_ALONE";

/// In a separate process, because a subscriber is global.
#[test]
fn a_pause_is_told_on_stderr_where_nothing_listens() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", "told::a_program_without_a_subscriber", "--nocapture"]).env(ALONE, "1");
    let said = String::from_utf8(program.output().unwrap().stderr).unwrap();
    assert!(said.contains("onward: run silent of `waits elsewhere` is paused: "), "{said}");
    assert!(said.contains("`onward run resume silent`"), "{said}");
}

/// Not a test, but the program of the test above: this binary, started once more.
#[tokio::test]
async fn a_program_without_a_subscriber() {
    if std::env::var_os(ALONE).is_some() {
        pauses("silent").await;
    }
}

#[tokio::test]
async fn a_signal_that_no_run_can_take_is_told_with_its_sender() {
    async fn sends(ctx: Ctx, (): ()) -> Result<()> {
        ctx.send_signal("nobody", "hello", &1)
    }
    let heard = Warnings::heard();
    let onward = in_memory().workflow("sends", sends).start().await.unwrap();
    let run: RunHandle<()> = onward.start("sends", &()).id("sender").await.unwrap();
    run.result().await.unwrap();
    let said = eventually("the signal is told", async || heard.about("sender").pop()).await;
    assert_eq!((said["receiver"].as_str(), said["signal"].as_str(), said["code"].as_str()), ("nobody", "hello", "run_not_found"));
    assert_eq!(onward.runtime().unwrap().counts().signals_dropped.value(), 1);
}
