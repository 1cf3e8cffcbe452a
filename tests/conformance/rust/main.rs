//! The conformance program in Rust: the workflows, tasks and agents of claims.json, and a client that obeys lines of JSON.
//!
//! `conformance STORE EFFECTS`: STORE is a directory or the URL of a server. Each execution of a step or task function appends a
//! line to the file EFFECTS. `CONFORMANCE_OLD` selects the code before a change.

mod agents;
mod client;
mod code;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, ReplayCheck};
use serde_json::Value;

static EFFECTS: OnceLock<File> = OnceLock::new();

/// Notes one execution of a step or task function.
fn mark(run: &str, name: &str) {
    let mut file = EFFECTS.get().expect("it is opened first");
    file.write_all(format!("{run} {name}\n").as_bytes()).expect("the file can be written");
}

/// Calls a step that leaves a line in the file of effects.
fn does<V: Into<Value>>(ctx: &Ctx, name: &str, value: V) -> impl Future<Output = Result<Value>> + Send + use<V> {
    let (run, effect, value) = (ctx.run_id().to_string(), name.to_owned(), value.into());
    ctx.step(name, async move || {
        mark(&run, &effect);
        Ok::<_, Failure>(value.clone())
    })
}

/// Waits before the end, so that another program can replay the whole log.
async fn hold(ctx: &Ctx, given: &Value) -> Result<()> {
    if given["hold"] == true {
        ctx.state().set("held", &true)?;
        let _: Value = ctx.signal("conformance.end").recv().await?;
    }
    Ok(())
}

fn kind<F, Fut>(builder: Builder, name: &str, code: F) -> Builder
where
    F: Fn(Ctx, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value>> + Send + 'static,
{
    let code = Arc::new(code);
    builder.workflow(name, move |ctx: Ctx, given: Value| {
        let code = code.clone();
        async move {
            let output = code(ctx.clone(), given["in"].clone()).await;
            hold(&ctx, &given).await?;
            output
        }
    })
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[tokio::main(worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, store, effects] = &arguments[..] else { anyhow::bail!("usage: conformance STORE EFFECTS") };
    let effects = OpenOptions::new().append(true).create(true).open(effects)?;
    EFFECTS.set(effects).expect("it is set once");
    let builder = if store.contains("://") { Onward::connect(store) } else { Onward::embedded(store) };
    let builder = agents::register(code::register(builder))?;
    let onward = builder.threads(1).lease(secs(3)).check_replay(ReplayCheck::Every).start().await?;
    println!("{{\"ready\": true}}");
    let (client, runtime) = (onward.clone(), tokio::runtime::Handle::current());
    let read = move || {
        for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
            let client = client.clone();
            runtime.spawn(async move { client::answer(&client, &line).await });
        }
    };
    tokio::task::spawn_blocking(read).await?;
    onward.shutdown().await;
    Ok(())
}
