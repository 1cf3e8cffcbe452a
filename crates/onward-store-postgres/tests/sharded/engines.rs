//! Whole engines over several databases.

use std::sync::Arc;
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, Onward, RunHandle, Status};
use onward_store::SystemClock;
use onward_store::{MemoryStore, Store};
use onward_store_postgres::sharded::{ShardedStore, position};

use crate::faulty::{Faulty, PACE, id_in, key, named, until_up};

const DEADLINE: Duration = Duration::from_secs(300);

struct Databases {
    databases: Vec<Arc<Faulty>>,
    store: Arc<ShardedStore>,
}

impl Databases {
    fn new() -> Databases {
        let databases: Vec<_> = (0..3).map(|_| Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock))))).collect();
        let store = Arc::new(ShardedStore::new(named(&databases), Arc::new(SystemClock), PACE));
        Databases { databases, store }
    }

    fn engine(&self) -> Builder {
        Onward::with_store(self.store.clone(), Arc::new(SystemClock))
            .workflow("square", square)
            .workflow("parent", parent)
            .workflow("patient", patient)
            .workflow("sleeper", sleeper)
    }
}

async fn square(_: Ctx, n: u32) -> Result<u32> {
    Ok(n * n)
}

/// Starts children with the given ids and returns the outcome of each.
async fn parent(ctx: Ctx, ids: Vec<String>) -> Result<Vec<String>> {
    let mut outcomes = Vec::new();
    for id in ids {
        let child = ctx.child::<u32>("square", &3);
        let child = if id.is_empty() { child } else { child.id(&id) };
        outcomes.push(match child.await {
            Ok(square) => square.to_string(),
            Err(failure) => failure.code,
        });
    }
    Ok(outcomes)
}

/// Sleeps a few times.
async fn sleeper(ctx: Ctx, times: u32) -> Result<u32> {
    for _ in 0..times {
        ctx.sleep(Duration::from_millis(100)).await?;
    }
    Ok(times)
}

async fn patient(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.signal("go").recv().await
}

async fn result<T: serde::de::DeserializeOwned + Send + 'static>(run: &RunHandle<T>) -> T {
    tokio::time::timeout(DEADLINE, run.result()).await.expect("it ends in time").unwrap()
}

/// L19.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_gets_an_error_for_a_child_of_another_root_and_goes_on() {
    let databases = Databases::new();
    let onward = databases.engine().start().await.unwrap();
    let (root, stranger) = (id_in(0, 0), id_in(1, 0));
    let ids = vec![String::new(), stranger.clone(), format!("{root}/mine"), "x/y".to_owned()];
    let run: RunHandle<Vec<String>> = onward.start("parent", &ids).id(&root).await.unwrap();
    assert_eq!(result(&run).await, ["9", "root_run_differs", "9", "root_run_differs"]);
    let runs = databases.databases[0].inner.list_runs(Default::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 3, "the tree lies in one database");
    assert!(databases.store.read_run(key(&stranger), None).await.unwrap().is_none());
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runtimes_over_the_same_databases_do_every_run_once() {
    let databases = Databases::new();
    let engines = [databases.engine().start().await.unwrap(), databases.engine().start().await.unwrap()];
    let mut runs = Vec::new();
    for number in 0..60_u32 {
        let engine = &engines[number as usize % 2];
        let run: RunHandle<u32> = engine.start("patient", &()).id(format!("r{number}")).await.unwrap();
        runs.push(run);
    }
    for (number, run) in runs.iter().enumerate() {
        // Through the other engine than the one that started it.
        let other: RunHandle<u32> = engines[(number + 1) % 2].run(&format!("r{number}")).unwrap();
        other.signal("go", &(number as u32)).await.unwrap();
        assert_eq!(result(run).await, number as u32);
        assert_eq!(result(&other).await, number as u32);
    }
    for engine in engines {
        engine.shutdown().await;
    }
    for (number, database) in databases.databases.iter().enumerate() {
        let runs = database.inner.list_runs(Default::default()).await.unwrap().runs;
        assert!(runs.len() > 5, "database {number} has {} runs", runs.len());
        for head in runs {
            assert_eq!((head.status, position(&head.key, 3)), (Status::Completed, number));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_elsewhere_go_on_while_a_database_is_down_and_its_own_when_it_is_back() {
    let databases = Databases::new();
    let onward = databases.engine().start().await.unwrap();
    let mut runs: Vec<RunHandle<u32>> = Vec::new();
    for database in 0..3 {
        runs.push(onward.start("patient", &()).id(id_in(database, 0)).await.unwrap());
    }
    databases.databases[1].refuse(true);
    assert_eq!(runs[1].signal("go", &1_u32).await.unwrap_err().code(), "store_unavailable");
    for number in [0, 2] {
        runs[number].signal("go", &(number as u32)).await.unwrap();
        assert_eq!(result(&runs[number]).await, number as u32);
        let fresh: RunHandle<u32> = onward.start("square", &4_u32).id(id_in(number, 1)).await.unwrap();
        assert_eq!(result(&fresh).await, 16);
    }
    databases.databases[1].refuse(false);
    until_up(&databases.store, &[true; 3]);
    runs[1].signal("go", &7_u32).await.unwrap();
    assert_eq!(result(&runs[1]).await, 7);
    onward.shutdown().await;
}

/// Timers, leases and claims of the other databases continue while one is suspended, and its own when it resumes.
#[tokio::test(flavor = "multi_thread")]
async fn runs_elsewhere_sleep_and_wake_while_a_database_stands_still() {
    let databases = Databases::new();
    let onward = databases.engine().start().await.unwrap();
    let mut runs: Vec<RunHandle<u32>> = Vec::new();
    for database in 0..3 {
        runs.push(onward.start("sleeper", &5_u32).id(id_in(database, 0)).await.unwrap());
    }
    databases.databases[1].be_silent(true);
    for number in [0, 2] {
        assert_eq!(result(&runs[number]).await, 5);
        let fresh: RunHandle<u32> = onward.start("sleeper", &3_u32).id(id_in(number, 1)).await.unwrap();
        assert_eq!(result(&fresh).await, 3);
    }
    until_up(&databases.store, &[true, false, true]);
    databases.databases[1].be_silent(false);
    until_up(&databases.store, &[true; 3]);
    assert_eq!(result(&runs[1]).await, 5);
    onward.shutdown().await;
}
