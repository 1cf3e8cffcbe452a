//! The children of a run over HTTP and gRPC, and the keys that may list them.

use onward::Onward;
use onward::prelude::*;
use onward_core::{Namespace, RunId, RunKey};
use onward_server::Scope;
use serde_json::json;

use crate::keys::Locked;

async fn parent(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.child::<u32>("child", &()).id("c").await
}

async fn child(_: Ctx, (): ()) -> Result<u32> {
    Ok(7)
}

/// S6 and S7 for `ListChildren`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_children_of_a_run_are_listed_for_keys_of_its_namespace_that_may_read() {
    let (locked, root) = Locked::open().await;
    let (reader, starter) = (locked.make("r", "default", &[Scope::Read]), locked.make("s", "default", &[Scope::Start]));
    let other = locked.make("o", "b", &Scope::ALL);
    locked.until(&reader, 200).await;
    locked.until(&starter, 403).await;
    let worker = Onward::connect(locked.url()).key(root.reveal()).workflow("parent", parent).workflow("child", child);
    let worker = worker.start().await.unwrap();
    assert_eq!(worker.start::<u32, _>("parent", &()).id("p").await.unwrap().result().await.unwrap(), 7);

    let path = "/v1/runs/p/children";
    let page = locked.send(&reader, "GET", path, "").await.expect(200);
    assert_eq!((page["runs"].as_array().unwrap().len(), &page["next"]), (1, &json!(null)));
    assert_eq!((&page["runs"][0]["id"], &page["runs"][0]["status"]), (&json!("c"), &json!("completed")));
    let failed = locked.send(&reader, "GET", &format!("{path}?status=failed"), "").await.expect(200);
    assert_eq!(failed["runs"], json!([]));
    locked.send(&reader, "GET", "/v1/runs/nothing/children", "").await.problem(404, "run_not_found");
    locked.send(&starter, "GET", path, "").await.problem(403, "not_allowed");
    locked.send(&other, "GET", path, "").await.problem(404, "run_not_found");

    let key = |namespace: &str| RunKey::new(Namespace::new(namespace).unwrap(), RunId::new("p").unwrap());
    let list = async |namespace: &str, credential: &onward_wire::ApiKey, run: RunKey| {
        let namespace = Namespace::new(namespace).unwrap();
        let client = onward::connect_client(&locked.url(), &namespace, Some(credential.reveal())).unwrap();
        client.list_children(run).await.map(|page| page.runs.len()).map_err(|error| error.code())
    };
    assert_eq!(list("default", &reader, key("default")).await, Ok(1));
    assert_eq!(list("default", &starter, key("default")).await, Err("not_allowed"));
    assert_eq!(list("default", &other, key("default")).await, Err("not_allowed"));
    assert_eq!(list("b", &other, key("default")).await, Err("run_not_found"), "a run of another namespace");
    worker.shutdown().await;
}
