//! Settings of queues over HTTP: stored, shown, applied and refused.

use serde_json::{Value, json};

use crate::site::Site;

#[tokio::test]
async fn settings_of_a_queue_are_stored_shown_and_removed() {
    let site = Site::open().await;
    let body =
        json!({"concurrency_max": 2, "key_rate": {"starts_max": 10, "period_ms": 1000}, "weights": [{"key": "a", "weight": 3}]});
    let put = site.put_json("/v1/queues/mail", body.clone()).await.json();
    assert_eq!((&put["queue"], &put["settings"]), (&json!("mail"), &body), "{put}");
    site.put_json("/v1/queues/default", json!({"paused": true})).await.json();
    for (id, key) in [("1", json!("a")), ("2", json!("a")), ("3", Value::Null)] {
        let task = json!({"kind": "mail", "id": id, "queue": "mail", "key": key});
        assert_eq!(site.post_json("/v1/tasks", task).await.status, 201);
    }
    let shown = site.get("/v1/queues/mail").await.json();
    assert_eq!(
        (&shown["queued"], &shown["keys"][0]["key"], &shown["keys"][0]["waiting"]),
        (&json!(3), &json!("a"), &json!(2)),
        "{shown}"
    );
    let list = site.get("/v1/queues").await.json();
    assert_eq!(list["queues"][0]["queued"], 3, "{list}");
    let settings: Vec<&Value> = list["settings"].as_array().unwrap().iter().map(|of| &of["queue"]).collect();
    assert_eq!(settings, [&Value::Null, &json!("mail")], "{list}");
    assert_eq!(site.send("DELETE", "/v1/queues/mail", "", "").await.status, 204);
    assert_eq!(site.get("/v1/queues/mail").await.json()["settings"], Value::Null);
    let kinds = site.get("/v1/kinds").await.json();
    assert_eq!(kinds["kinds"], json!([]), "settings are no kinds");
}

#[tokio::test]
async fn settings_that_mean_nothing_are_refused_and_change_nothing() {
    let site = Site::open().await;
    let path = "/v1/queues/mail";
    let before = site.put_json(path, json!({"concurrency_max": 2})).await.json();
    for (body, code, named) in [
        (json!({"concurrency_max": -1}), "json_invalid", "line 1"),
        (json!({"concurrency_max": 0}), "queue_invalid", "at least 1"),
        (json!({"rate": {"starts_max": 0, "period_ms": 1000}}), "queue_invalid", "`rate.starts_max` is 0"),
        (json!({"key_rate": {"starts_max": 1, "period_ms": 0}}), "queue_invalid", "`key_rate.period_ms` is 0"),
        (json!({"weights": [{"key": "a", "weight": 0}]}), "queue_invalid", "`weights[0].weight` is 0"),
        (json!({"concurrency": 2}), "json_invalid", "concurrency"),
    ] {
        let detail = site.put_json(path, body.clone()).await.problem(400, code);
        assert!(detail.contains(named), "{body}: {detail}");
    }
    let detail = site.put_json(path, json!({"weights": [{"key": "", "weight": 2}]})).await;
    assert_eq!(detail.status, 400, "{}", detail.body);
    assert_eq!(site.get(path).await.json(), before);
}

#[tokio::test]
async fn a_full_queue_names_the_time_of_the_next_attempt() {
    let site = Site::open().await;
    site.put_json("/v1/queues/mail", json!({"depth_max": 1})).await.json();
    let task = |id: &str| json!({"kind": "mail", "id": id, "queue": "mail"});
    assert_eq!(site.post_json("/v1/tasks", task("1")).await.status, 201);
    let before = site.records();
    let full = site.post_json("/v1/tasks", task("2")).await;
    assert_eq!(full.header("retry-after"), Some("1"));
    assert_eq!(serde_json::from_str::<Value>(&full.body).unwrap()["retry_after_ms"], 1_000);
    full.problem(429, "queue_full");
    assert_eq!(site.records(), before, "nothing was written");
    assert_eq!(site.post_json("/v1/tasks", task("1")).await.status, 200, "a repeat finds the task");
}

/// RQ1, RQ6
#[tokio::test]
async fn runs_wait_in_a_queue_and_a_full_one_refuses_them() {
    let site = Site::open().await;
    site.put_json("/v1/queues/deploys", json!({"concurrency_max": 1, "depth_max": 1})).await.json();
    let run = |id: &str| json!({"kind": "listener", "id": id, "queue": "deploys", "key": "shop", "priority": 2});
    let started = site.post_json("/v1/runs", run("a")).await.expect(201);
    assert_eq!((&started["queue"], &started["key"]), (&json!("deploys"), &json!("shop")), "{started}");
    while site.show("a").await["awaiting"][0]["kind"] != "signal" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    site.post_json("/v1/runs", run("b")).await.expect(201);
    let waiting = site.show("b").await;
    assert_eq!(
        (&waiting["status"], &waiting["awaiting"][0]["kind"], &waiting["awaiting"][0]["name"]),
        (&json!("waiting"), &json!("start"), &json!("deploys"))
    );
    assert!(waiting["doing"].as_str().unwrap().starts_with("Waits in the queue deploys since"), "{waiting}");
    let full = site.post_json("/v1/runs", run("c")).await;
    assert!(full.header("retry-after").is_some());
    full.problem(429, "queue_full");
    site.get("/v1/runs/c").await.problem(404, "run_not_found");
    let shown = site.get("/v1/queues/deploys").await.json();
    assert_eq!(
        (&shown["runs"]["queued"], &shown["runs"]["begun"], &shown["queued"]),
        (&json!(1), &json!(1), &json!(0)),
        "{shown}"
    );
    assert_eq!(shown["run_keys"][0]["held_back_by"], Value::Null, "{shown}");
    let list = site.get("/v1/queues").await.json();
    assert_eq!((&list["runs"][0]["queue"], &list["runs"][0]["runs"]["begun"]), (&json!("deploys"), &json!(1)), "{list}");
    assert_eq!(site.get("/v1/tasks").await.json()["tasks"], json!([]), "places of runs are no tasks");
    site.post("/v1/runs/a/terminate", "").await.expect(202);
    while site.show("b").await["awaiting"][0]["kind"] != "signal" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "d", "key": "shop"})).await.problem(400, "run_queue_invalid");
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "d", "queue": "runs:x"})).await.problem(400, "run_queue_invalid");
    site.get("/v1/queues/runs:x").await.problem(400, "run_queue_invalid");
}

#[tokio::test]
async fn the_key_of_a_kind_is_computed_from_the_input() {
    let site = Site::open().await;
    let path = "/v1/kinds/listener/defaults";
    site.put_json(path, json!({"queue": "deploys", "key": "{{ input.service }}"})).await.json();
    let started =
        site.post_json("/v1/runs", json!({"kind": "listener", "id": "a", "input": {"service": "shop"}})).await.expect(201);
    assert_eq!((&started["queue"], &started["key"]), (&json!("deploys"), &json!("shop")));
    let failed = site.post_json("/v1/runs", json!({"kind": "listener", "id": "b", "input": {}})).await;
    let detail = failed.problem(400, "run_queue_invalid");
    assert!(detail.contains("service") && detail.contains("position"), "{detail}");
    site.get("/v1/runs/b").await.problem(404, "run_not_found");
    site.put_json(path, json!({"key": "{{ input."})).await.problem(400, "defaults_invalid");
}
