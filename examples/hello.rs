//! The smallest durable function: a step, a sleep, a step.
//!
//! `cargo run --example hello`

use onward::prelude::*;

const GREET: Workflow<String, String> = Workflow::new("greet");

async fn greet(ctx: Ctx, name: String) -> Result<String> {
    let greeting = ctx.step("compose", async || compose(&name).await).await?;
    ctx.sleep(secs(1)).await?; // a day costs no more than a second: no thread, no memory
    ctx.step("say", async || say(&greeting).await).await?;
    Ok(greeting)
}

/// Runs inside a step, so it may do I/O: call a service, write a file.
async fn compose(name: &str) -> Result<String> {
    Ok(format!("Hello, {name}!"))
}

async fn say(greeting: &str) -> Result<()> {
    println!("the run says: {greeting}");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?; // a real program keeps its directory
    let onward = Onward::embedded(directory.path()).workflow(&GREET, greet).start().await?;

    let run = onward.start(&GREET, "Ada").id("greet-ada").await?;
    println!("started {}", run.id());
    println!("result: {}", run.result().await?);

    // The same id with the same input is the same run: no step runs again.
    let again = onward.start(&GREET, "Ada").id("greet-ada").await?;
    println!("once more: {}", again.result().await?);

    for record in again.log().await? {
        for (index, event) in record.indexed() {
            println!("{index} {}", event.name());
        }
    }
    onward.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use onward::testing::Script;

    #[test]
    fn greeting_survives_a_crash_before_and_after_every_commit() {
        let script = Script::new(super::greet, "Ada");
        assert_eq!(script.run().output::<String>(), "Hello, Ada!");
        script.crash_everywhere();
    }
}
