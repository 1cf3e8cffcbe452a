//! Child workflows: runs that another run starts, and whose results are inputs of the parent.
//!
//! `cargo run --example children`

use onward::prelude::*;

const ALBUM: Workflow<Vec<String>, String> = Workflow::new("album");
const PHOTO: Workflow<String, u64> = Workflow::new("photo");

async fn album(ctx: Ctx, names: Vec<String>) -> Result<String> {
    let photos: Vec<_> = names.iter().map(|name| ctx.child(&PHOTO, name).id(&format!("photo-{name}"))).collect();
    let sizes = join_all_settled(photos).await;
    let bytes: u64 = sizes.iter().flatten().sum();
    let failures: Vec<String> = sizes.iter().filter_map(|size| size.as_ref().err()).map(ToString::to_string).collect();

    // A handle is also a future: signal it, cancel it, or await it later.
    let slow = ctx.child(&PHOTO, "slow");
    slow.signal("pace", "double")?;
    let slow = slow.await?;
    Ok(format!("{bytes} bytes, then {slow}; failed: {failures:?}"))
}

async fn photo(ctx: Ctx, name: String) -> Result<u64> {
    let pace = if name == "slow" { ctx.signal("pace").recv().await? } else { "usual".to_owned() };
    ctx.step("resize", async || resize(&name, &pace).await).await
}

async fn resize(name: &str, pace: &str) -> Result<u64> {
    if name == "broken" {
        return Err(Failure::fatal("not a photo"));
    }
    println!("resized {name} at {pace} pace");
    Ok(100)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let onward = Onward::embedded(directory.path()).workflow(&ALBUM, album).workflow(&PHOTO, photo).start().await?;
    let run = onward.start(&ALBUM, &["beach", "broken", "sunset"]).id("album-1").await?;
    println!("album: {}", run.result().await?);

    let page = onward.list_runs(Default::default()).await?;
    let mut runs: Vec<String> = page.runs.iter().map(|run| format!("{} {} {}", run.key.id, run.kind, run.status)).collect();
    runs.sort();
    runs.iter().for_each(|run| println!("{run}"));
    onward.shutdown().await;
    Ok(())
}
