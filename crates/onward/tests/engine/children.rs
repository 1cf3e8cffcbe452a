//! Runs that start runs.

use onward::prelude::*;
use onward::{OnParentClose, RunHandle, Status, Workflow};
use onward_core::Event;

use crate::site::{count, events, eventually, everywhere, until_status};

async fn square(_: Ctx, n: u32) -> Result<u32> {
    Ok(n * n)
}

/// A child that compensates when it is canceled.
async fn patient(ctx: Ctx, (): ()) -> Result<()> {
    ctx.on_failure("undo", || async { Ok::<_, Failure>(()) });
    ctx.signal("never").recv().await
}

/// Waits until the child has been started and waits.
async fn until_waiting(child: &RunHandle<()>) {
    eventually("the child waits", async || child.view().await.ok().filter(|view| view.head.status == Status::Waiting)).await;
}

everywhere! {
    /// Scenario 18.
    async fn children_started_in_a_loop_have_their_own_ids_and_results(site) {
        async fn sum(ctx: Ctx, upto: u32) -> Result<(u32, Vec<String>)> {
            let (mut sum, mut ids) = (0, Vec::new());
            for n in 1..=upto {
                let child = ctx.child::<u32>("square", &n);
                ids.push(child.run_id().expect("a child that was started has an id").to_string());
                sum += child.await?;
            }
            Ok((sum, ids))
        }
        let onward = site.builder().await.workflow("sum", sum).workflow("square", square).start().await.unwrap();
        let run = onward.start::<(u32, Vec<String>), _>("sum", &3).id("parent").await.unwrap();
        let (sum, ids) = run.result().await.unwrap();
        assert_eq!(sum, 1 + 4 + 9);
        assert_eq!(ids, ["parent/0", "parent/1", "parent/2"]);
        let children = run.children().await.unwrap();
        let listed: Vec<(&str, Status)> = children.iter().map(|head| (head.key.id.as_str(), head.status)).collect();
        assert_eq!(listed, ["parent/2", "parent/1", "parent/0"].map(|id| (id, Status::Completed)), "newest first");
        assert!(onward.run::<u32>("parent/0").unwrap().children().await.unwrap().is_empty());
        assert_eq!(onward.run::<u32>("nothing").unwrap().children().await.unwrap_err().code(), "run_not_found");
        for (n, id) in (1..).zip(ids) {
            assert_eq!(onward.run::<u32>(&id).unwrap().result().await.unwrap(), n * n);
        }
    }

    /// Scenario 19.
    async fn of_two_children_with_one_id_the_second_is_refused_and_nothing_is_shared(site) {
        async fn twice(ctx: Ctx, (): ()) -> Result<(u32, String)> {
            let first = ctx.child::<u32>("square", &3).id("the-child").await?;
            let second = ctx.child::<u32>("square", &3).id("the-child").await.expect_err("the id is taken");
            Ok((first, second.code))
        }
        let onward = site.builder().await.workflow("twice", twice).workflow("square", square).start().await.unwrap();
        let run = onward.start::<(u32, String), _>("twice", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (9, "run_exists".to_owned()));
    }

    /// R10, L19: the old child is not its child, and the old signal is not its signal.
    async fn a_run_that_was_deleted_and_started_again_sends_its_signal_and_gets_the_result_of_its_child(site) {
        async fn parent(ctx: Ctx, n: u32) -> Result<String> {
            ctx.send_signal("sink", "n", &n)?;
            ctx.child::<u32>("square", &n).await.map(|square| square.to_string()).or_else(|failure| Ok(failure.code))
        }
        async fn sink(ctx: Ctx, (): ()) -> Result<Vec<u32>> {
            let mut received = Vec::new();
            for _ in 0..3 {
                received.push(ctx.signal("n").recv().await?);
            }
            Ok(received)
        }
        let builder = site.builder().await.workflow("parent", parent).workflow("square", square).workflow("sink", sink);
        let onward = builder.start().await.unwrap();
        let sink: RunHandle<Vec<u32>> = onward.start("sink", &()).id("sink").await.unwrap();
        let delete = async |id: &str| eventually("the run goes", async || onward.delete_run(id, "again").await.ok()).await;
        for (is_child_gone, expected) in [(false, "9"), (false, "run_exists"), (true, "9")] {
            if is_child_gone {
                delete("p/1").await;
            }
            let run: RunHandle<String> = onward.start("parent", &3).id("p").await.unwrap();
            assert_eq!(run.result().await.unwrap(), expected);
            delete("p").await;
        }
        assert_eq!(sink.result().await.unwrap(), [3, 3, 3]);
    }

    /// Scenario 20.
    async fn a_child_that_fails_gives_its_parent_the_reason_and_the_parent_goes_on(site) {
        async fn forgiving(ctx: Ctx, (): ()) -> Result<String> {
            let failure = ctx.child::<()>("broken", &()).await.expect_err("the child fails");
            Ok(format!("{}: {}", failure.code, failure.message))
        }
        async fn broken(_: Ctx, (): ()) -> Result<()> {
            Err(Failure::fatal("out of paper").with_code("no_paper"))
        }
        let onward = site.builder().await.workflow("forgiving", forgiving).workflow("broken", broken).start().await.unwrap();
        let run = onward.start::<String, _>("forgiving", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "no_paper: out of paper");
    }

    /// Scenario 21.
    async fn a_chain_of_four_generations_completes(site) {
        const NEST: Workflow<u32, u32> = Workflow::new("nest");
        async fn nest(ctx: Ctx, depth: u32) -> Result<u32> {
            Ok(if depth == 0 { 0 } else { ctx.child(&NEST, &(depth - 1)).await? + 1 })
        }
        let onward = site.builder().await.workflow(&NEST, nest).start().await.unwrap();
        let run = onward.start(&NEST, &3).id("top").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(onward.run::<u32>("top/0/0/0").unwrap().result().await.unwrap(), 0);
    }

    async fn a_child_of_an_unserved_kind_waits_and_keeps_its_parent_waiting(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.child("square", &4).await
        }
        let onward = site.builder().await.workflow("parent", parent).start().await.unwrap();
        let run = onward.start::<u32, _>("parent", &()).id("p").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.workflow("parent", parent).workflow("square", square).start().await.unwrap();
        assert_eq!(onward.run::<u32>("p").unwrap().result().await.unwrap(), 16);
    }

    async fn canceling_a_run_cancels_its_child_which_undoes_its_work(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<()> {
            ctx.child("patient", &()).id("child").await
        }
        let onward = site.builder().await.workflow("parent", parent).workflow("patient", patient).start().await.unwrap();
        let run = onward.start::<(), _>("parent", &()).await.unwrap();
        let child = onward.run::<()>("child").unwrap();
        until_waiting(&child).await;
        run.cancel("enough").await.unwrap();
        assert!(run.result().await.unwrap_err().failure().unwrap().is_canceled());
        until_status(&run, Status::Canceled).await;
        assert!(child.result().await.unwrap_err().failure().unwrap().is_canceled());
        assert_eq!(child.view().await.unwrap().head.status, Status::Canceled);
        assert_eq!(count(&child, "step_completed").await, 1, "the undo ran");
    }

    async fn what_happens_to_a_child_when_its_parent_ends_is_the_parents_choice(site) {
        async fn parent(ctx: Ctx, what: String) -> Result<()> {
            let what = match &*what {
                "cancel" => OnParentClose::Cancel,
                "terminate" => OnParentClose::Terminate,
                _ => OnParentClose::Abandon,
            };
            let child = ctx.child::<()>("patient", &()).on_parent_close(what);
            ctx.signal("end").recv::<()>().await?;
            drop(child);
            Ok(())
        }
        let onward = site.builder().await.workflow("parent", parent).workflow("patient", patient).start().await.unwrap();
        for (what, status) in [("cancel", Status::Canceled), ("terminate", Status::Terminated), ("abandon", Status::Waiting)] {
            let run = onward.start::<(), _>("parent", what).id(what).await.unwrap();
            let child = onward.run::<()>(&format!("{what}/0")).unwrap();
            until_waiting(&child).await;
            run.signal("end", &()).await.unwrap();
            run.result().await.unwrap();
            site.pass(&onward, secs(1)).await;
            until_status(&child, status).await;
        }
    }

    async fn terminating_a_run_ends_it_at_once_and_cancels_its_children(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<()> {
            ctx.on_failure("undo", || async { Ok::<_, Failure>(()) });
            ctx.child("patient", &()).id("child").await
        }
        let onward = site.builder().await.workflow("parent", parent).workflow("patient", patient).start().await.unwrap();
        let run = onward.start::<(), _>("parent", &()).await.unwrap();
        let child = onward.run::<()>("child").unwrap();
        until_waiting(&child).await;
        run.terminate("out of patience").await.unwrap();
        let error = run.result().await.unwrap_err();
        assert_eq!(error.failure().unwrap().message, "the run was terminated: out of patience");
        assert_eq!(run.view().await.unwrap().head.status, Status::Terminated);
        assert_eq!(count(&run, "step_completed").await, 0, "its code is not asked");
        until_status(&child, Status::Canceled).await;
    }

    async fn parent_and_child_talk_with_signals(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<String> {
            let child = ctx.child::<()>("child", ctx.run_id().as_str());
            child.signal("question", "how are you?")?;
            let answer: String = ctx.signal("answer").recv().await?;
            child.await?;
            Ok(answer)
        }
        async fn child(ctx: Ctx, parent: String) -> Result<()> {
            let question: String = ctx.signal("question").recv().await?;
            ctx.send_signal(&parent, "answer", &format!("{question} fine!"))?;
            Ok(())
        }
        let onward = site.builder().await.workflow("parent", parent).workflow("child", child).start().await.unwrap();
        let run = onward.start::<String, _>("parent", &()).id("p").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "how are you? fine!");
        let sender = events(&run).await.into_iter().find_map(|event| match event {
            Event::SignalReceived(signal) => signal.sender,
            _ => None,
        });
        assert_eq!(sender.unwrap().id.as_str(), "p/0", "a signal from a run has its sender");
    }
}
