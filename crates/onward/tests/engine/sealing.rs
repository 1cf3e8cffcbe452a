//! Encrypted payloads: nothing readable is in the directory, and none of them can be moved.

use std::path::Path;

use onward::prelude::*;
use onward::{Encryption, EncryptionKey, RunHandle, Status};
use onward_core::view::AwaitedKind;
use onward_core::{Event, Hash, Index, Name, Namespace, Payload, RunId, RunKey};
use onward_runtime::Signal;

use crate::embedded;
use crate::site::{DEADLINE, Site, awaited, count, eventually, paused, until_logged, until_status};

/// In every payload of these tests, and nowhere else.
const MARKER: &str = "marzipan-4711";

pub fn key(name: &str, byte: u8) -> EncryptionKey {
    EncryptionKey::new(name, [byte; 32]).unwrap()
}

fn encryption() -> Encryption {
    Encryption::new([key("k1", 1)]).unwrap()
}

fn secret(what: &str) -> String {
    format!("{MARKER} {what}")
}

async fn child(ctx: Ctx, input: String) -> Result<String> {
    assert_eq!(input, secret("for the child"));
    let note: String = ctx.signal("note").recv().await?;
    ctx.send_signal("all", "from-child", &note)?;
    Ok(secret("from the child"))
}

async fn sour_child(_: Ctx, _: String) -> Result<String> {
    Err(Failure::fatal(secret("the child failed")).with_details(Payload::json(&secret("details")).unwrap()))
}

/// Uses everything that has a payload, in two generations.
async fn all(ctx: Ctx, (generation, input): (u32, String)) -> Result<String> {
    ctx.query("peek", |text: String| Ok::<_, Failure>(format!("{text} answered")));
    ctx.update("poke", |text: String| Ok::<_, Failure>(format!("{text} updated")));
    if generation == 1 {
        ctx.update("late", |text: String| Ok::<_, Failure>(format!("{text} updated")));
        let carried: String = ctx.signal("carried").recv().await?;
        let kept: String = ctx.signal("stop").recv().await?;
        return Err(Failure::fatal(format!("{input} {carried} {kept}")).with_code("the_end"));
    }
    let small = ctx.step("small", async || Ok::<_, Failure>(secret("small"))).input(&secret("step input")).record().await?;
    let large = ctx.step("large", async || Ok::<_, Failure>(secret("large ").repeat(20_000))).await?;
    assert_eq!(large.len(), secret("large ").len() * 20_000);
    let tried = ctx.step("tries", async || Err::<(), _>(Failure::fatal(secret("no luck")))).await;
    assert_eq!(tried.unwrap_err().message, secret("no luck"));
    let work: String = ctx.task("work", &secret("for the task")).await?;
    assert_eq!(work, secret("by the task"));
    let failed = ctx.task::<()>("fail", &secret("to fail")).await.unwrap_err();
    assert_eq!((failed.message, failed.code.as_str()), (secret("the task failed"), "sour"));
    ctx.state().set("stage", &secret("state"))?;
    ctx.emit("progress", &secret("emitted"))?;
    let born = ctx.child::<String>("child", &secret("for the child")).id("kid");
    born.signal("note", &secret("to the child"))?;
    assert_eq!(born.await?, secret("from the child"));
    let back: String = ctx.signal("from-child").recv().await?;
    assert_eq!(back, secret("to the child"));
    let sour = ctx.child::<String>("sour", &secret("for the sour child")).await.unwrap_err();
    assert_eq!(sour.message, secret("the child failed"));
    assert_eq!(sour.details.unwrap().read::<String>().unwrap(), secret("details"));
    let shown = ctx.approval("ship", "Ship it?").show(&secret("shown")).await?;
    assert!(shown.approved);
    let promised: String = ctx.promise("call").key("order/7").await?;
    assert_eq!(promised, secret("resolved"));
    let rejected = ctx.promise::<String>("other").await.unwrap_err();
    assert_eq!(rejected.message, secret("rejected"));
    let signaled: String = ctx.signal("go").recv().await?;
    assert_eq!((signaled, small), (secret("signal"), secret("small")));
    ctx.continue_as_new(&(1, secret("continued"))).await
}

fn with_code(builder: onward::Builder) -> onward::Builder {
    builder
        .workflow("all", all)
        .workflow("child", child)
        .workflow("sour", sour_child)
        .task("work", async |input: String| {
            assert_eq!(input, secret("for the task"));
            Ok::<_, Failure>(secret("by the task"))
        })
        .task("fail", async |_: String| Err::<(), _>(Failure::fatal(secret("the task failed")).with_code("sour")))
}

/// Returns every byte of every file of a directory.
fn bytes_of(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        bytes.extend(if path.is_dir() { bytes_of(&path) } else { std::fs::read(path).unwrap() });
    }
    bytes
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Runs everything and returns the failure at the end.
async fn live(onward: &Onward) -> String {
    let run: RunHandle<String> =
        onward.start("all", &(0, secret("input"))).id("all").signal("carried", &secret("carried")).await.unwrap();
    let ship = awaited(&run, AwaitedKind::Approval).await;
    let waits = onward.list_approvals().await.unwrap();
    assert_eq!(waits[0].show.as_ref().unwrap().read::<String>().unwrap(), secret("shown"));
    let view = run.view().await.unwrap();
    assert_eq!(view.input.read::<(u32, String)>().unwrap().1, secret("input"));
    assert_eq!(view.state[&Name::new("stage").unwrap()].read::<String>().unwrap(), secret("state"));
    assert_eq!(run.query::<String>("peek", &secret("query")).await.unwrap(), secret("query answered"));
    assert_eq!(run.update::<String>("poke", &secret("update")).await.unwrap(), secret("update updated"));
    read_timeline(&run).await;
    onward.approve(&ship).await.unwrap();
    awaited(&run, AwaitedKind::Promise).await;
    let promise = eventually("the key", async || onward.find_promise("order/7").await.ok()).await;
    onward.resolve(&promise, &secret("resolved"), "r1").await.unwrap();
    until_logged(&run, "promise_created", 2).await;
    let other = awaited(&run, AwaitedKind::Promise).await;
    onward.reject(&other, Failure::fatal(secret("rejected")), "r2").await.unwrap();
    // It is not answered before the run continues as new, and is carried over.
    let handle = run.clone();
    let late = tokio::spawn(async move { handle.update::<String>("late", &secret("late")).await });
    until_logged(&run, "update_received", 2).await;
    run.signal("go", &secret("signal")).await.unwrap();
    assert_eq!(late.await.unwrap().unwrap(), secret("late updated"));
    run.signal("stop", &secret("stop")).await.unwrap();
    run.result().await.unwrap_err().failure().unwrap().message.clone()
}

/// Reads the recorded inputs and failures of the calls, and the run as of its last event.
async fn read_timeline(run: &RunHandle<String>) {
    let timeline = run.timeline().await.unwrap();
    let named =
        |name: &str| timeline.calls.iter().find(|call| call.name.as_ref().is_some_and(|own| own.as_str() == name)).unwrap();
    let input = |name: &str| named(name).input.as_ref().unwrap().read::<String>().unwrap();
    assert_eq!(
        (input("small"), input("work"), input("child")),
        (secret("step input"), secret("for the task"), secret("for the child"))
    );
    let failure = |name: &str| named(name).attempts[0].failure.as_ref().unwrap().message.clone();
    assert_eq!(failure("tries"), secret("no luck"));
    assert_eq!((failure("fail"), failure("sour")), (secret("the task failed"), secret("the child failed")));
    let last = timeline.calls.iter().filter_map(|call| call.last_index).max().unwrap();
    let moment = run.at(last).await.unwrap();
    let stage = moment.state.iter().find(|value| value.name.as_str() == "stage").unwrap();
    assert_eq!(stage.value.read::<String>().unwrap(), secret("state"));
}

/// S10: encrypted payloads are encrypted wherever they are stored, and so are their hashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_can_be_read_is_in_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let onward = with_code(embedded(directory.path()).codec(encryption())).start().await.unwrap();
    let end = tokio::time::timeout(DEADLINE, live(&onward)).await.unwrap();
    assert_eq!(end, format!("{} {} {}", secret("continued"), secret("carried"), secret("stop")));
    onward.shutdown().await;
    let bytes = bytes_of(directory.path());
    assert!(!contains(&bytes, MARKER.as_bytes()), "a payload can be read");
    assert!(contains(&bytes, b"sealed") && contains(&bytes, b"the_end"), "the key's name and the code of a failure can");
    for what in ["for the task", "step input", "for the child"] {
        let hash = Hash::of(&Payload::json(&secret(what)).unwrap());
        assert!(!contains(&bytes, &hash.0), "the hash of `{what}` can be compared with guesses");
    }
}

/// Without a codec, the same check finds the marker; otherwise it could not fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_codec_payloads_are_in_the_directory_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let onward = with_code(embedded(directory.path())).start().await.unwrap();
    tokio::time::timeout(DEADLINE, live(&onward)).await.unwrap();
    onward.shutdown().await;
    let bytes = bytes_of(directory.path());
    assert!(contains(&bytes, MARKER.as_bytes()));
    assert!(contains(&bytes, &Hash::of(&Payload::json(&secret("for the task")).unwrap()).0));
}

async fn listen(ctx: Ctx, (): ()) -> Result<String> {
    ctx.signal("go").recv().await
}

fn run_key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

/// Returns the last signal of a run as stored.
async fn stored_signal(site: &Site, onward: &Onward, id: &str) -> Payload {
    let log = site.runtime(onward).read_log(&run_key(id), None, Index(0), 100).await.unwrap();
    let signals = log.into_iter().flat_map(|record| record.events).filter_map(|event| match event {
        Event::SignalReceived(signal) => Some(signal.payload),
        _ => None,
    });
    signals.last().unwrap()
}

async fn send_stored(site: &Site, onward: &Onward, id: &str, payload: Payload) {
    let signal = Signal { name: Name::new("go").unwrap(), payload, signal_id: None };
    site.runtime(onward).signal_run(&run_key(id), signal).await.unwrap();
}

/// S10: a payload that is put into another run is refused there, whatever the store.
async fn moved(site: Site) {
    let onward = site.builder().await.codec(encryption()).workflow("listen", listen).start().await.unwrap();
    let first: RunHandle<String> = onward.start("listen", &()).id("first").await.unwrap();
    let second: RunHandle<String> = onward.start("listen", &()).id("second").await.unwrap();
    first.signal("go", &secret("for the first")).await.unwrap();
    assert_eq!(first.result().await.unwrap(), secret("for the first"));
    let stolen = stored_signal(&site, &onward, "first").await;
    assert_eq!(stolen.sealed_with(), Some("k1"));
    until_status(&second, Status::Waiting).await;
    send_stored(&site, &onward, "second", stolen).await;
    let why = paused(&second).await.message;
    assert!(why.contains("it was encrypted for another run or another use"), "{why}");
    assert_eq!(second.log().await.unwrap_err().code(), "payload_unreadable");
    let stored = site.runtime(&onward).read_run(&run_key("second")).await.unwrap().pause.unwrap().message;
    assert!(stored.starts_with("encrypted with key k1: "), "{stored}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_was_moved_to_another_run_is_refused_in_memory() {
    moved(Site::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_was_moved_to_another_run_is_refused_over_a_server() {
    moved(Site::server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_of_callers_without_the_codec_are_accepted() {
    let site = Site::memory();
    let onward = site.builder().await.codec(encryption()).workflow("listen", listen).start().await.unwrap();
    let run: RunHandle<String> = onward.start("listen", &()).id("a").await.unwrap();
    send_stored(&site, &onward, "a", Payload::json("plain").unwrap()).await;
    assert_eq!(run.result().await.unwrap(), "plain");
}

/// S11: a run continues over a key rotation, and a start that is repeated after it is still the same start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_under_an_open_run() {
    let site = Site::directory();
    let engine = async |keys: Vec<EncryptionKey>| {
        let builder = site.builder().await.codec(Encryption::new(keys).unwrap());
        builder.workflow("twice", twice).start().await.unwrap()
    };
    async fn twice(ctx: Ctx, input: String) -> Result<String> {
        let first: String = ctx.signal("go").recv().await?;
        let second: String = ctx.signal("go").recv().await?;
        Ok(format!("{input} {first} {second}"))
    }
    let onward = engine(vec![key("k1", 1)]).await;
    let run: RunHandle<String> = onward.start("twice", "a").id("r").await.unwrap();
    run.signal("go", "b").await.unwrap();
    until_logged(&run, "signal_consumed", 1).await;
    drop(run);
    onward.shutdown().await;

    // Without the old key the run pauses and reports the reason.
    let onward = engine(vec![key("k2", 2)]).await;
    let run: RunHandle<String> = onward.run("r").unwrap();
    run.signal("go", "c").await.unwrap();
    let pause = eventually("it pauses", async || {
        let view = onward.runtime().unwrap().read_run(&run_key("r")).await.unwrap();
        view.pause
    });
    let why = pause.await.message;
    assert!(why.starts_with("encrypted with key k2: "), "{why}");
    drop(run);
    onward.shutdown().await;

    let onward = engine(vec![key("k2", 2), key("k1", 1)]).await;
    let run: RunHandle<String> = onward.start("twice", "a").id("r").await.unwrap();
    let why = paused(&run).await.message;
    assert!(why.contains("it is encrypted with key `k1`, which is not here"), "{why}");
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "a b c");
    let other: Result<RunHandle<String>, _> = onward.start("twice", "x").id("r").await;
    assert_eq!(other.err().unwrap().code(), "run_exists");
    assert_eq!(count(&run, "run_started").await, 1);
}
