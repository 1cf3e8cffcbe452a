//! Schemas of kinds: checked before anything starts, and kept when their workers are gone.

use onward::Onward;
use onward::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::site::Site;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Order {
    id: String,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Line {
    cents: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Receipt {
    cents: u32,
}

async fn sum(_: Ctx, order: Order) -> Result<Receipt> {
    Ok(Receipt { cents: order.lines.iter().map(|line| line.cents).sum() })
}

async fn old(_: Ctx, _: Value) -> Result<u32> {
    Ok(1)
}

async fn mail(_: Value) -> Result<u32> {
    Ok(1)
}

async fn worker(site: &Site) -> Onward {
    Onward::connect(format!("http://{}", site.address))
        .workflow("sum", sum)
        .schema::<Order, Receipt>()
        .version("2")
        .previous("1", old)
        .input_schema(json!({"type": "integer"}))
        .task("mail", mail)
        .input_schema(json!({"required": ["to"]}))
        .start()
        .await
        .unwrap()
}

fn paths(problem: &Value) -> Vec<&str> {
    let mut paths: Vec<&str> =
        problem["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    paths
}

#[tokio::test]
async fn an_invalid_input_begins_nothing_and_every_violation_is_reported() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    let before = site.records();
    let wrong = json!({"id": 7, "lines": [{"cents": 1}, {"cents": -1}, {}]});
    let reply = site.post_json("/v1/runs", json!({"kind": "sum", "id": "r", "input": wrong})).await;
    let document = reply.json();
    assert_eq!(paths(&document), ["/id", "/lines/1/cents", "/lines/2"], "{document}");
    let detail = reply.problem(400, "input_invalid");
    assert!(detail.contains("/lines/1/cents") && !detail.contains("-1"), "{detail}");
    assert_eq!(document["violations"][0]["keyword"], "type");
    assert_eq!(site.records(), before);
    site.get("/v1/runs/r").await.problem(404, "run_not_found");

    // The crate over gRPC gets the same error.
    let refused = onward.start::<Receipt, _>("sum", &wrong).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), "input_invalid");
    assert_eq!(site.records(), before);

    let right = json!({"id": "a", "lines": [{"cents": 1}, {"cents": 2}]});
    site.post_json("/v1/runs", json!({"kind": "sum", "id": "r", "input": right})).await.expect(201);
    assert_eq!(site.get("/v1/runs/r/result?wait_ms=20000").await.expect(200)["outcome"]["output"]["json"], json!({"cents": 3}));
    onward.shutdown().await;
}

#[tokio::test]
async fn each_version_goes_by_its_own_schema_and_all_count_while_no_worker_is_there() {
    let site = Site::open().await;
    worker(&site).await.shutdown().await;
    let start = async |version: Value, input: Value| {
        site.post_json("/v1/runs", json!({"kind": "sum", "version": version, "input": input})).await.status
    };
    let order = json!({"id": "a", "lines": []});
    assert_eq!([start(Value::Null, order.clone()).await, start(json!("2"), order.clone()).await], [201, 201]);
    assert_eq!([start(Value::Null, json!(1)).await, start(json!("2"), json!(1)).await], [400, 400]);
    assert_eq!([start(json!("1"), json!(1)).await, start(json!("1"), order).await], [201, 400]);
    assert_eq!(start(json!("3"), json!("unknown versions have no schema")).await, 201);
}

#[tokio::test]
async fn kinds_are_listed_with_their_schemas_versions_and_workers() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    let shown = site.get("/v1/kinds/sum").await.expect(200);
    let versions = shown["kinds"][0]["versions"].as_array().unwrap();
    let of = |field: &str| versions.iter().map(|version| version[field].clone()).collect::<Vec<_>>();
    assert_eq!((of("version"), of("workers")), (vec![json!(null), json!("1"), json!("2")], vec![json!(1), json!(1), json!(1)]));
    assert_eq!(versions[1]["input_schema"], json!({"type": "integer"}));
    assert_eq!(versions[2]["input_schema"]["properties"]["id"]["type"], "string");
    assert_eq!(versions[0]["output_schema"]["properties"]["cents"]["type"], "integer");
    assert!(versions[0]["registered_at"].is_string() && versions[1]["output_schema"].is_null());
    let listed = site.get("/v1/kinds").await.expect(200);
    let names: Vec<(&str, &str)> = listed["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| (kind["kind"].as_str().unwrap(), kind["type"].as_str().unwrap()))
        .collect();
    assert_eq!(names, [("sum", "workflow"), ("mail", "task")]);
    site.get("/v1/kinds/nope").await.problem(404, "kind_not_found");
    onward.shutdown().await;
    let shown = site.get("/v1/kinds/sum").await.expect(200);
    assert_eq!(shown["kinds"][0]["versions"][0]["workers"], 0);
    let elsewhere = site.send("GET", "/v1/kinds", "Onward-Namespace: other\r\n", "").await.expect(200);
    assert_eq!(elsewhere, json!({"kinds": []}));
}

/// KI2, and L18: a repeated start finds its run, whatever schemas were registered since.
#[tokio::test]
async fn the_newest_worker_decides_and_a_repeated_start_finds_its_run() {
    let site = Site::open().await;
    let url = format!("http://{}", site.address);
    let lenient = Onward::connect(&url).workflow("k", old).input_schema(json!({"type": "integer"})).start().await.unwrap();
    let body = json!({"kind": "k", "id": "r", "input": 4});
    site.post_json("/v1/runs", body.clone()).await.expect(201);
    let strict = Onward::connect(&url).workflow("k", old).input_schema(json!({"maximum": 3})).start().await.unwrap();
    site.post_json("/v1/runs", json!({"kind": "k", "input": 4})).await.problem(400, "input_invalid");
    site.post_json("/v1/runs", body).await.expect(200);
    site.post_json("/v1/runs", json!({"kind": "k", "id": "r", "input": 5})).await.problem(409, "run_exists");
    let silent = Onward::connect(&url).workflow("k", old).start().await.unwrap();
    site.post_json("/v1/runs", json!({"kind": "k", "input": "anything"})).await.expect(201);
    for onward in [lenient, strict, silent] {
        onward.shutdown().await;
    }
}

/// KI3: a malicious worker is refused or bounded, and others are served meanwhile.
#[tokio::test]
async fn a_hostile_schema_does_not_hold_up_the_server() {
    let site = Site::open().await;
    let url = format!("http://{}", site.address);
    let with = |schema: Value| Onward::connect(&url).workflow("k", old).input_schema(schema).start();
    for schema in [
        json!({"$ref": "http://169.254.169.254/latest"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"pattern": "(a)\\1"}),
        json!({"pattern": "^(((a{100}){100}){100}){100}$"}),
        json!({"type": "nonsense"}),
        json!({"description": "x".repeat(70_000)}),
    ] {
        let refused = with(schema.clone()).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), "schema_invalid", "{schema}: {refused}");
    }
    site.get("/v1/kinds/k").await.problem(404, "kind_not_found");

    let mut doubling = serde_json::Map::new();
    for n in 0..50 {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        doubling.insert(format!("a{n}"), json!({"anyOf": [next, next]}));
    }
    doubling.insert("a50".to_owned(), json!({"type": "string"}));
    let onward = with(json!({"$ref": "#/$defs/a0", "$defs": doubling})).await.unwrap();
    let before = site.records();
    let body = json!({"kind": "k", "input": 1});
    let hostile = || async { site.post_json("/v1/runs", body.clone()).await.problem(400, "input_invalid") };
    let (first, second, third, _) = tokio::join!(hostile(), hostile(), hostile(), site.get("/healthz"));
    for detail in [first, second, third] {
        assert!(detail.contains("too long"), "{detail}");
    }
    assert_eq!(site.records(), before);
    onward.shutdown().await;
}

#[tokio::test]
async fn defaults_of_a_kind_apply_to_tasks_that_start_later_and_are_shown_with_their_source() {
    let site = Site::open().await;
    let path = "/v1/kinds/mail/defaults";
    site.get(path).await.problem(404, "kind_not_found");
    let body = json!({"queue": "slow", "priority": 7, "retry": 3, "attempt_timeout_ms": 1000});
    let put = site.put_json(path, body).await.json();
    assert_eq!(put["defaults"][0]["source"], "live", "{put}");
    assert_eq!(put["defaults"][0]["defaults"]["retry"]["attempts_max"], 3, "{put}");
    assert_eq!(site.get(path).await.json(), put);
    site.post_json("/v1/tasks", json!({"kind": "mail", "id": "t"})).await;
    let task = site.get("/v1/tasks/t").await.json();
    assert_eq!((&task["queue"], &task["priority"]), (&json!("slow"), &json!(7)), "{task}");
    site.post_json("/v1/tasks", json!({"kind": "mail", "id": "own", "priority": 0})).await;
    assert_eq!(site.get("/v1/tasks/own").await.json()["priority"], 0, "a task's own option wins");

    let zero = site.put_json(path, json!({"attempt_timeout_ms": 0})).await;
    let detail = zero.problem(400, "defaults_invalid");
    assert!(detail.contains("`attempt_timeout_ms` is 0"), "{detail}");
    site.put_json(path, json!({"retries": 3})).await.problem(400, "json_invalid");
    assert_eq!(site.get(path).await.json(), put, "a refused request changes nothing");
    assert_eq!(site.put_json(path, json!({})).await.json(), json!({"defaults": []}));
}

#[tokio::test]
async fn a_workers_defaults_are_shown_and_those_of_another_sort_of_kind_are_refused() {
    let site = Site::open().await;
    let url = || format!("http://{}", site.address);
    let _worker = Onward::connect(url()).task("mail", mail).defaults(|mail| mail.retry(5)).start().await.unwrap();
    let shown = site.get("/v1/kinds/mail/defaults").await.json();
    assert_eq!(shown["defaults"][0]["source"], "registered", "{shown}");
    let wrong = Onward::connect(url()).workflow("sum", sum).defaults(|sum| sum.retry(5)).start().await;
    assert_eq!(wrong.map(drop).unwrap_err().code(), "defaults_invalid");
    let zero = Onward::connect(url()).task("mail", mail).defaults(|mail| mail.timeout(std::time::Duration::ZERO)).start().await;
    assert_eq!(zero.map(drop).unwrap_err().code(), "register_invalid");
}
