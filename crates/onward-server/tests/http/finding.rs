//! Listing runs, acting on many of them, and moving them: attributes, versions, bulk, export and import.

use serde_json::{Value, json};

use crate::site::Site;

fn ids(page: &Value) -> Vec<String> {
    page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

async fn start(site: &Site, id: &str, version: Option<&str>, attributes: Value) {
    // No worker of the site has a version, so the run stays pending.
    let body = json!({"kind": "order", "id": id, "input": 1, "version": version, "attributes": attributes});
    site.post_json("/v1/runs", body).await.expect(201);
}

#[tokio::test]
async fn runs_are_found_by_attributes_and_versions() {
    let site = Site::open().await;
    start(&site, "a", Some("v0"), json!({"customer": "42", "express": true})).await;
    start(&site, "b", Some("v1"), json!({"customer": 42, "due": {"time": "2026-11-15T08:00:00Z"}})).await;
    let find = async |query: &str| ids(&site.get(&format!("/v1/runs?{query}")).await.expect(200));
    assert_eq!(find("attr.customer=42").await, ["b", "a"]);
    assert_eq!(find("attr.customer=42&attr.express=true").await, ["a"]);
    assert_eq!(find("attr.due=2026-11-15T08:00:00Z").await, ["b"]);
    assert_eq!(find("version=v1").await, ["b"]);
    assert_eq!(find("version=").await, [""; 0]);
    assert_eq!(find("version=&version=v0").await, ["a"]);
    assert_eq!(find("attr.customer=43").await, [""; 0]);
    site.get("/v1/runs?attr.=42").await.problem(400, "query_invalid");
    site.get("/v1/runs?attribute=42").await.problem(400, "query_invalid");
    let shown = site.show("b").await;
    assert_eq!(shown["attributes"], json!({"customer": 42, "due": {"time": "2026-11-15T08:00:00.000Z"}}));
    let versions = site.get("/v1/versions").await.expect(200);
    let expected = json!([{"kind": "order", "version": "v0", "open": 1}, {"kind": "order", "version": "v1", "open": 1}]);
    assert_eq!(versions["versions"], expected);
    let long = json!({"kind": "order", "attributes": {"a": "x".repeat(256)}});
    site.post_json("/v1/runs", long).await.problem(400, "attribute_invalid");
    site.post_json("/v1/runs", json!({"kind": "order", "attributes": {"a": 1.5}})).await.problem(400, "json_invalid");
}

#[tokio::test]
async fn many_runs_are_counted_and_then_ended_batch_by_batch() {
    let site = Site::open().await;
    for number in 0..5 {
        start(&site, &format!("r{number}"), Some("v0"), json!({"team": "a"})).await;
    }
    start(&site, "other", Some("v0"), json!({"team": "b"})).await;
    let filter = json!({"attributes": {"team": "a"}});
    let counted = site.post_json("/v1/bulk", json!({"verb": "terminate", "filter": filter, "dry_run": true})).await.expect(200);
    assert_eq!((&counted["matched"], counted["sample"].as_array().unwrap().len()), (&json!(5), 5));
    let mut cursor = Value::Null;
    let mut done = 0;
    loop {
        let mut body = json!({"verb": "terminate", "filter": filter, "bulk_id": "b-1", "limit": 2, "reason": "old"});
        if !cursor.is_null() {
            body["cursor"] = cursor;
        }
        let batch = site.post_json("/v1/bulk", body).await.expect(200);
        done += batch["done"].as_u64().unwrap();
        cursor = batch["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(done, 5);
    assert_eq!(site.show("other").await["status"], json!("pending"));
    assert_eq!(site.show("r0").await["status"], json!("terminated"));
    // All were terminated before, so none is left.
    let again = json!({"verb": "terminate", "filter": filter, "bulk_id": "b-1"});
    assert_eq!(site.post_json("/v1/bulk", again).await.expect(200)["matched"], json!(0));
    let deleted = site.post_json("/v1/bulk/delete", json!({"filter": filter})).await.expect(200);
    assert_eq!((&deleted["done"], &deleted["refused"]), (&json!(5), &json!([])));
    site.get("/v1/runs/r0").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_bulk_refuses_what_it_does_not_take() {
    let site = Site::open().await;
    start(&site, "a", Some("v0"), json!({})).await;
    site.post_json("/v1/bulk", json!({"verb": "cancel"})).await.problem(400, "filter_empty");
    site.post_json("/v1/bulk", json!({"verb": "delete", "all": true})).await.problem(400, "json_invalid");
    site.post_json("/v1/bulk", json!({"verb": "eat", "all": true})).await.problem(400, "json_invalid");
    site.post_json("/v1/bulk/delete", json!({"verb": "cancel", "all": true})).await.problem(400, "json_invalid");
    site.post_json("/v1/bulk", json!({"verb": "cancel", "all": true, "limit": 5000})).await.problem(400, "json_invalid");
    site.post_json("/v1/bulk", json!({"verb": "cancel", "filter": {"colour": 1}})).await.problem(400, "json_invalid");
    // A status is a filter.
    let waiting = json!({"verb": "cancel", "filter": {"status": ["waiting"]}});
    assert_eq!(site.post_json("/v1/bulk", waiting).await.expect(200)["matched"], json!(0));
    let paused = site.post_json("/v1/bulk", json!({"verb": "pause", "all": true})).await.expect(200);
    assert_eq!(paused["done"], json!(1));
    let resumed = json!({"verb": "resume", "filter": {"kind": "order"}});
    assert_eq!(site.post_json("/v1/bulk", resumed).await.expect(200)["done"], json!(1));
}

#[tokio::test]
async fn a_run_is_exported_and_comes_into_another_server_as_it_was() {
    let (site, other) = (Site::open().await, Site::open().await);
    start(&site, "a", Some("v9"), json!({"customer": "42"})).await;
    site.signal("a", "payment", json!({"b": 1, "a": 2.50})).await;
    let lines = site.get("/v1/runs/a/export").await;
    assert_eq!(lines.status, 200, "{}", lines.body);
    let by_filter = site.get("/v1/export?attr.customer=42").await;
    assert_eq!(by_filter.body, lines.body);
    let import =
        async |site: &Site, text: &str| site.send("POST", "/v1/import", "content-type: application/x-ndjson\r\n", text).await;
    let done = import(&other, &lines.body).await.expect(200);
    assert_eq!(done, json!({"created": ["a"], "unchanged": [], "refused": [], "flows": []}));
    assert_eq!(import(&other, &lines.body).await.expect(200)["unchanged"], json!(["a"]));
    assert_eq!(other.get("/v1/runs/a/export").await.body, lines.body);
    assert_eq!(ids(&other.get("/v1/runs?attr.customer=42").await.expect(200)), ["a"]);
    // The run in the other server has changed, so the import conflicts with it.
    other.signal("a", "payment", json!(1)).await;
    let refused = import(&other, &lines.body).await.expect(200);
    assert_eq!(refused["refused"], json!([{"run": "a", "code": "run_exists"}]));
    import(&other, "nonsense").await.problem(422, "import_invalid");
    let third = Site::open().await;
    for cut in 0..lines.body.lines().count() {
        let text: String = lines.body.split_inclusive('\n').take(cut).collect();
        import(&third, &text).await.problem(422, "import_invalid");
    }
    for index in [u64::MAX, u64::MAX - 1, 7] {
        let text = lines.body.replace("\"index\":1,", &format!("\"index\":{index},"));
        assert_eq!(import(&third, &text).await.expect(200)["refused"], json!([{"run": "a", "code": "log_invalid"}]));
    }
    third.get("/v1/runs/a").await.problem(404, "run_not_found");
    let typed = other.post("/v1/import", &lines.body).await;
    assert!(typed.body.contains("`Content-Type: application/x-ndjson`"), "{}", typed.body);
    typed.problem(415, "content_type_unsupported");
    let large = import(&other, &"x".repeat(crate::site::BODY_BYTES_MAX + 1)).await;
    assert!(large.body.contains("`onward --data DIR import FILE`"), "{}", large.body);
    large.problem(413, "body_too_large");
    let foreign = lines.body.replace("\"namespace\":\"default\"", "\"namespace\":\"elsewhere\"");
    let refused = import(&other, &foreign).await;
    assert!(refused.body.contains("`Onward-Namespace`") && !refused.body.contains("key create"), "{}", refused.body);
    refused.problem(403, "not_allowed");
    site.get("/v1/runs/nope/export").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_page_of_an_export_ends_by_its_bytes_and_names_the_start_of_the_next() {
    let site = Site::open().await;
    let input = "x".repeat(90_000);
    for number in 0..100 {
        let body = json!({"kind": "order", "id": format!("r{number:03}"), "version": "v9", "input": input});
        site.post_json("/v1/runs", body).await.expect(201);
    }
    let (mut query, mut found, mut pages) = ("/v1/export?limit=1000".to_owned(), Vec::new(), 0);
    loop {
        let page = site.get(&query).await;
        assert!(page.status == 200 && page.body.len() < 9 * 1024 * 1024, "{} {}", page.status, page.body.len());
        found.extend(onward_core::transfer::read(&page.body).unwrap().into_iter().map(|run| run.key.id.to_string()));
        pages += 1;
        let footer: serde_json::Value = serde_json::from_str(page.body.lines().last().unwrap()).unwrap();
        assert_eq!(footer.get("next").and_then(|next| next.as_str()), page.header("onward-next"), "also in the body");
        let Some(next) = page.header("onward-next") else { break };
        query = format!("/v1/export?limit=1000&cursor={next}");
    }
    found.sort();
    let all: Vec<String> = (0..100).map(|number| format!("r{number:03}")).collect();
    assert_eq!((found, pages), (all, 2));
}

/// The status filter has the same name in a query and in a body.
#[tokio::test]
async fn a_list_and_a_bulk_filter_call_the_status_by_the_same_name() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "b", "version": "v9"})).await.expect(201);
    let listed = site.get("/v1/runs?status=waiting&status=failed").await.expect(200);
    assert_eq!((listed["runs"].as_array().unwrap().len(), &listed["runs"][0]["id"]), (1, &json!("a")));
    let bulk = |filter: serde_json::Value| json!({"verb": "terminate", "dry_run": true, "filter": filter});
    let found = site.post_json("/v1/bulk", bulk(json!({"kind": "listener", "status": ["waiting", "failed"]}))).await.expect(200);
    assert_eq!((&found["matched"], &found["sample"]), (&json!(1), &json!(["a"])));
    let found = site.post_json("/v1/bulk", bulk(json!({"version": ["v9"]}))).await.expect(200);
    assert_eq!((&found["matched"], &found["sample"]), (&json!(1), &json!(["b"])));
    for other in ["statuses", "versions"].map(|name| json!({"kind": "listener", name: ["waiting"]})) {
        site.post_json("/v1/bulk", bulk(other)).await.problem(400, "json_invalid");
    }
    let one = bulk(json!({"kind": "listener", "status": "waiting"}));
    site.post_json("/v1/bulk", one).await.problem(400, "json_invalid");
    assert_eq!(site.get("/v1/runs?statuses=waiting").await.status, 400);
}

/// A run that is pinned to a version without a worker reports it.
#[tokio::test]
async fn a_pending_run_shows_why_it_is_pending() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    assert_eq!(site.show("a").await["blocked_on"], json!([]));
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "b", "version": "v9"})).await.expect(201);
    let pinned = site.show("b").await;
    let blocker = &pinned["blocked_on"][0];
    assert_eq!((&pinned["status"], &blocker["why"], &blocker["task"]), (&json!("pending"), &json!("no_worker"), &json!(null)));
}
