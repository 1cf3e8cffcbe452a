//! Schedules over HTTP: the requests of people, their errors with positions, and the keys that may send them.

use onward::Onward;
use onward::prelude::*;
use onward_core::Name;
use onward_core::budget::Budget;
use onward_server::{Bounds, Scope};
use serde_json::{Value, json};

use crate::ceilings::key;
use crate::keys::Locked;
use crate::site::Site;

fn minutely() -> Value {
    json!({"kind": "report", "input": {"n": 1}, "spec": {"every": [{"every_ms": 60_000}]}})
}

async fn report(_: Ctx, input: Value) -> Result<Value> {
    Ok(input)
}

async fn worker(site: &Site) -> Onward {
    Onward::connect(format!("http://{}", site.address)).workflow("report", report).start().await.unwrap()
}

#[tokio::test]
async fn a_schedule_is_created_triggered_paused_and_deleted() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    let created = site.put_json("/v1/schedules/nightly", minutely()).await.expect(201);
    assert_eq!((&created["kind"], created["next"].as_array().unwrap().len()), (&json!("report"), 5), "{created}");
    let mut other = minutely();
    other["options"] = json!({"overlap": "allow_all", "pause_on_failure": true});
    let replaced = site.put_json("/v1/schedules/nightly", other).await.expect(200);
    assert_eq!((&replaced["revision"], &replaced["options"]["overlap"]), (&json!(1), &json!("allow_all")));
    let triggered = site.post_json("/v1/schedules/nightly/trigger", json!({"request_id": "now"})).await.expect(202);
    assert_eq!(triggered, json!({"run": "nightly@now:now", "outcome": "started"}));
    let output: Value = onward.run("nightly@now:now").unwrap().result().await.unwrap();
    assert_eq!(output, json!({"n": 1}));
    let paused = site.post_json("/v1/schedules/nightly/pause", json!({"note": "holidays"})).await.expect(200);
    assert_eq!((&paused["paused"]["note"], &paused["next"]), (&json!("holidays"), &json!([])));
    site.post("/v1/schedules/nightly/resume", "").await.expect(200);
    let range = json!({"from": "2020-01-01T00:00:00Z", "until": "2020-01-01T00:03:00Z"});
    site.post_json("/v1/schedules/nightly/backfill", range).await.expect(202);
    for minute in 0..3 {
        let id = format!("nightly@2020-01-01T00:0{minute}:00Z");
        let path = format!("/v1/runs/{}", id.replace(':', "%3A"));
        while site.get(&path).await.status == 404 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let output: Value = onward.run(&id).unwrap().result().await.unwrap();
        assert_eq!(output, json!({"n": 1}));
    }
    let range =
        json!({"request_id": "far", "from": "2020-02-01T00:00:00Z", "until": "2020-02-02T00:00:00Z", "overlap": "buffer_all"});
    site.post_json("/v1/schedules/nightly/backfill", range).await.expect(202);
    let canceled = site.post_json("/v1/schedules/nightly/backfill/cancel", json!({"request_id": "far"})).await.expect(200);
    assert_eq!((&canceled["backfills"], &canceled["waiting"]), (&json!([]), &json!([])), "{canceled}");
    site.post("/v1/schedules/nightly/backfill/cancel", "").await.problem(400, "schedule_invalid");
    let range = json!({"from": "2020-01-01T00:00:00Z", "until": "2020-03-01T00:00:00Z"});
    site.post_json("/v1/schedules/nightly/backfill", range).await.problem(400, "schedule_invalid");
    let slots = site.get("/v1/schedules/nightly/slots?after=2026-01-01T00:00:00Z&limit=2").await.expect(200);
    assert_eq!(slots["slots"][1]["slot"], "2026-01-01T00:02:00.000Z", "{slots}");
    let listed = site.get("/v1/schedules").await.expect(200);
    assert_eq!((listed["schedules"].as_array().unwrap().len(), &listed["schedules"][0]["history"]), (1, &json!([])));
    site.send("DELETE", "/v1/schedules/nightly", "", "").await.expect(204);
    site.get("/v1/schedules/nightly").await.problem(404, "schedule_not_found");
    assert!(!site.get("/v1/versions").await.expect(200).to_string().contains("schedule:"));
    assert!(!site.get("/metrics").await.body.contains("schedule:"));
}

#[tokio::test]
async fn errors_name_the_part_and_the_character_and_nothing_is_stored() {
    let site = Site::open().await;
    let _onward = worker(&site).await;
    let with = |spec: Value| json!({"kind": "report", "spec": spec});
    for (body, part) in [
        (with(json!({"cron": ["0 9 * * MON-FRY"]})), "spec.cron[0], character"),
        (with(json!({"cron": ["0 0 31 2 *"]})), "spec.cron[0]"),
        (with(json!({"every": [{"every_ms": 10}]})), "spec.every[0]"),
        (with(json!({"cron": ["@daily"], "time_zone": "Mars/Base"})), "spec.time_zone"),
        (with(json!({})), "spec"),
        (json!({"kind": "report", "spec": {"cron": ["@daily"]}, "options": {"catch_up_ms": 1}}), "options.catch_up_ms"),
        (json!({"kind": "report", "template": true, "input": "{{ slot.nope }}", "spec": {"cron": ["@daily"]}}), "target.input"),
    ] {
        let reply = site.put_json("/v1/schedules/s", body).await;
        assert!(reply.json()["hint"].is_string(), "{}", reply.body);
        let detail = reply.problem(400, "schedule_invalid");
        assert!(detail.contains(part), "{detail}");
    }
    site.put_json("/v1/schedules/s", json!({"kind": "reprot", "spec": {"cron": ["@daily"]}}))
        .await
        .problem(404, "kind_not_found");
    site.put_json("/v1/schedules/s", json!({"kind": "report", "spec": {"corn": []}})).await.problem(400, "json_invalid");
    site.put_json("/v1/schedules/s", json!({"kind": "report", "requester": "root", "spec": {}}))
        .await
        .problem(400, "json_invalid");
    site.get("/v1/schedules/s").await.problem(404, "schedule_not_found");
    let preview = site.post_json("/v1/slots", json!({"spec": {"cron": ["0 9 * *"]}})).await;
    assert!(preview.problem(400, "schedule_invalid").contains("cron[0]"));
}

/// S4, CB1: what a key may not start itself, it does not start by a schedule either.
#[tokio::test]
async fn a_schedule_gives_a_key_nothing_that_it_may_not_do_itself() {
    let (locked, root) = Locked::open().await;
    let body = minutely().to_string();
    let put = async |key: &_, body: &str| locked.send(key, "PUT", "/v1/schedules/s", body).await;
    let mut refused = Vec::new();
    let others = [Scope::Read, Scope::Signal, Scope::Work, Scope::Approve];
    for (name, scopes) in [("starter", &[Scope::Start][..]), ("operator", &[Scope::Operate]), ("other", &others)] {
        refused.push(locked.make(name, "default", scopes));
    }
    let bound = locked.make_bound(Bounds { kinds: Some([Name::new("order").unwrap()].into()), ..Bounds::default() });
    locked.until(&bound, 200).await;
    for key in &refused {
        put(key, &body).await.problem(403, "not_allowed");
    }
    put(&root, &body).await.expect(201);
    put(&bound, &body).await.problem(403, "not_allowed");
    // Its own kind, but the schedule starts another one now.
    put(&bound, &body.replace("report", "order")).await.problem(403, "not_allowed");
    let own = locked.send(&bound, "PUT", "/v1/schedules/own", &body.replace("report", "order")).await.expect(201);
    assert_eq!(own["requester"], json!("bound"));
    locked.send(&bound, "POST", "/v1/schedules/own/trigger", "{}").await.expect(202);
    for route in ["pause", "resume", "trigger", "backfill/cancel"] {
        locked.send(&bound, "POST", &format!("/v1/schedules/s/{route}"), "{}").await.problem(403, "not_allowed");
    }
    let range = json!({"from": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z"}).to_string();
    locked.send(&bound, "POST", "/v1/schedules/s/backfill", &range).await.problem(403, "not_allowed");
    locked.send(&bound, "DELETE", "/v1/schedules/s", "").await.problem(403, "not_allowed");
    let shown = locked.send(&root, "GET", "/v1/schedules/s", "").await.expect(200);
    assert_eq!((&shown["kind"], &shown["requester"], &shown["totals"]["started"]), (&json!("report"), &json!("root"), &json!(0)));
}

/// CB1: neither by a definition, nor by a trigger of another key's schedule.
#[tokio::test]
async fn a_ceiling_of_a_key_holds_for_its_schedules() {
    let (locked, root) = Locked::open().await;
    let poor = key(&locked, &Scope::ALL, Some(Budget::default().tokens(100)));
    locked.until(&poor, 200).await;
    let mut rich = minutely();
    rich["budget"] = json!({"tokens": 500});
    locked.send(&poor, "PUT", "/v1/schedules/p", &rich.to_string()).await.problem(403, "budget_too_large");
    let own = locked.send(&poor, "PUT", "/v1/schedules/p", &minutely().to_string()).await.expect(201);
    assert_eq!(own["budget"]["tokens"], json!(100), "{own}");
    locked.send(&poor, "POST", "/v1/schedules/p/trigger", "{}").await.expect(202);
    locked.send(&root, "PUT", "/v1/schedules/r", &minutely().to_string()).await.expect(201);
    locked.send(&poor, "POST", "/v1/schedules/r/trigger", "{}").await.problem(403, "budget_too_large");
}

/// Schedules are not in exports: what is shown defines them again.
#[tokio::test]
async fn a_schedule_is_defined_again_elsewhere_from_what_is_shown() {
    let (from, to) = (Site::open().await, Site::open().await);
    let defined = json!({
        "kind": "report", "input": {"day": "{{ slot.date }}"}, "template": true, "version": "v1", "force": true,
        "attributes": {"team": "a", "size": 3}, "deadline_ms": 60_000, "budget": {"tokens": 100},
        "spec": {"cron": ["0 2 * * *"], "time_zone": "Europe/Berlin", "jitter_ms": 1_000},
        "options": {"overlap": "buffer_one", "catch_up_ms": 5_000, "pause_on_failure": true},
    });
    let shown = from.put_json("/v1/schedules/nightly", defined).await.expect(201);
    let fields = ["kind", "template", "version", "attributes", "deadline_ms", "budget", "spec", "options"];
    let mut again = json!({"input": shown["input"]["json"], "force": true});
    for field in fields {
        again[field] = shown[field].clone();
    }
    let moved = to.put_json("/v1/schedules/nightly", again).await.expect(201);
    for field in fields.into_iter().chain(["input"]) {
        assert_eq!(moved[field], shown[field], "{field}");
    }
}
