//! Spans as a collector receives them: a real receiver with the official messages, workers over a real server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod collector;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{Otlp, RunHandle, TraceContext};
use onward_core::spend::{Spend, Tokens};
use onward_runtime::Runtime;
use onward_server::{Server, grpc, router_with, serve};
use onward_store::{MemoryStore, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use collector::{Collector, ReceivedSpan};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Limit for anything that happens in the background.
const DEADLINE: Duration = Duration::from_secs(300);

/// The trace contexts that user code saw, and where.
type Seen = Arc<Mutex<Vec<(&'static str, TraceContext)>>>;

fn see(seen: &Seen, what: &'static str, context: Option<TraceContext>) {
    let context = context.expect("this process traces");
    let mut seen = seen.lock().unwrap();
    if !seen.contains(&(what, context)) {
        seen.push((what, context));
    }
}

async fn flow(ctx: Ctx, (): ()) -> Result<u32> {
    let seen = ctx.dep::<Seen>();
    see(&seen, "run", ctx.trace());
    let one = ctx.step_with("charge", async |attempt: Attempt| {
        see(&seen, "step", attempt.trace());
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<_, Failure>(1)
    });
    let one = one.await?;
    let two: u32 = ctx.task("mail", &one).await?;
    let three: u32 = ctx.child("kid", &two).await?;
    Ok(three)
}

async fn kid(_: Ctx, n: u32) -> Result<u32> {
    Ok(n + 1)
}

/// Starts a server in memory and returns its address.
async fn server() -> (Runtime, onward_runtime::Background, String) {
    let clock = Arc::new(SystemClock);
    let runtime = Runtime::new(Arc::new(MemoryStore::new(clock.clone())), clock, onward_runtime::Options::default());
    let background = runtime.spawn();
    let server = Server::new(runtime.clone(), onward_server::Options::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let clients = router_with(server.clone(), grpc(&server));
    tokio::spawn(async move { serve(&server, listener, clients, std::future::pending()).await });
    (runtime, background, address)
}

/// Starts a run over HTTP with a `traceparent` header.
async fn post(address: &str, body: &str) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\ntraceparent: {CALLER}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn one<'a>(spans: &'a [ReceivedSpan], name: &str) -> &'a ReceivedSpan {
    let found: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
    found[0]
}

/// SP1: span ids are unique, all spans are in one trace, and no span ends before it begins.
fn check(spans: &[ReceivedSpan], caller: TraceContext) {
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
    assert_eq!(ids.len(), spans.len(), "no span is sent twice: {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
    for span in spans {
        assert_eq!(span.trace_id, caller.trace_id, "{}", span.name);
        assert!(span.start <= span.end && span.start > 0, "{}", span.name);
        let parent = &span.parent[..];
        assert!(ids.contains(parent) || parent == caller.span_id, "the parent of {} is not there", span.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_from_the_caller_through_the_run_to_its_steps_tasks_and_children() {
    let collector = Collector::start().await;
    let (_runtime, _background, address) = server().await;
    let seen = Seen::default();
    let otlp = |service: &str| Otlp::to(&collector.url).service(service).header("x-key", "secret");
    let url = format!("http://{address}");
    let flows = Onward::connect(&url).otlp(otlp("flows")).workflow("flow", flow).workflow("kid", kid).dep(seen.clone());
    let flows = flows.start().await.unwrap();
    let of_task = seen.clone();
    let mail = move |ctx: TaskCtx, n: u32| {
        see(&of_task, "task", ctx.trace());
        async move { Ok::<_, Failure>(n + 1) }
    };
    let tasks = Onward::connect(&url).otlp(otlp("tasks")).task("mail", mail).start().await.unwrap();

    post(&address, r#"{"kind": "flow", "id": "f"}"#).await;
    let run: RunHandle<u32> = flows.run("f").unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap(), 3);
    drop(run);
    flows.shutdown().await;
    tasks.shutdown().await;

    let (spans, caller) = (collector.spans(), TraceContext::parse(CALLER).unwrap());
    check(&spans, caller);
    let run = one(&spans, "run flow");
    assert_eq!(run.parent, caller.span_id);
    let activations: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.name == "activation flow").collect();
    assert!(activations.len() >= 3 && activations.iter().all(|span| span.parent == run.span_id));
    let by_activation = |span: &ReceivedSpan| activations.iter().any(|activation| activation.span_id == span.parent);
    let (step, schedule, start) = (one(&spans, "step charge"), one(&spans, "schedule mail"), one(&spans, "start kid"));
    assert!(by_activation(step) && by_activation(schedule) && by_activation(start));
    assert!(step.end - step.start >= 19_000_000, "it took twenty milliseconds");
    let task = one(&spans, "task mail");
    assert_eq!((&task.parent, task.service.as_str()), (&schedule.span_id, "tasks"));
    let child = one(&spans, "run kid");
    assert_eq!((&child.parent, child.service.as_str()), (&start.span_id, "flows"));
    assert_eq!(one(&spans, "activation kid").parent, child.span_id);
    assert!(spans.iter().all(|span| span.key.as_deref() == Some("secret")), "headers go along");

    // The context that user code got is the parent of its own spans.
    for (what, context) in seen.lock().unwrap().iter() {
        let span = match *what {
            "run" => run,
            "step" => step,
            _ => task,
        };
        assert_eq!(
            (context.trace_id.to_vec(), context.span_id.to_vec(), context.sampled),
            (span.trace_id.clone(), span.span_id.clone(), true)
        );
    }
    assert_eq!(seen.lock().unwrap().len(), 3);
}

async fn slow(ctx: Ctx, (): ()) -> Result<u32> {
    let one = ctx.step("once", async || Ok::<_, Failure>(1)).await?;
    let two: u32 = ctx.signal("go").recv().await?;
    ctx.step("fails", async || Err::<(), _>(Failure::fatal("a secret").with_code("sour"))).await.unwrap_err();
    Ok(one + two)
}

/// SP1: spans sent before a crash are not sent again by the replay after it, and their ids match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_sends_no_span_twice() {
    let collector = Collector::start().await;
    let clock = Arc::new(SystemClock);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let engine = async |lease: Duration| {
        let builder = Onward::with_store(store.clone(), clock.clone()).otlp(Otlp::to(&collector.url)).lease(lease);
        builder.workflow("slow", slow).start().await.unwrap()
    };
    let first = engine(Duration::from_secs(1)).await;
    let run: RunHandle<u32> = first.start("slow", &()).id("s").trace(CALLER).await.unwrap();
    // SP3: while the run is open, every sent span has its parent.
    collector.until("step once").await;
    check(&collector.spans(), TraceContext::parse(CALLER).unwrap());
    one(&collector.spans(), "run slow");
    let before = collector.spans().len();
    drop((run, first)); // as if the process had died

    let second = engine(Duration::from_secs(1)).await;
    let run: RunHandle<u32> = second.run("s").unwrap();
    run.signal("go", &2).await.unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap(), 3);
    drop(run);
    second.shutdown().await;
    let (spans, caller) = (collector.spans(), TraceContext::parse(CALLER).unwrap());
    check(&spans, caller);
    assert!(spans.len() > before);
    one(&spans, "step once");
    let (root, end) = (one(&spans, "run slow"), one(&spans, "end slow"));
    assert_eq!(root.parent, caller.span_id);
    assert_eq!(end.parent, root.span_id);
    assert!(end.end > root.end, "the end span covers the whole run");
    let failed = one(&spans, "step fails");
    assert_eq!(failed.failed.as_deref(), Some("sour"), "the code of a failure is sent, its message is not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_caller_does_not_want_sampled_is_not_sent() {
    let collector = Collector::start().await;
    let onward = Onward::in_memory().otlp(Otlp::to(&collector.url)).workflow("kid", kid).start().await.unwrap();
    let unwanted = CALLER.replace("-01", "-00");
    let run: RunHandle<u32> = onward.start("kid", &1).trace(unwanted).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    let plain: RunHandle<u32> = onward.start("kid", &1).trace("nonsense").await.unwrap();
    assert_eq!(plain.result().await.unwrap(), 2);
    drop((run, plain));
    onward.shutdown().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "the other run is the root of a trace of its own");
    assert!(one(&spans, "run kid").parent.is_empty());
}

/// Spans of model calls have the attributes of OpenTelemetry's conventions; other spans have none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_span_of_a_model_call_has_the_model_and_its_tokens() {
    async fn ask(ctx: Ctx, (): ()) -> Result<u32> {
        ctx.task("llm.small", &()).await
    }
    let model = async |ctx: TaskCtx, (): ()| {
        let tokens = Tokens { input: 10, cached_read: 5, cached_write: 0, output: 7, reasoning: 2 };
        ctx.spend(Spend::on("small-2026").by("acme").tokens(tokens));
        Ok::<_, Failure>(1)
    };
    let collector = Collector::start().await;
    let onward = Onward::in_memory().otlp(Otlp::to(&collector.url)).workflow("ask", ask).task("llm.small", model);
    let onward = onward.start().await.unwrap();
    let run: RunHandle<u32> = onward.start("ask", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    drop(run);
    onward.shutdown().await;
    let spans = collector.spans();
    let call = one(&spans, "task llm.small");
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "small"),
        ("gen_ai.response.model", "small-2026"),
        ("gen_ai.provider.name", "acme"),
    ] {
        assert_eq!(call.texts.get(name).map(String::as_str), Some(value), "{name}");
    }
    for (name, value) in [
        ("gen_ai.usage.input_tokens", 15),
        ("gen_ai.usage.output_tokens", 7),
        ("gen_ai.usage.cache_read.input_tokens", 5),
        ("gen_ai.usage.cache_creation.input_tokens", 0),
    ] {
        assert_eq!(call.numbers.get(name), Some(&value), "{name}");
    }
    assert!(one(&spans, "run ask").texts.keys().all(|name| !name.starts_with("gen_ai")));
}

/// SP2, and an unreachable collector does no harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_do_not_need_a_collector() {
    async fn look(ctx: Ctx, (): ()) -> Result<bool> {
        Ok(ctx.trace().is_some())
    }
    let onward = Onward::in_memory().workflow("look", look).start().await.unwrap();
    let run: RunHandle<bool> = onward.start("look", &()).await.unwrap();
    assert!(!run.result().await.unwrap(), "tracing is off");
    let onward = Onward::in_memory().otlp(Otlp::to("http://127.0.0.1:9")).workflow("look", look).start().await.unwrap();
    let run: RunHandle<bool> = onward.start("look", &()).await.unwrap();
    assert!(tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap());
    let wrong = Onward::in_memory().otlp(Otlp::to("collector:4317")).start().await;
    assert_eq!(wrong.err().unwrap().code(), "server_url_invalid");
}
