//! Middleware: a rate limit by customer, redaction of what is recorded, and timing, around every run and attempt of this process.
//!
//! `cargo run --example middleware`

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::middleware::{
    AttemptCall, AttemptKind, Middleware, MiddlewareFuture, NextAttempt, NextRun, RateLimit, Redaction, RunCall, Timing,
};
use onward::prelude::*;
use serde::{Deserialize, Serialize};

const CHARGE: Task<Charge, Receipt> = Task::new("charge");

#[derive(Serialize, Deserialize, Clone)]
struct Charge {
    customer: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    cents: u64,
    card: String,
}

async fn charge(charge: Charge) -> Result<Receipt> {
    Ok(Receipt { cents: charge.cents, card: "4111 1111 1111 1111".to_owned() })
}

async fn bill(ctx: Ctx, customer: String) -> Result<Vec<String>> {
    let (mut total, mut seen) = (0, String::new());
    for cents in [500, 700, 900] {
        let receipt = ctx.task(&CHARGE, &Charge { customer: customer.clone(), cents }).await?;
        total += receipt.cents;
        seen = format!("the code sees the card `{}`", receipt.card);
    }
    let sent = ctx.step("mail", async || Ok::<_, Failure>(format!("mailed {customer} about card 4111 1111 1111 1111"))).await?;
    Ok(vec![seen, sent, format!("{customer} paid {total} cents")])
}

/// One of your own: it prints failures of attempts, and gives every run an attribute.
struct House;

impl Middleware for House {
    /// Code of the workflow: deterministic, and repeated by every replay.
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        call.ctx.attributes().set("team", "billing");
        next.run(call)
    }

    /// Around real attempts only: may do I/O.
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let name = call.name.clone();
            let result = next.run(call).await;
            result.inspect_err(|failure| println!("`{name}` failed: {failure}"))
        })
    }
}

/// Limits the charges of each customer.
fn by_customer(call: &AttemptCall) -> Option<String> {
    let is_charge = call.kind == AttemptKind::Task && call.name == "charge";
    is_charge.then(|| call.input.read::<Charge>().ok()).flatten().map(|charge| charge.customer)
}

fn hide_cards(text: &str) -> Option<String> {
    text.contains("4111").then(|| text.replace("4111 1111 1111 1111", "**** 1111"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let timed = Arc::new(Mutex::new(0));
    let count = timed.clone();
    let onward = Onward::embedded(directory.path())
        .workflow("bill", bill)
        .task(&CHARGE, charge)
        // The first one is the outermost: it measures the waits of the rate limit, too.
        .middleware(Timing::new(move |_| *count.lock().expect("no test panics here") += 1).run_state("took_ms"))
        .middleware(House)
        .middleware(Redaction::new().field("card").text(hide_cards))
        .middleware(RateLimit::new(2, Duration::from_millis(400)).key(by_customer))
        .start()
        .await?;
    let began = Instant::now();
    let run = onward.start::<Vec<String>, _>("bill", "ada").await?;
    println!("{}", run.result().await?.join("\n"));
    println!("the third charge waited: {}", began.elapsed() >= Duration::from_millis(150));
    let log = serde_json::to_string(&run.log().await?)?;
    println!("the log has the card: {}", log.contains("4111 1111"));
    println!("attempts measured: {}", timed.lock().expect("no test panics here"));
    onward.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use onward::middleware::Redaction;
    use onward::testing::Script;

    #[test]
    fn no_card_is_recorded_whatever_crashes() {
        let receipt = |charge: super::Charge| Ok(super::Receipt { cents: charge.cents, card: "[redacted]".to_owned() });
        let script = Script::new(super::bill, "ada").task("charge", receipt);
        let script = script.middleware(super::House).middleware(Redaction::new().text(super::hide_cards));
        assert_eq!(script.run().output::<Vec<String>>()[2], "ada paid 2100 cents");
        assert!(!script.run().log().to_json_lines().contains("4111 1111"));
        script.crash_everywhere();
    }
}
