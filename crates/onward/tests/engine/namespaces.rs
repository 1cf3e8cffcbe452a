//! Two namespaces in one store, with equal names in both (S6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, Onward, RunQuery, Status};
use onward_core::Payload;

use crate::site::{DEADLINE, Site, eventually, everywhere, until_status};

/// The name of a tenant's process, and how often its task ran.
struct Tenant {
    name: &'static str,
    tasks: AtomicU32,
}

/// Returns the name of its own process: from a step, and from a task after a signal.
async fn who(ctx: Ctx, (): ()) -> Result<String> {
    let name = ctx.dep::<Arc<Tenant>>().name;
    ctx.query("who", move |(): ()| Ok(name.to_owned()));
    let first = ctx.step("who", async || Ok::<_, Failure>(name.to_owned())).await?;
    ctx.signal("go").recv::<()>().await?;
    ctx.emit("who", &name)?;
    let second: String = ctx.task("who", &()).await?;
    Ok(format!("{first} {second}"))
}

async fn who_task(ctx: TaskCtx, (): ()) -> Result<String> {
    let tenant = ctx.dep::<Arc<Tenant>>();
    tenant.tasks.fetch_add(1, Ordering::SeqCst);
    Ok(tenant.name.to_owned())
}

fn of(tenant: &Arc<Tenant>, builder: Builder) -> Builder {
    builder.namespace(tenant.name).workflow("who", who).version("1").task("who", who_task).dep(tenant.clone())
}

fn tenants() -> [Arc<Tenant>; 2] {
    ["a", "b"].map(|name| Arc::new(Tenant { name, tasks: AtomicU32::new(0) }))
}

async fn listed(onward: &Onward) -> usize {
    onward.list_runs(RunQuery::default()).await.unwrap().runs.len()
}

everywhere! {
    async fn a_run_is_left_alone_until_a_worker_of_its_namespace_comes_back(site) {
        let [a, b] = tenants();
        let onward = of(&a, site.builder().await).start().await.unwrap();
        let run = onward.start::<String, _>("who", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.signal("go", &()).id("once").await.unwrap();
        drop(run);
        onward.shutdown().await;

        let onward = of(&b, site.builder().await).start().await.unwrap();
        assert_eq!(listed(&onward).await, 0);
        let missing = onward.run::<String>("r").unwrap().view().await;
        assert_eq!(missing.unwrap_err().code(), "run_not_found");
        let run = onward.start::<String, _>("who", &()).id("r").await.unwrap();
        run.signal("go", &()).id("once").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "b b");
        assert_eq!(listed(&onward).await, 1);
        drop(run);
        onward.shutdown().await;

        let onward = of(&a, site.builder().await).start().await.unwrap();
        assert_eq!(onward.run::<String>("r").unwrap().result().await.unwrap(), "a a");
    }
}

/// The processes of both tenants are connected all the time.
async fn two_tenants_at_once(site: &Site) {
    let [a, b] = tenants();
    let first = of(&a, site.builder().await).start().await.unwrap();
    let second = of(&b, site.builder().await).start().await.unwrap();
    for number in 0..20 {
        let id = format!("r{number}");
        let runs = [
            first.start::<String, _>("who", &()).id(&id).await.unwrap(),
            second.start::<String, _>("who", &()).id(&id).await.unwrap(),
        ];
        for (run, tenant) in runs.iter().zip([&a, &b]) {
            until_status(run, Status::Waiting).await;
            assert_eq!(run.query::<String>("who", &()).await.unwrap(), tenant.name);
        }
        let mut emitted = runs[0].emitted();
        for run in runs.iter().rev() {
            run.signal("go", &()).id("once").await.unwrap();
        }
        assert_eq!(runs[0].result().await.unwrap(), "a a");
        assert_eq!(runs[1].result().await.unwrap(), "b b");
        if let Ok(emitted) = emitted.try_recv() {
            assert_eq!(emitted.value, Payload::from_json_text("\"a\"".to_owned()), "only what its own run said");
        }
    }
    assert_eq!((a.tasks.load(Ordering::SeqCst), b.tasks.load(Ordering::SeqCst)), (20, 20));
    assert_eq!((listed(&first).await, listed(&second).await), (20, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_of_a_server_never_get_each_others_work() {
    tokio::time::timeout(DEADLINE, two_tenants_at_once(&Site::server())).await.expect("each does its own work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_of_one_store_never_get_each_others_work() {
    tokio::time::timeout(DEADLINE, two_tenants_at_once(&Site::memory())).await.expect("each does its own work");
}

/// A run without a worker of its namespace waits, whichever other workers are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_another_namespace_does_not_help() {
    let [a, b] = tenants();
    let site = Site::server();
    let caller = site.builder().await.namespace(b.name).start().await.unwrap();
    let worker = of(&a, site.builder().await).start().await.unwrap();
    let run = caller.start::<String, _>("who", &()).version("1").id("r").await.unwrap();
    let own = worker.start::<String, _>("who", &()).id("r").await.unwrap();
    until_status(&own, Status::Waiting).await;
    assert_eq!(run.blocked_on().await.unwrap()[0].why.as_str(), "no_worker");
    assert_eq!(run.query::<String>("who", &()).await.unwrap_err().code(), "no_compatible_worker");
    let helper = of(&b, site.builder().await).start().await.unwrap();
    eventually("its own worker takes it", async || (run.view().await.unwrap().head.status == Status::Waiting).then_some(()))
        .await;
    drop(helper);
}

#[tokio::test]
async fn a_namespace_is_a_name() {
    let wrong = Onward::in_memory().namespace("").start().await.err().expect("it cannot be empty");
    assert_eq!(wrong.code(), "register_invalid");
}

/// Names are Unicode, not only ASCII; so are the headers that carry them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_may_have_any_letters() {
    let tenant = Arc::new(Tenant { name: "Straße 7/ёж", tasks: AtomicU32::new(0) });
    let onward = of(&tenant, Site::server().builder().await).start().await.unwrap();
    let run = onward.start::<String, _>("who", &()).id("r").signal("go", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "Straße 7/ёж Straße 7/ёж");
}
