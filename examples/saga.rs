//! Compensation: completed steps are undone, latest first, when the run fails.
//!
//! `cargo run --example saga`

use onward::prelude::*;

const TRIP: Workflow<String, String> = Workflow::new("trip");

async fn trip(ctx: Ctx, city: String) -> Result<String> {
    let flight = ctx.step("book-flight", async || book("flight", &city).await).await?;
    // Registered after the booking is recorded, so only real bookings are canceled.
    ctx.on_failure("cancel-flight", move || cancel(flight));

    let hotel = ctx.step("book-hotel", async || book("hotel", &city).await).await?;
    ctx.on_failure("cancel-hotel", move || cancel(hotel));

    let car = ctx.step("book-car", async || book("car", &city).await).await?;
    Ok(format!("all booked, down to the {car}"))
}

async fn book(what: &str, city: &str) -> Result<String> {
    if what == "car" && city == "Venice" {
        return Err(Failure::fatal("no roads here").with_code("no_cars"));
    }
    println!("booked a {what} in {city}");
    Ok(format!("{what} in {city}"))
}

async fn cancel(booking: String) -> Result<()> {
    println!("canceled the {booking}");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let onward = Onward::embedded(directory.path()).workflow(&TRIP, trip).start().await?;
    for city in ["Lisbon", "Venice"] {
        match onward.start(&TRIP, city).await?.result().await {
            Ok(text) => println!("{text}"),
            Err(error) => {
                let code = error.failure().map_or(error.code(), |failure| &failure.code);
                println!("error[{code}]: {error}");
            }
        }
    }
    onward.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use onward::testing::Script;

    #[test]
    fn bookings_are_canceled_latest_first_whatever_crashes() {
        let script = Script::new(super::trip, "Venice");
        let outcome = script.run();
        assert_eq!(outcome.failure().code, "no_cars");
        assert_eq!(outcome.steps_run(), ["book-flight", "book-hotel", "book-car", "cancel-hotel", "cancel-flight"]);
        script.crash_everywhere();
    }
}
