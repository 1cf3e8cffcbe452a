//! Every verb on runs: responses and errors.

use std::time::Duration;

use onward_core::Timestamp;
use serde_json::{Value, json};

use crate::site::Site;

#[tokio::test]
async fn a_run_is_started_once_per_id() {
    let site = Site::open().await;
    let body = json!({"kind": "order", "id": "order 1/a", "input": "a teapot"});
    let first = site.post_json("/v1/runs", body.clone()).await;
    assert_eq!(first.header("location"), Some("/v1/runs/order%201%2Fa"));
    let first = first.expect(201);
    assert_eq!((&first["created"], &first["kind"], &first["namespace"]), (&json!(true), &json!("order"), &json!("default")));
    let again = site.post_json("/v1/runs", body).await.expect(200);
    assert_eq!(
        (&again["created"], &again["id"], &again["created_at"]),
        (&json!(false), &json!("order 1/a"), &first["created_at"])
    );
    let other = json!({"kind": "order", "id": "order 1/a", "input": "a kettle"});
    site.post_json("/v1/runs", other).await.problem(409, "run_exists");
    assert_eq!(site.show("order%201%2Fa").await["input"]["json"], "a teapot");
}

#[tokio::test]
async fn a_run_without_an_id_gets_one_and_without_an_input_null() {
    let site = Site::open().await;
    let run = site.post_json("/v1/runs", json!({"kind": "callback"})).await.expect(201);
    let id = run["id"].as_str().unwrap();
    assert!(id.starts_with("run_") && id.len() == 30, "{id}");
    assert_eq!(site.show(id).await["input"], json!({"json": null}));
}

#[tokio::test]
async fn a_signal_comes_with_the_start_in_one_write() {
    let site = Site::open().await;
    let signal = json!({"name": "payment", "payload": 42, "signal_id": "pay-1"});
    let body = json!({"kind": "order", "id": "a", "input": "x", "signal": signal});
    let started = site.post_json("/v1/runs", body.clone()).await.expect(201);
    assert_eq!((&started["signal"]["index"], &started["signal"]["repeated"]), (&json!(1), &json!(false)));
    let again = site.post_json("/v1/runs", body).await.expect(200);
    assert_eq!((&again["signal"]["index"], &again["signal"]["repeated"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn a_run_is_canceled_at_its_deadline() {
    let site = Site::open().await;
    let body = json!({"kind": "listener", "id": "a", "deadline_ms": 7_200_000});
    let started = site.post_json("/v1/runs", body).await.expect(201);
    let (created, due) = (started["created_at"].as_str().unwrap(), started["deadline_at"].as_str().unwrap());
    assert_eq!(time(due).since(time(created)), Duration::from_secs(7_200));
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "b", "deadline_ms": -1})).await.problem(400, "json_invalid");
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "c", "deadline_ms": 1})).await.expect(201);
    site.until_status("c", "canceled").await;
    assert_eq!(site.show("c").await["cancel_reason"], "its deadline has passed");
}

/// DS1, DS4
#[tokio::test]
async fn a_run_with_a_start_time_waits_for_it_and_is_canceled_at_once() {
    let site = Site::open().await;
    let body = json!({"kind": "listener", "id": "a", "start_after_ms": 7_200_000, "deadline_ms": 1_000});
    let started = site.post_json("/v1/runs", body).await.expect(201);
    let (created, begins) = (started["created_at"].as_str().unwrap(), started["starts_at"].as_str().unwrap());
    assert_eq!(time(begins).since(time(created)), Duration::from_secs(7_200));
    assert_eq!(time(started["deadline_at"].as_str().unwrap()).since(time(begins)), Duration::from_secs(1));
    let view = site.show("a").await;
    assert_eq!((&view["status"], &view["awaiting"][0]["kind"]), (&json!("waiting"), &json!("start")), "{view}");
    assert_eq!(view["awaiting"][0]["deadline"], begins);
    assert!(view["doing"].as_str().unwrap().starts_with("Waits for its start time"), "{view}");
    site.post("/v1/runs/a/cancel", "").await.expect(202);
    let canceled = site.show("a").await;
    assert_eq!((&canceled["status"], &canceled["starts_at"]), (&json!("canceled"), &Value::Null));
    let at = |id: &str, at: &str| json!({"kind": "listener", "id": id, "start_at": at});
    site.post_json("/v1/runs", at("b", "10000-01-01T00:00:00Z")).await.problem(400, "start_time_invalid");
    let both = json!({"kind": "listener", "id": "b", "start_at": "2020-01-01T00:00:00Z", "start_after_ms": 1});
    site.post_json("/v1/runs", both).await.problem(400, "start_time_invalid");
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "b", "start_after_ms": -1})).await.problem(400, "json_invalid");
    site.get("/v1/runs/b").await.problem(404, "run_not_found");
    let past = site.post_json("/v1/runs", at("c", "2020-01-01T00:00:00Z")).await.expect(201);
    assert_eq!(past["starts_at"], Value::Null);
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "d", "start_after_ms": 1})).await.expect(201);
    while site.show("d").await["awaiting"][0]["kind"] != "signal" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

#[tokio::test]
async fn input_is_kept_as_it_was_written_but_for_line_ends() {
    let site = Site::open().await;
    let body = "{\"kind\": \"listener\", \"id\": \"a\", \"input\": {\"b\": 1,  \"a\": 9007199254740993,\r\n \"c\": \"\\n\"}}";
    site.post("/v1/runs", body).await.expect(201);
    let view = site.get("/v1/runs/a").await;
    assert!(view.body.contains("{\"json\":{\"b\": 1,  \"a\": 9007199254740993,   \"c\": \"\\n\"}}"), "{}", view.body);
}

#[tokio::test]
async fn a_run_is_shown_with_what_it_awaits_and_ends_with_an_outcome() {
    let site = Site::open().await;
    site.start("order", "a", json!("a teapot")).await;
    let view = site.show("a").await;
    assert_eq!((&view["awaiting"][0]["kind"], &view["awaiting"][0]["name"]), (&json!("signal"), &json!("payment")));
    assert_eq!((&view["state"]["stage"]["json"], &view["outcome"]), (&json!("charged"), &Value::Null));
    let open = site.get("/v1/runs/a/result?wait_ms=10").await.expect(202);
    assert_eq!(open, json!({"id": "a", "status": "waiting", "outcome": null}));
    let answer = site.signal("a", "payment", json!(5)).await;
    assert_eq!((&answer["run"], &answer["woke"], &answer["repeated"]), (&json!("a"), &json!(true), &json!(false)));
    site.until_status("a", "waiting").await;
    let decide = json!({"approved": false, "decided_by": "ada", "decision_id": "d"});
    site.post_json("/v1/approvals/a~0~3", decide).await.expect(200);
    let result = site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    assert_eq!((&result["status"], &result["outcome"]["failure"]["code"]), (&json!("failed"), &json!("rejected")));
    site.post_json("/v1/runs/a/signals", json!({"name": "x"})).await.problem(409, "run_closed");
}

#[tokio::test]
async fn a_signal_with_an_id_is_taken_once() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let body = json!({"name": "ping", "payload": 1, "signal_id": "s"});
    let first = site.post_json("/v1/runs/a/signals", body.clone()).await.expect(202);
    let again = site.post_json("/v1/runs/a/signals", body).await.expect(202);
    assert_eq!((&first["index"], &first["repeated"], &again["repeated"]), (&again["index"], &json!(false), &json!(true)));
}

#[tokio::test]
async fn runs_are_listed_in_pages_and_by_kind_status_and_time() {
    let site = Site::open().await;
    for number in 0..5 {
        site.start("listener", &format!("run-{number}"), json!(null)).await;
    }
    site.start("order", "order", json!("x")).await;
    site.post("/v1/runs/run-0/terminate", "").await.expect(202);
    let list = async |query: &str| {
        let page = site.get(&format!("/v1/runs{query}")).await.expect(200);
        let ids: Vec<String> =
            page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect();
        (ids, page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(list("").await.0, ["order", "run-4", "run-3", "run-2", "run-1", "run-0"]);
    assert_eq!(list("?kind=order").await.0, ["order"]);
    assert_eq!(list("?status=terminated").await.0, ["run-0"]);
    assert_eq!(list("?status=terminated&status=waiting&kind=listener").await.0.len(), 5);
    let (first, next) = list("?limit=4").await;
    let (second, last) = list(&format!("?limit=4&cursor={}", next.unwrap())).await;
    assert_eq!(([first, second].concat().len(), last), (6, None));
    let created = site.show("run-2").await["created_at"].as_str().unwrap().to_owned();
    let (from, until) = (list(&format!("?created_from={created}")).await.0, list(&format!("?created_until={created}")).await.0);
    assert!(from.contains(&"run-2".to_owned()) && from.len() + until.len() == 6, "{from:?} {until:?}");
    site.get("/v1/runs?cursor=nonsense").await.problem(400, "cursor_invalid");
    site.get("/v1/runs?status=done").await.problem(400, "query_invalid");
    site.get("/v1/runs?limit=0").await.problem(400, "query_invalid");
    site.get("/v1/runs?limit=1001").await.problem(400, "query_invalid");
    site.get("/v1/runs?created_from=yesterday").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let site = Site::open().await;
    let other = "Content-Type: application/json\r\nOnward-Namespace: other\r\n";
    let body = json!({"kind": "listener", "id": "a"}).to_string();
    assert_eq!(site.send("POST", "/v1/runs", other, &body).await.expect(201)["namespace"], "other");
    site.get("/v1/runs/a").await.problem(404, "run_not_found");
    assert_eq!(site.get("/v1/runs").await.expect(200)["runs"], json!([]));
    assert_eq!(site.send("GET", "/v1/runs/a", other, "").await.expect(200)["id"], "a");
    site.send("GET", "/v1/runs", "Onward-Namespace: \r\n", "").await.problem(400, "header_invalid");
    site.send("GET", "/v1/runs", "Onward-Namespace: a\r\nOnward-Namespace: b\r\n", "").await.problem(400, "header_invalid");
    let long = format!("Onward-Namespace: {}\r\n", "x".repeat(256));
    site.send("GET", "/v1/runs", &long, "").await.problem(400, "header_invalid");
}

#[tokio::test]
async fn a_run_is_paused_resumed_canceled_and_deleted() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    site.post("/v1/runs/a/resume", "").await.problem(409, "run_not_paused");
    site.post_json("/v1/runs/a/pause", json!({"reason": "lunch"})).await.expect(202);
    let view = site.show("a").await;
    assert_eq!((&view["status"], &view["pause"]["message"]), (&json!("paused"), &json!("lunch")));
    site.post("/v1/runs/a/resume", "{}").await.expect(202);
    site.send("DELETE", "/v1/runs/a", "", "").await.problem(409, "run_busy");
    site.post_json("/v1/runs/a/cancel", json!({"reason": "changed my mind"})).await.expect(202);
    let view = site.until_status("a", "canceled").await;
    assert_eq!(view["cancel_reason"], "changed my mind");
    site.post("/v1/runs/a/cancel", "").await.problem(409, "run_closed");
    site.send("DELETE", "/v1/runs/a?reason=old", "", "").await.expect(204);
    site.get("/v1/runs/a").await.problem(404, "run_not_found");
    site.send("DELETE", "/v1/runs/a", "", "").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_run_has_the_budget_that_it_is_given() {
    let site = Site::open().await;
    let budget = json!({"tokens": 10, "cost": "2.50"});
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "a", "budget": budget})).await.expect(201);
    assert_eq!(site.show("a").await["budget"], json!({"tokens": 10, "cost": "2.5"}));
    site.post("/v1/runs/a/pause", "").await.expect(202);
    site.post_json("/v1/runs/a/resume", json!({"budget": {"tokens": 20, "turns": 3}})).await.expect(202);
    assert_eq!(site.show("a").await["budget"], json!({"tokens": 20, "cost": "2.5", "turns": 3}));
    site.start("listener", "b", json!(null)).await;
    assert_eq!(site.show("b").await["budget"], json!(null));
    for wrong in
        [json!({"token": 1}), json!({"tokens": -1}), json!({"tokens": "1"}), json!({"cost": "$2"}), json!({"cost": 2}), json!(7)]
    {
        let start = site.post_json("/v1/runs", json!({"kind": "listener", "id": "c", "budget": wrong})).await;
        assert!(start.json()["hint"].is_string(), "{wrong}");
        start.problem(400, "json_invalid");
        site.post_json("/v1/runs/a/resume", json!({"budget": wrong})).await.problem(400, "json_invalid");
    }
    site.get("/v1/runs/c").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn an_update_is_answered_once_per_id() {
    let site = Site::open().await;
    site.start("dial", "a", json!(null)).await;
    let body = json!({"name": "double", "payload": 4, "update_id": "u"});
    let first = site.post_json("/v1/runs/a/updates", body.clone()).await.expect(200);
    assert_eq!(first, json!({"run": "a", "update_id": "u", "outcome": {"output": {"json": 8}}}));
    assert_eq!(site.post_json("/v1/runs/a/updates", body).await.expect(200), first);
    let refused = site.post_json("/v1/runs/a/updates", json!({"name": "double", "payload": 101})).await.expect(200);
    assert_eq!(refused["outcome"]["failure"]["code"], "too_much");
    let unheard = json!({"name": "unheard", "update_id": "v"});
    let open = site.post_json("/v1/runs/a/updates?wait_ms=0", unheard.clone()).await.expect(202);
    assert_eq!(open, json!({"run": "a", "update_id": "v", "outcome": null}));
    assert_eq!(site.show("a").await["awaiting"].as_array().unwrap().len(), 2, "the update is recorded");
    site.signal("a", "stop", json!(null)).await;
    site.until_status("a", "completed").await;
    site.post_json("/v1/runs/a/updates", unheard).await.problem(409, "update_unanswered");
}

#[tokio::test]
async fn a_log_is_read_in_pages_across_generations() {
    let site = Site::open().await;
    site.start("chapters", "a", json!(0)).await;
    for _ in 0..3 {
        site.signal("a", "next", json!(null)).await;
    }
    site.until_status("a", "completed").await;
    let (mut path, mut names) = ("/v1/runs/a/events?generation=0&limit=2".to_owned(), Vec::new());
    loop {
        let page = site.get(&path).await.expect(200);
        for event in page["events"].as_array().unwrap() {
            names.push(format!("{}:{} {}", event["generation"], event["index"], event["event"]["type"].as_str().unwrap()));
        }
        assert!(page["events"].as_array().unwrap().len() <= 2);
        if page["next"].is_null() {
            break;
        }
        path = format!("/v1/runs/a/events?limit=2&generation={}&from={}", page["next"]["generation"], page["next"]["from"]);
    }
    assert_eq!(names.first().unwrap(), "0:0 run_started");
    assert!(names.contains(&"1:0 run_started".to_owned()) && names.contains(&"2:0 run_started".to_owned()), "{names:?}");
    assert!(names.last().unwrap().ends_with("run_completed"), "{names:?}");
    assert_eq!(site.get("/v1/runs/a/events").await.expect(200)["events"][0]["generation"], 2, "the current one by default");
    site.get("/v1/runs/a/events?generation=9").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_page_of_an_open_log_names_where_to_read_on() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let page = site.get("/v1/runs/a/events?from=1").await.expect(200);
    assert_eq!((&page["events"][0]["event"]["type"], &page["events"][0]["commit"]), (&json!("signal_awaited"), &json!(0)));
    let next = page["next"]["from"].as_u64().unwrap();
    let empty = site.get(&format!("/v1/runs/a/events?from={next}")).await.expect(200);
    assert_eq!((&empty["events"], &empty["next"]), (&json!([]), &page["next"]));
}
