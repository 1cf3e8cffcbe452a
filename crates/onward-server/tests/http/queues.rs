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
        (json!({"depth_max": -1}), "json_invalid", "column"),
        (json!({"concurrency_max": 4_294_967_296_u64}), "json_invalid", "line 1"),
        (json!({"concurrency_max": 1.5}), "json_invalid", "line 1"),
        (json!({"paused": "yes"}), "json_invalid", "line 1"),
        (json!({"rate": {"starts_max": 1}}), "json_invalid", "period_ms"),
        (json!({"rate": {"starts_max": 1, "period_ms": 1000, "burst": 2}}), "json_invalid", "burst"),
        (json!({"rate": {"starts_max": 1, "period_ms": 2_678_400_001_u64}}), "queue_invalid", "31 days"),
        (json!({"weights": [{"key": "a", "weight": -3}]}), "json_invalid", "column"),
        (json!({"part": {"position": 0, "count": 3}}), "json_invalid", "part"),
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

#[tokio::test]
async fn a_task_takes_as_many_slots_as_its_queue_has() {
    let site = Site::open().await;
    site.put_json("/v1/queues/mail", json!({"concurrency_max": 3, "key_concurrency_max": 2})).await.json();
    let task = |id: &str, slots: Value| json!({"kind": "mail", "id": id, "queue": "mail", "slots": slots});
    let before = site.records();
    for (slots, code, named) in [
        (json!(4), "slots_invalid", "needs 4 slots, and `concurrency_max` of queue mail is 3"),
        (json!(0), "slots_invalid", "`slots` is 0"),
        (json!(-1), "json_invalid", "line 1"),
        (json!("2"), "json_invalid", "line 1"),
    ] {
        let detail = site.post_json("/v1/tasks", task("t", slots)).await.problem(400, code);
        assert!(detail.contains(named), "{detail}");
    }
    let mut keyed = task("t", json!(3));
    keyed["key"] = json!("a");
    let detail = site.post_json("/v1/tasks", keyed).await.problem(400, "slots_invalid");
    assert!(detail.contains("`key_concurrency_max` of queue mail is 2"), "{detail}");
    assert_eq!(site.records(), before, "nothing was written");
    assert_eq!(site.post_json("/v1/tasks", task("t", json!(3))).await.status, 201);
    let shown = site.get("/v1/tasks/t").await.json();
    assert_eq!((&shown["slots"], &shown["key"]), (&json!(3), &Value::Null));
}

#[tokio::test]
async fn a_queue_names_the_key_that_has_waited_longest() {
    let site = Site::open().await;
    site.put_json("/v1/queues/mail", json!({"key_concurrency_max": 1})).await.json();
    for (id, key) in [("1", "late"), ("2", "early")] {
        assert_eq!(site.post_json("/v1/tasks", json!({"kind": "mail", "id": id, "queue": "mail", "key": key})).await.status, 201);
    }
    let (list, shown) = (site.get("/v1/queues").await.json(), site.get("/v1/queues/mail").await.json());
    let oldest = &list["settings"][0]["oldest_key"];
    assert!(oldest["key"].is_string() && oldest["waiting"] == 1 && oldest == &shown["oldest_key"], "{list} {shown}");
    assert_eq!((&list["settings"][0]["throttled_keys"], &shown["throttled_keys"]), (&json!(0), &json!(0)));
    assert!(shown["oldest_age_ms"].is_u64(), "{shown}");
    assert_eq!(site.get("/v1/queues/none").await.json()["oldest_key"], Value::Null);
}

#[tokio::test]
async fn keys_are_shown_in_pages_and_searched_by_their_beginning() {
    let site = Site::open().await;
    site.put_json("/v1/queues/mail", json!({"key_concurrency_max": 1})).await.json();
    for key in ["a-1", "b-1", "a-2", "b-2", "a-3"] {
        let task = json!({"kind": "mail", "id": key, "queue": "mail", "key": key});
        assert_eq!(site.post_json("/v1/tasks", task).await.status, 201);
    }
    let page = async |query: &str| site.get(&format!("/v1/queues/mail?{query}")).await.json();
    let keys = |page: &Value| page["keys"].as_array().unwrap().iter().map(|of| of["key"].as_str().unwrap().to_owned()).collect();
    let (mut seen, mut cursor) = (Vec::<String>::new(), String::new());
    for size in [2, 2, 1] {
        let shown = page(&format!("limit=2{cursor}")).await;
        let of_page: Vec<String> = keys(&shown);
        assert_eq!(of_page.len(), size, "{shown}");
        seen.extend(of_page);
        cursor = shown["next"].as_str().map(|next| format!("&cursor={next}")).unwrap_or_default();
    }
    assert_eq!(cursor, "", "it was the last page");
    seen.sort();
    assert_eq!(seen, ["a-1", "a-2", "a-3", "b-1", "b-2"]);
    let found: Vec<String> = keys(&page("key=b-").await);
    assert_eq!(found.len(), 2, "{found:?}");
    let none: Vec<String> = keys(&page("key=c").await);
    assert_eq!(none, Vec::<String>::new());
    site.get("/v1/queues/mail?cursor=x").await.problem(400, "cursor_invalid");
    site.get("/v1/queues/mail?limit=0").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn a_task_that_its_queue_holds_back_says_so_wherever_it_is_shown() {
    let site = Site::open().await;
    for (id, queue) in [("1", Some("mail")), ("2", Some("mail")), ("3", None)] {
        let task = json!({"kind": "mail", "id": id, "queue": queue, "key": "a", "priority": 2});
        assert_eq!(site.post_json("/v1/tasks", task).await.status, 201);
    }
    let tasks = async |query: &str| site.get(&format!("/v1/tasks?{query}")).await.json()["tasks"].clone();
    let free = tasks("queue=mail").await;
    assert_eq!(
        (free.as_array().unwrap().len(), &free[0]["held_back_by"], &free[0]["priority"]),
        (2, &Value::Null, &json!(2)),
        "{free}"
    );
    assert_eq!(site.get("/v1/queues/mail").await.json()["held_back"], 0);
    site.put_json("/v1/queues/mail", json!({"paused": true})).await.json();
    let held = tasks("queue=mail&key=a&state=queued").await;
    assert_eq!(
        (&held[0]["held_back_by"], &held[1]["held_back_by"], &held[0]["key"]),
        (&json!("paused"), &json!("paused"), &json!("a"))
    );
    let other = tasks("queue=default").await;
    assert_eq!((other.as_array().unwrap().len(), &other[0]["run"], &other[0]["held_back_by"]), (1, &json!("3"), &Value::Null));
    assert_eq!(tasks("key=b").await, json!([]));
    let queue = site.get("/v1/queues/mail").await.json();
    assert_eq!((&queue["held_back_by"], &queue["held_back"], &queue["rate_used"]), (&json!("paused"), &json!(2), &Value::Null));
}

#[tokio::test]
async fn settings_replace_only_those_that_the_caller_has_seen() {
    let site = Site::open().await;
    let path = "/v1/queues/mail";
    site.put_json(path, json!({"concurrency_max": 2, "replaces": {}})).await.json();
    let change = json!({"concurrency_max": 3, "replaces": {"concurrency_max": 2}});
    let changed = site.put_json(path, change.clone()).await.json();
    assert_eq!(changed["settings"], json!({"concurrency_max": 3}));
    let records = site.get(path).await.json();
    site.put_json(path, change).await.problem(409, "queue_changed");
    site.put_json(path, json!({"paused": true, "replaces": {}})).await.problem(409, "queue_changed");
    assert_eq!(site.get(path).await.json(), records);
    site.put_json(path, json!({"paused": true})).await.json();
}
