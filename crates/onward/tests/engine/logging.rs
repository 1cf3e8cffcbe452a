//! Pauses that would go unnoticed are logged.

use std::process::Command;

use onward::RunHandle;
use onward::prelude::*;

use crate::in_memory;
use crate::site::{eventually, paused};
use crate::warnings::Warnings;

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
async fn a_run_that_pauses_because_of_its_code_is_logged() {
    let collector = Warnings::collect();
    pauses("unnoticed").await;
    let message = eventually("the pause is logged", async || collector.about("unnoticed").pop()).await;
    assert_eq!((message["kind"].as_str(), message["code"].as_str()), ("waits elsewhere", "activation_failed"));
    for part in ["await only what `ctx` returns", "`onward run resume unnoticed`"] {
        assert!(message["message"].contains(part), "{message:?}");
    }
}

/// Set for a process that is the program of a test.
const ALONE: &str = "ONWARD_TEST_ALONE";

/// In a separate process, because a subscriber is global.
#[test]
fn a_pause_is_printed_on_stderr_without_a_subscriber() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", "logging::a_program_without_a_subscriber", "--nocapture"]).env(ALONE, "1");
    let stderr = String::from_utf8(program.output().unwrap().stderr).unwrap();
    assert!(stderr.contains("onward: run silent of `waits elsewhere` is paused: "), "{stderr}");
    assert!(stderr.contains("`onward run resume silent`"), "{stderr}");
}

/// Not a test, but the program of the test above: this binary, started once more.
#[tokio::test]
async fn a_program_without_a_subscriber() {
    if std::env::var_os(ALONE).is_some() {
        pauses("silent").await;
    }
}

#[tokio::test]
async fn a_signal_that_no_run_can_take_is_logged_with_its_sender() {
    async fn sends(ctx: Ctx, (): ()) -> Result<()> {
        ctx.send_signal("nobody", "hello", &1)
    }
    let collector = Warnings::collect();
    let onward = in_memory().workflow("sends", sends).start().await.unwrap();
    let run: RunHandle<()> = onward.start("sends", &()).id("sender").await.unwrap();
    run.result().await.unwrap();
    let message = eventually("the signal is logged", async || collector.about("sender").pop()).await;
    assert_eq!(
        (message["receiver"].as_str(), message["signal"].as_str(), message["code"].as_str()),
        ("nobody", "hello", "run_not_found")
    );
    assert_eq!(onward.runtime().unwrap().counts().signals_dropped.value(), 1);
}
