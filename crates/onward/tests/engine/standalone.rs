//! Tasks without a workflow, in a process with an embedded store.

use onward::prelude::*;
use onward::{Onward, TaskStatus};

#[tokio::test]
async fn a_task_outlives_the_process_that_queued_it() {
    let directory = tempfile::tempdir().unwrap();
    let gone = Onward::embedded(directory.path())
        .task("double", |_: u32| async { std::future::pending::<Result<u32>>().await })
        .start()
        .await
        .unwrap();
    let task = gone.task::<u32, _>("double", &21).id("t").await.unwrap();
    assert_eq!(gone.task::<u32, _>("unknown", &1).await.map(drop).unwrap_err().code(), "unknown_kind");
    drop(task);
    gone.shutdown().await;

    let onward =
        Onward::embedded(directory.path()).task("double", |n: u32| async move { Ok::<_, Failure>(n * 2) }).start().await.unwrap();
    let task = onward.task_handle::<u32>("t").unwrap();
    assert_eq!(task.result().await.unwrap(), 42);
    assert_eq!(task.view().await.unwrap().state, TaskStatus::Completed);
    // The same start finds it, and has no effect.
    assert_eq!(onward.task::<u32, _>("double", &21).id("t").await.unwrap().result().await.unwrap(), 42);
    onward.shutdown().await;
}
