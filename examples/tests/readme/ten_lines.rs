use onward::prelude::*;

async fn order(ctx: Ctx, item: String) -> Result<String> {
    let paid = ctx.step("charge", async || charge(&item).await).await?; // runs here, recorded once
    let ship = ctx.approval("ship", format!("Ship {item}?")).within(days(2)).await?; // a person decides, once
    if !ship.approved {
        return Err(Failure::fatal("rejected"));
    }
    ctx.sleep(hours(12)).await?; // holds no thread, survives restarts
    ctx.task("print-label", &paid).retry(5).await // on a queue, retried by the engine
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let builder = Onward::embedded("./onward-data").workflow("order", order).task("print-label", print_label);
    let onward = builder.start().await?; // resumes all open runs
    let run = onward.start("order", "a teapot").id("order-42").await?; // the same id is the same run
    let label: String = run.result().await?;
    println!("{label}");
    Ok(())
}

async fn charge(item: &str) -> Result<String> {
    Ok(format!("paid for {item}"))
}

async fn print_label(paid: String) -> Result<String> {
    Ok(format!("label: {paid}"))
}
