//! Export and import of open runs between a directory and a database, in every kind of wait; the runs continue there.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, Onward};
use onward_testkit::{Cluster, Database};

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, Ran, onward, ran};

/// Long enough for two transfers on a busy machine.
const NAP: Duration = Duration::from_secs(15);

const WAYS: [&str; 7] = ["step", "task", "signal", "timer", "approval", "promise", "child"];

/// Executions in one store, and whether long work finishes there.
#[derive(Clone, Default)]
struct Home {
    done: Arc<Mutex<BTreeMap<String, u32>>>,
    is_patient: bool,
}

impl Home {
    fn note(&self, what: &str) {
        *self.done.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn times(&self, what: &str) -> u32 {
        self.done.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    async fn paint(&self, what: &str) -> Result<String> {
        self.note(what);
        if !self.is_patient {
            std::future::pending::<()>().await;
        }
        Ok("painted".to_owned())
    }
}

async fn resident(ctx: Ctx, way: String) -> Result<String> {
    let home = ctx.dep::<Home>();
    ctx.step("unpack", async || {
        home.note(&format!("unpack {way}"));
        Ok::<_, Failure>(())
    })
    .await?;
    let result = match way.as_str() {
        "step" => ctx.step("paint", async || home.paint("paint in a step").await).await?,
        "task" => ctx.task("paint", &way).await?,
        "timer" => ctx.sleep(NAP).await.map(|()| "woke".to_owned())?,
        "approval" => ctx.approval("stay", "Stay?").await?.approved.to_string(),
        "promise" => ctx.promise::<String>("lease").await?,
        "child" => ctx.child("resident", &"signal of a child").id("child/kid").await?,
        _ => ctx.signal("word").recv::<String>().await?,
    };
    let settled = ctx.step("settle", async || Ok::<_, Failure>(format!("{way}: {result}"))).await?;
    Ok(settled)
}

async fn paint(ctx: TaskCtx, _: String) -> Result<String> {
    ctx.dep::<Home>().paint("paint in a task").await
}

/// A store.
enum StoreLocation {
    Directory(tempfile::TempDir),
    Database(Database<'static>),
}

/// A store with a running worker, which keeps running after the transfer.
struct Live {
    onward: Onward,
    home: Home,
    served: Option<Served>,
}

impl StoreLocation {
    fn directory() -> StoreLocation {
        StoreLocation::Directory(tempfile::tempdir().unwrap())
    }

    fn database() -> StoreLocation {
        StoreLocation::Database(Cluster::shared().database(None).unwrap())
    }

    async fn live(&self, is_patient: bool) -> Live {
        let home = Home { is_patient, ..Home::default() };
        let (builder, served): (Builder, Option<Served>) = match self {
            StoreLocation::Directory(directory) => (Onward::embedded(directory.path().join("data")), None),
            StoreLocation::Database(database) => {
                let mut command = onward();
                command.args(["server", "--listen", "127.0.0.1:0"]).env("ONWARD_SERVER__STORE", database.url());
                let served = serve(&mut command);
                (Onward::connect(&served.url), Some(served))
            }
        };
        let builder = builder.workflow("resident", resident).task("paint", paint).dep(home.clone());
        Live { onward: builder.check_replay(onward::ReplayCheck::Every).start().await.unwrap(), home, served }
    }

    /// Runs `onward ARGS` directly on the store, without a server.
    fn run(&self, args: &[&str]) -> Ran {
        match self {
            StoreLocation::Directory(directory) => ran(onward().args(args).arg("--data").arg(directory.path().join("data"))),
            StoreLocation::Database(database) => {
                let mut command: Command = onward();
                ran(command.args(args).arg("--store").env("ONWARD_SERVER__STORE", database.url()))
            }
        }
    }
}

impl Live {
    async fn begin(&self) {
        for way in WAYS {
            self.onward.start::<String, _>("resident", way).id(way).await.unwrap();
        }
    }

    /// Waits until every run waits, or is in the middle of its step or task.
    async fn settled(&self) {
        for what in ["paint in a step", "paint in a task"] {
            until(what, async || (self.home.times(what) > 0).then_some(())).await;
        }
        for id in ["signal", "timer", "approval", "promise", "child", "child/kid"] {
            let run = self.onward.run::<String>(id).unwrap();
            until(id, async || run.view().await.ok().filter(|view| !view.awaiting.is_empty()).map(drop)).await;
        }
    }

    /// Resolves every wait and checks the results.
    async fn end(&self) {
        let run = |id: &str| self.onward.run::<String>(id).unwrap();
        run("signal").signal("word", "hello").await.unwrap();
        run("child/kid").signal("word", "hi").await.unwrap();
        let waits = run("approval").view().await.unwrap().awaiting;
        self.onward.approve(&waits[0].id).await.unwrap();
        let waits = run("promise").view().await.unwrap().awaiting;
        self.onward.resolve(&waits[0].id, &"signed", "once").await.unwrap();
        for (id, expected) in [
            ("step", "step: painted"),
            ("task", "task: painted"),
            ("signal", "signal: hello"),
            ("timer", "timer: woke"),
            ("approval", "approval: true"),
            ("promise", "promise: signed"),
            ("child", "child: signal of a child: hi"),
        ] {
            assert_eq!(run(id).result().await.unwrap(), expected);
        }
    }
}

async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Transfers all open runs to the second and then to the third store, where they complete.
fn move_twice(locations: [StoreLocation; 3]) {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    threads.block_on(async {
        let first = locations[0].live(false).await;
        first.begin().await;
        first.settled().await;
        let lines = moved(&locations[0], &locations[1]);
        let second = locations[1].live(false).await;
        second.settled().await;
        assert_eq!(second.home.times("unpack step"), 0, "recorded steps do not run again");
        // An export through the server equals a direct export.
        if let Some(served) = &second.served {
            let through = ran(onward().args(["export", "--server", &served.url])).out;
            let records = |lines: &str| lines.lines().filter(|line| line.contains("\"unpack\"")).count();
            assert_eq!(records(&through), records(&lines));
        }
        moved(&locations[1], &locations[2]);
        let third = locations[2].live(true).await;
        third.end().await;
        assert_eq!(third.home.times("unpack step"), 0);
        assert_eq!((third.home.times("paint in a step"), third.home.times("paint in a task")), (1, 1));
        third.onward.shutdown().await;
        // The other workers have steps that never end, so they are not shut down.
        std::mem::forget((first.onward, second.onward));
    });
    threads.shutdown_background();
}

fn moved(from: &StoreLocation, to: &StoreLocation) -> String {
    let exported = from.run(&["export"]);
    assert_eq!((exported.code, exported.err.as_str()), (0, ""));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    std::fs::write(&file, &exported.out).unwrap();
    to.run(&["import", file.to_str().unwrap()]).assert_output(0, "8 runs imported, 0 already existed");
    to.run(&["import", file.to_str().unwrap()]).assert_output(0, "0 runs imported, 8 already existed");
    assert_eq!(to.run(&["export"]).out, exported.out, "record for record");
    exported.out
}

#[test]
fn live_runs_move_from_a_directory_to_a_database_and_back() {
    move_twice([StoreLocation::directory(), StoreLocation::database(), StoreLocation::directory()]);
}

#[test]
fn live_runs_move_from_a_database_to_a_directory_and_back() {
    move_twice([StoreLocation::database(), StoreLocation::directory(), StoreLocation::database()]);
}

async fn stranger(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.child("stranger", &()).id("of-another-family").await
}

/// Shards are chosen by root run, so a child with another root run cannot be in the shard of its parent; the other runs are
/// imported.
#[test]
fn a_child_of_another_family_is_refused_by_several_databases_and_the_others_come_in() {
    let from = tempfile::tempdir().unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(async {
        let onward = Onward::embedded(from.path().join("data")).workflow("parent", stranger).start().await.unwrap();
        onward.start::<u32, _>("parent", &()).id("parent").await.unwrap();
        let child = onward.run::<u32>("of-another-family").unwrap();
        until("the child is there", async || child.view().await.ok().map(drop)).await;
        onward.shutdown().await;
    });
    let file = from.path().join("runs.jsonl");
    std::fs::write(&file, ran(onward().args(["export", "--data"]).arg(from.path().join("data"))).out).unwrap();
    let (one, other) = (Cluster::shared().database(None).unwrap(), Cluster::shared().database(None).unwrap());
    let store = format!("--store={},{}", one.url(), other.url());
    ran(onward().args(["import", file.to_str().unwrap(), &store]))
        .assert_output(1, "1 runs imported, 0 already existed\n! of-another-family was refused: root_run_differs");
}

#[test]
fn a_store_is_named_without_its_password_and_only_for_databases() {
    for (args, code) in [(vec!["export", "--store"], "usage"), (vec!["export", "--store=embedded:./x"], "store_unsupported")] {
        let output = ran(onward().args(args));
        assert!(output.code == 2 && output.err.contains(code), "{} {}", output.code, output.err);
    }
    let database = Cluster::shared().database(None).unwrap();
    let url = database.url().replace("onward@", "onward:hidden-word@").replace("test_", "nowhere_");
    let output = ran(onward().args(["export", "--store"]).env("ONWARD_SERVER__STORE", url));
    assert!(
        output.code == 1 && output.err.contains("database_unusable") && !output.err.contains("hidden-word"),
        "{}",
        output.err
    );
}
