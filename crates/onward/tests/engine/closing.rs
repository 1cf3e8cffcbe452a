//! The end of an engine: its resources are released.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use onward::prelude::*;
use onward::{Error, RunHandle, RunQuery, Status};
use onward_core::Index;

use crate::embedded;
use crate::site::{DEADLINE, count, everywhere, until_status};

async fn waits(ctx: Ctx, (): ()) -> Result<u64> {
    ctx.step("first", async || Ok::<_, Failure>(1)).await?;
    ctx.signal("never").recv().await
}

/// Found by tests of the command line: the next open sometimes failed with `directory_locked`, because a stopping thread still
/// held the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_free_when_shutdown_returns() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let onward = embedded(directory.path()).workflow("waits", waits).start().await.expect("the directory is free");
        drop(onward.start::<u64, _>("waits", &()).id(format!("run-{round}")).await.unwrap());
        onward.shutdown().await;
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

fn call<'a, T>(call: impl Future<Output = Result<T, Error>> + Send + 'a) -> Call<'a> {
    Box::pin(async move { call.await.map(drop) })
}

async fn is_shut_down(what: &str, call: Call<'_>) {
    let answer = tokio::time::timeout(DEADLINE, call).await;
    assert!(matches!(answer, Ok(Err(Error::ShutDown))), "{what}: {answer:?}");
}

everywhere! {
    /// OP1: such calls waited forever, or succeeded without an effect.
    async fn after_a_shutdown_every_call_fails_with_it_also_one_that_waits(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let run: RunHandle<u64> = onward.start("waits", &()).id("a").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let (clone, found) = (onward.clone(), onward.run::<u64>("a").unwrap());
        let mut attached = run.attach(Index(1_000)).await.unwrap();
        let mut waiting = [call(run.result()), call(found.result()), call(run.until(|_| false)), call(attached.next())];
        for waiting in &mut waiting {
            assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        }
        onward.shutdown().await;
        for waiting in waiting {
            is_shut_down("what waited", waiting).await;
        }
        for (what, future) in [
            ("result", call(run.result())),
            ("signal", call(run.signal("never", &1).into_future())),
            ("cancel", call(run.cancel(""))),
            ("view", call(run.view())),
            ("log", call(run.log())),
            ("query", call(run.query::<u64>("q", &()))),
            ("update", call(run.update::<u64>("u", &()).into_future())),
            ("start", call(clone.start::<u64, _>("waits", &()).into_future())),
            ("list", call(clone.list_runs(RunQuery::default()))),
        ] {
            is_shut_down(what, future).await;
        }
        drop((run, found, clone, attached));

        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let run = onward.run::<u64>("a").unwrap();
        assert_eq!(count(&run, "signal_received").await, 0);
        run.signal("never", &7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
    }
}
