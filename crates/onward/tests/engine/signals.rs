//! Signals from outside, with and without a connected worker.

use onward::Status;
use onward::prelude::*;

use crate::site::{count, events, everywhere, until_logged, until_status};

async fn collect(ctx: Ctx, wanted: usize) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        seen.push(ctx.signal("s").recv().await?);
    }
    Ok(seen)
}

everywhere! {
    /// Scenario 1.
    async fn a_signal_that_comes_with_the_start_is_the_first_thing_in_the_mailbox(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("collect", &1usize).id("r").signal("s", &5).await.unwrap();
        assert_eq!(run.result().await.unwrap(), [5]);
        let names: Vec<_> = events(&run).await.iter().take(2).map(|event| event.name()).collect();
        assert_eq!(names, ["run_started", "signal_received"]);
    }

    /// Scenario 2.
    async fn a_signal_with_a_start_that_finds_the_run_is_delivered_to_it(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        for n in [1, 2] {
            drop(onward.start::<Vec<u32>, _>("collect", &2usize).id("r").signal("s", &n).await.unwrap());
        }
        let run = onward.run::<Vec<u32>>("r").unwrap();
        assert_eq!(run.result().await.unwrap(), [1, 2]);
        assert_eq!(count(&run, "run_started").await, 1);
    }

    /// Scenario 3.
    async fn a_run_parked_on_a_signal_goes_on_with_its_payload(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("collect", &1usize).await.unwrap();
        until_status(&run, Status::Waiting).await;
        let appended = run.signal("s", &9).await.unwrap();
        assert!(appended.index.0 > 0 && appended.woke && !appended.repeated, "{appended:?}");
        assert_eq!(run.result().await.unwrap(), [9]);
    }

    /// Scenario 4.
    async fn signals_sent_in_a_burst_are_consumed_in_their_order(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("collect", &50usize).await.unwrap();
        for n in 0..50 {
            run.signal("s", &n).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), (0..50).collect::<Vec<_>>());
    }

    /// Scenario 34.
    async fn a_signal_id_counts_once_before_and_after_the_run_has_moved_on(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("collect", &2usize).id("r").await.unwrap();
        let first = run.signal("s", &1).id("id-1").await.unwrap();
        let at_once = run.signal("s", &1).id("id-1").await.unwrap();
        until_logged(&run, "signal_consumed", 1).await;
        let later = run.signal("s", &1).id("id-1").await.unwrap();
        for repeat in [at_once, later] {
            assert!(repeat.repeated && repeat.index == first.index, "{repeat:?}");
        }
        run.signal("s", &2).id("id-2").await.unwrap();
        assert_eq!(run.result().await.unwrap(), [1, 2]);
        let after_the_end = run.signal("s", &1).id("id-1").await.unwrap();
        assert!(after_the_end.repeated, "a late repeat stays a repeat");
    }

    /// Scenario 36.
    async fn a_signal_that_was_accepted_survives_everything_until_a_worker_takes_it(site) {
        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("collect", &1usize).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        // This process accepts the signal and stops before it could be processed: it does not even have the code.
        let client = site.builder().await.start().await.unwrap();
        client.run::<()>("r").unwrap().signal("s", &3).id("id-1").await.unwrap();
        client.shutdown().await;

        let onward = site.builder().await.workflow("collect", collect).start().await.unwrap();
        let run = onward.run::<Vec<u32>>("r").unwrap();
        assert!(run.signal("s", &3).id("id-1").await.unwrap().repeated, "a caller without a response tries again");
        assert_eq!(run.result().await.unwrap(), [3]);
    }

    async fn what_a_run_never_read_is_shown_as_undelivered(site) {
        async fn deaf(ctx: Ctx, (): ()) -> Result<()> {
            ctx.signal("end").recv().await
        }
        let onward = site.builder().await.workflow("deaf", deaf).start().await.unwrap();
        let run = onward.start::<(), _>("deaf", &()).signal("news", "unheard").await.unwrap();
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        let undelivered = run.view().await.unwrap().undelivered;
        assert_eq!(undelivered.iter().map(|signal| signal.name.as_str()).collect::<Vec<_>>(), ["news"]);
    }

    async fn runs_talk_to_each_other_with_signals(site) {
        async fn ping(ctx: Ctx, other: String) -> Result<u32> {
            ctx.send_signal(&other, "ball", &1)?;
            ctx.signal("ball").recv().await
        }
        async fn pong(ctx: Ctx, other: String) -> Result<()> {
            let ball: u32 = ctx.signal("ball").recv().await?;
            ctx.send_signal(&other, "ball", &(ball + 1))?;
            Ok(())
        }
        let onward = site.builder().await.workflow("ping", ping).workflow("pong", pong).start().await.unwrap();
        drop(onward.start::<(), _>("pong", "a").id("b").await.unwrap());
        let run = onward.start::<u32, _>("ping", "b").id("a").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2);
    }

    async fn typed_names_tie_worker_and_caller_together(site) {
        const ADD: Workflow<u32, u32> = Workflow::new("add");
        const DOUBLE: Task<u32, u32> = Task::new("double");
        const AMOUNT: Signal<u32> = Signal::new("amount");
        async fn add(ctx: Ctx, first: u32) -> Result<u32> {
            let doubled = ctx.task(&DOUBLE, &first).await?;
            Ok(doubled + ctx.signal(&AMOUNT).recv().await?)
        }
        async fn double(n: u32) -> Result<u32> {
            Ok(n * 2)
        }
        let onward = site.builder().await.workflow(&ADD, add).task(&DOUBLE, double).start().await.unwrap();
        let run = onward.start(&ADD, &4).await.unwrap();
        run.signal(&AMOUNT, &3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 11);
    }
}
