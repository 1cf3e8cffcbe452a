//! A server under test: a directory, a worker, a listener, and helpers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::Onward;
use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward_runtime::Runtime;
use onward_server::{Limits, Options, Server, grpc, router_with, serve};
use onward_store::{Store, SystemClock};
use onward_store_embedded::EmbeddedStore;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Reply, raw};

pub const DEADLINE: Duration = Duration::from_secs(300);

/// Small, so that tests of the limits are fast.
pub const PAYLOAD_BYTES_MAX: usize = 100_000;
pub const BODY_BYTES_MAX: usize = 200_000;

pub struct Site {
    pub address: SocketAddr,
    pub server: Server,
    pub store: Arc<EmbeddedStore>,
    _onward: Onward,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

/// Waits for a step, a signal and an approval.
async fn order(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("charge", async || Ok::<_, Failure>(42)).await?;
    ctx.state().set("stage", &"charged")?;
    let paid: u64 = ctx.signal("payment").recv().await?;
    let ship = ctx.approval("ship", format!("Ship {item}?")).deciders(["ada", "bob"]).await?;
    if ship.approved { Ok(format!("{item} shipped for {paid}")) } else { Err(Failure::fatal("rejected").with_code("rejected")) }
}

/// Waits for a promise.
async fn callback(ctx: Ctx, (): ()) -> Result<String> {
    let answer = ctx.promise::<String>("callback").await;
    Ok(answer.unwrap_or_else(|failure| format!("{}: {}", failure.code, failure.message)))
}

/// Continues as new with every `next`, three times.
async fn chapters(ctx: Ctx, chapter: u32) -> Result<u32> {
    ctx.state().set("chapter", &chapter)?;
    let () = ctx.signal("next").recv().await?;
    if chapter == 2 { Ok(chapter) } else { ctx.continue_as_new(&(chapter + 1)).await }
}

/// Accepts updates until it gets `stop`.
async fn dial(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.update("double", |n: u32| if n > 100 { Err(Failure::fatal("too much").with_code("too_much")) } else { Ok(n * 2) });
    let () = ctx.signal("stop").recv().await?;
    Ok(7)
}

/// Writes a log of many large events.
async fn chatty(ctx: Ctx, count: u32) -> Result<u32> {
    let () = ctx.signal("talk").recv().await?;
    for number in 0..count {
        ctx.step("say", async || Ok::<_, Failure>("x".repeat(50_000))).await?;
        ctx.state().set("said", &number)?;
    }
    Ok(count)
}

/// Fails at the first attempt.
async fn fragile(ctx: Ctx, (): ()) -> Result<()> {
    static TRIED: AtomicBool = AtomicBool::new(false);
    let tried = async || if TRIED.swap(true, Ordering::SeqCst) { Ok(()) } else { Err(Failure::fatal("not yet")) };
    ctx.step("try", tried).await?;
    ctx.signal("end").recv().await
}

/// Receives `ping` until its payload is 0.
async fn listener(ctx: Ctx, (): ()) -> Result<u32> {
    loop {
        let n: u32 = ctx.signal("ping").recv().await?;
        if n == 0 {
            return Ok(0);
        }
    }
}

/// Repeats every message, and ends with `end`.
async fn chat(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append("system", &first).await?;
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal::<&str>("message").drain::<String>()? {
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

pub fn limits() -> Limits {
    Limits { body_bytes_max: BODY_BYTES_MAX, ..Limits::default() }
}

impl Site {
    pub async fn open() -> Site {
        Site::with(Options { limits: limits(), ..Options::default() }).await
    }

    pub async fn with_limits(limits: Limits) -> Site {
        Site::with(Options { limits, ..Options::default() }).await
    }

    pub async fn with(options: Options) -> Site {
        Site::with_others(options, axum::Router::new()).await
    }

    /// Opens a site. The server and the worker have separate runtimes and share only the store.
    pub async fn with_others(options: Options, others: axum::Router) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let store =
            onward_store_embedded::Options { clock: clock.clone(), payload_bytes_max: PAYLOAD_BYTES_MAX, ..Default::default() };
        let store = Arc::new(EmbeddedStore::open(directory.path(), store).unwrap());
        let shared: Arc<dyn Store> = store.clone();
        let onward = Onward::with_store(shared.clone(), clock.clone())
            .workflow("order", order)
            .workflow("callback", callback)
            .workflow("chapters", chapters)
            .workflow("dial", dial)
            .workflow("chatty", chatty)
            .workflow("listener", listener)
            .workflow("fragile", fragile)
            .agent("chat", chat)
            .start()
            .await
            .unwrap();
        let runtime = Runtime::new(shared, clock, onward_runtime::Options::default());
        let server = Server::new(runtime, Options { probe: Some(store.clone()), ..options });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = {
            let server = server.clone();
            tokio::spawn(async move {
                let others = others.merge(grpc(&server));
                serve(&server, listener, router_with(server.clone(), others), async { drop(stopped.await) }).await;
            })
        };
        Site { address, server, store, _onward: onward, stop: Some(stop), serving, _directory: directory }
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(&mut self) {
        drop(self.stop.take());
        (&mut self.serving).await.unwrap();
    }

    pub async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{headers}\r\n");
        raw(self.address, (head + body).as_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, "Content-Type: application/json\r\n", body).await
    }

    pub async fn post_json(&self, path: &str, body: Value) -> Reply {
        self.post(path, &body.to_string()).await
    }

    pub async fn put_json(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, "Content-Type: application/json\r\n", &body.to_string()).await
    }

    /// Starts a run and waits until it waits.
    pub async fn start(&self, kind: &str, id: &str, input: Value) {
        self.post_json("/v1/runs", json!({"kind": kind, "id": id, "input": input})).await.expect(201);
        self.until_status(id, "waiting").await;
    }

    pub async fn show(&self, id: &str) -> Value {
        self.get(&format!("/v1/runs/{id}")).await.expect(200)
    }

    pub async fn until_status(&self, id: &str, status: &str) -> Value {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let view = self.show(id).await;
            if view["status"] == status {
                return view;
            }
            assert!(tokio::time::Instant::now() < deadline, "{id} does not become {status}: {view}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns the number of records ever written, to check that nothing was.
    pub fn records(&self) -> u64 {
        self.store.stats().events
    }

    pub async fn signal(&self, id: &str, name: &str, payload: Value) -> Value {
        let body = json!({"name": name, "payload": payload});
        self.post_json(&format!("/v1/runs/{id}/signals"), body).await.expect(202)
    }
}
