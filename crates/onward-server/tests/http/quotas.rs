//! Quotas of namespaces over HTTP: stored, shown, applied to one namespace, and set by administrators of the server alone.

use onward_server::Scope;
use serde_json::{Value, json};

use crate::client::Reply;
use crate::keys::Locked;
use crate::site::Site;

async fn start_in(site: &Site, namespace: &str, id: &str) -> Reply {
    let headers = format!("Content-Type: application/json\r\nOnward-Namespace: {namespace}\r\n");
    site.send("POST", "/v1/runs", &headers, &json!({"kind": "none", "id": id}).to_string()).await
}

#[tokio::test]
async fn a_quota_is_stored_shown_and_removed() {
    let site = Site::open().await;
    let body = json!({
        "runs_open_max": 2, "start_rate": {"starts_max": 10, "period_ms": 1000}, "tasks_running_max": 3,
        "payload_bytes_max": 5000, "spend_per_day_max": "2.5"
    });
    let put = site.put_json("/v1/quotas/a", body.clone()).await.json();
    assert_eq!((&put["namespace"], &put["settings"]), (&json!("a"), &body), "{put}");
    assert_eq!(start_in(&site, "a", "r").await.status, 201);
    let shown = site.get("/v1/quotas/a").await.json();
    assert_eq!(
        (&shown["settings"], &shown["usage"]["runs_open"], &shown["usage"]["starts"]),
        (&body, &json!(1), &json!(1)),
        "{shown}"
    );
    assert_eq!((&shown["usage"]["tasks_running"], &shown["usage"]["spent_today"]), (&json!(0), &json!("0")), "{shown}");
    assert_eq!(site.get("/v1/quotas/b").await.json()["settings"], Value::Null, "of another namespace");
    assert_eq!(site.get("/v1/kinds").await.json()["kinds"], json!([]), "a quota is no kind");
    assert_eq!(site.send("DELETE", "/v1/quotas/a", "", "").await.status, 204);
    assert_eq!(site.get("/v1/quotas/a").await.json()["settings"], Value::Null);
}

#[tokio::test]
async fn a_namespace_at_its_quota_is_refused_and_another_one_is_not() {
    let site = Site::open().await;
    site.put_json("/v1/quotas/a", json!({"runs_open_max": 1})).await.json();
    assert_eq!(start_in(&site, "a", "1").await.status, 201);
    let before = site.records();
    let refused = start_in(&site, "a", "2").await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let document: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(document["retry_after_ms"], 1_000, "{document}");
    assert!(document["hint"].as_str().unwrap().contains("onward quota show"), "{document}");
    let detail = refused.problem(429, "quota_exceeded");
    assert!(detail.contains("`a`") && detail.contains("1 open runs"), "{detail}");
    let task = json!({"kind": "mail", "id": "t"}).to_string();
    let headers = "Content-Type: application/json\r\nOnward-Namespace: a\r\n";
    site.send("POST", "/v1/tasks", headers, &task).await.problem(429, "quota_exceeded");
    assert_eq!(site.records(), before, "nothing was written");
    assert_eq!(start_in(&site, "a", "1").await.status, 200, "a repeat finds the run");
    for id in ["1", "2", "3"] {
        assert_eq!(start_in(&site, "b", id).await.status, 201, "another namespace");
    }
    site.put_json("/v1/quotas/a", json!({"runs_open_max": 2})).await.json();
    assert_eq!(start_in(&site, "a", "2").await.status, 201, "the quota was raised");
}

#[tokio::test]
async fn a_start_rate_names_the_time_of_the_next_start() {
    let site = Site::open().await;
    site.put_json("/v1/quotas/a", json!({"start_rate": {"starts_max": 1, "period_ms": 86_400_000}})).await.json();
    assert_eq!(start_in(&site, "a", "1").await.status, 201);
    let refused = start_in(&site, "a", "2").await;
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((80_000..90_000).contains(&seconds), "{seconds}");
    refused.problem(429, "quota_exceeded");
    let shown = site.get("/v1/quotas/a").await.json();
    assert!(shown["usage"]["starts_open_at"].is_string(), "{shown}");
}

#[tokio::test]
async fn limits_that_mean_nothing_are_refused_and_change_nothing() {
    let site = Site::open().await;
    let path = "/v1/quotas/a";
    let before = site.put_json(path, json!({"runs_open_max": 2})).await.json()["settings"].clone();
    for (body, code, named) in [
        (json!({"runs_open_max": -1}), "json_invalid", "line 1"),
        (json!({"runs_open_max": 1.5}), "json_invalid", "line 1"),
        (json!({"runs_open_max": 1_000_001}), "quota_invalid", "`runs_open_max` is 1000001"),
        (json!({"start_rate": {"starts_max": 0, "period_ms": 1000}}), "quota_invalid", "`start_rate.starts_max` is 0"),
        (json!({"start_rate": {"starts_max": 1, "period_ms": u64::MAX}}), "quota_invalid", "`start_rate.period_ms`"),
        (json!({"payload_bytes_max": 1}), "quota_invalid", "`payload_bytes_max` is 1"),
        (json!({"tasks_running_max": 4_294_967_296_u64}), "json_invalid", "line 1"),
        (json!({"spend_per_day_max": "-1"}), "json_invalid", "line 1"),
        (json!({"spend_per_day_max": "2000000"}), "quota_invalid", "`spend_per_day_max` is 2000000"),
        (json!({"open_runs": 2}), "json_invalid", "open_runs"),
        (json!([1]), "json_invalid", "line 1"),
    ] {
        let detail = site.put_json(path, body.clone()).await.problem(400, code);
        assert!(detail.contains(named), "{body}: {detail}");
    }
    assert_eq!(site.put_json("/v1/quotas/%01", json!({})).await.status, 400);
    assert_eq!(site.get(path).await.json()["settings"], before);
    site.put_json("/v1/queues/quota:", json!({"paused": true})).await.problem(400, "queue_invalid");
}

/// A tenant reads its own quota and raises none: that needs a key for all namespaces.
#[tokio::test]
async fn a_key_of_a_namespace_reads_its_quota_and_sets_none() {
    let (locked, root) = Locked::open().await;
    let body = json!({"runs_open_max": 1}).to_string();
    locked.send(&root, "PUT", "/v1/quotas/acme", &body).await.expect(200);
    let tenant = locked.make("tenant", "acme", &Scope::ALL);
    locked.until_in("acme", &tenant, 200).await;
    let raised = json!({"runs_open_max": 1000}).to_string();
    for namespace in ["acme", "other"] {
        let path = format!("/v1/quotas/{namespace}");
        let refused = locked.send_in("acme", &tenant, "PUT", &path, &raised).await;
        assert!(namespace != "acme" || refused.body.contains("all namespaces"), "{}", refused.body);
        refused.problem(403, "not_allowed");
        locked.send_in("acme", &tenant, "DELETE", &path, "").await.problem(403, "not_allowed");
    }
    let shown = locked.send_in("acme", &tenant, "GET", "/v1/quotas/acme", "").await.expect(200);
    assert_eq!(shown["settings"]["runs_open_max"], 1);
    locked.send_in("acme", &tenant, "GET", "/v1/quotas/other", "").await.problem(403, "not_allowed");
    let reader = locked.make("reader", "*", &[Scope::Read]);
    locked.until_in("acme", &reader, 200).await;
    locked.send(&reader, "GET", "/v1/quotas/acme", "").await.expect(200);
    locked.send(&reader, "PUT", "/v1/quotas/acme", &raised).await.problem(403, "not_allowed");
    let start = json!({"kind": "none"}).to_string();
    locked.send_in("acme", &tenant, "POST", "/v1/runs", &start).await.expect(201);
    locked.send_in("acme", &tenant, "POST", "/v1/runs", &start).await.problem(429, "quota_exceeded");
}
