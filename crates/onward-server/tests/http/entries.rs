//! The conversation of an agent over HTTP and gRPC.

use std::time::Duration;

use onward_core::{Name, Payload, RunId, RunKey, WorkerId};
use onward_runtime::{AppendEntry, EntryQuery};
use onward_wire::api;
use serde_json::{Value, json};

use crate::site::{DEADLINE, Site};

/// Reads the conversation until it has `depth` entries.
async fn until_depth(site: &Site, id: &str, depth: u64) -> Value {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let page = site.get(&format!("/v1/runs/{id}/entries")).await.expect(200);
        if page["depth"] == depth {
            return page;
        }
        assert!(tokio::time::Instant::now() < deadline, "{page}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn texts(page: &Value) -> Vec<&str> {
    page["entries"].as_array().unwrap().iter().map(|entry| entry["content"]["json"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_conversation_is_read_backwards_page_by_page() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    for (number, message) in ["one", "two", "three"].into_iter().enumerate() {
        site.signal("c", "message", json!(message)).await;
        until_depth(&site, "c", 3 + 2 * number as u64).await;
    }
    let last = site.get("/v1/runs/c/entries?limit=3").await.expect(200);
    assert_eq!(texts(&last), ["you said: two", "three", "you said: three"]);
    assert_eq!((&last["run"], &last["leaf"]), (&json!("c"), &last["entries"][2]["id"]));
    let entry = &last["entries"][1];
    assert_eq!((&entry["role"], &entry["parent"]), (&json!("user"), &last["entries"][0]["id"]));
    assert_eq!((&entry["is_abandoned"], &entry["idempotency_key"]), (&json!(false), &Value::Null));
    let before = last["before"].as_str().unwrap();
    let rest = site.get(&format!("/v1/runs/c/entries?before={before}")).await.expect(200);
    assert_eq!(texts(&rest), ["be brief", "one", "you said: one", "two"]);
    assert_eq!((&rest["before"], &rest["depth"], &rest["pending"]), (&Value::Null, &Value::Null, &json!([])));
    let leaf = rest["entries"][2]["id"].as_str().unwrap();
    let branch = site.get(&format!("/v1/runs/c/entries?leaf={leaf}&limit=2")).await.expect(200);
    assert_eq!((texts(&branch), &branch["leaf"]), (vec!["one", "you said: one"], &json!(leaf)));
}

#[tokio::test]
async fn what_is_no_entry_or_no_page_is_refused() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    site.get("/v1/runs/nope/entries").await.problem(404, "run_not_found");
    site.get("/v1/runs/c/entries?leaf=00112233445566778899aabbccddeeff").await.problem(404, "entry_not_found");
    site.get("/v1/runs/c/entries?before=what").await.problem(400, "cursor_invalid");
    for limit in ["0", "1001", "x"] {
        site.get(&format!("/v1/runs/c/entries?limit={limit}")).await.problem(400, "query_invalid");
    }
    site.get("/v1/runs/c/entries?after=1").await.problem(400, "query_invalid");
    site.start("callback", "w", Value::Null).await;
    let nothing = site.get("/v1/runs/w/entries").await.expect(200);
    assert_eq!((&nothing["entries"], &nothing["leaf"], &nothing["depth"]), (&json!([]), &Value::Null, &json!(0)));
}

#[tokio::test]
async fn grpc_reads_the_same_pages() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    site.signal("c", "message", json!("one")).await;
    let page = until_depth(&site, "c", 3).await;
    let client = onward::connect_client(&format!("http://{}", site.address), &Default::default(), None).unwrap();
    let key = RunKey::new(Default::default(), RunId::new("c").unwrap());
    let last = client
        .read_entries(api::EntriesRequest { run: key.clone(), query: EntryQuery { limit: 2, ..Default::default() } })
        .await
        .unwrap();
    let ids: Vec<String> = last.entries.iter().map(|entry| entry.id.to_string()).collect();
    assert_eq!(json!(ids), json!([page["entries"][1]["id"], page["entries"][2]["id"]]));
    assert_eq!((last.depth, last.leaf.map(|leaf| json!(leaf.to_string()))), (Some(3), Some(page["leaf"].clone())));
    let first = client
        .read_entries(api::EntriesRequest { run: key.clone(), query: EntryQuery { before: last.before, ..Default::default() } })
        .await
        .unwrap();
    assert_eq!((first.entries.len(), first.before), (1, None));
    let nobody = "00112233445566778899aabbccddeeff".parse().unwrap();
    let refused = client
        .read_entries(api::EntriesRequest { run: key, query: EntryQuery { leaf: Some(nobody), ..Default::default() } })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "entry_not_found");
}

#[tokio::test]
async fn an_entry_from_outside_waits_until_the_agent_takes_it_in() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    let path = "/v1/runs/c/entries";
    let body = json!({"role": "tool", "content": {"found": 7}, "idempotency_key": "k"});
    let first = site.post_json(path, body.clone()).await.expect(202);
    assert_eq!((&first["already_existed"], &first["entry"]), (&json!(false), &Value::Null));
    let again = site.post_json(path, body.clone()).await.expect(200);
    assert_eq!((&again["already_existed"], &again["index"]), (&json!(true), &first["index"]));
    for (role, content) in [("tool", json!({"found": 8})), ("user", json!({"found": 7}))] {
        let other = json!({"role": role, "content": content, "idempotency_key": "k"});
        site.post_json(path, other).await.problem(409, "entry_key_taken");
    }
    let page = site.get(path).await.expect(200);
    let pending = &page["pending"][0];
    assert_eq!(
        (&pending["role"], &pending["content"]["json"], &pending["idempotency_key"]),
        (&json!("tool"), &json!({"found": 7}), &json!("k"))
    );
    // Without a key, two appends are two entries.
    for _ in 0..2 {
        site.post_json(path, json!({"role": "user", "content": "plain"})).await.expect(202);
    }
    let woke = site.post_json("/v1/runs/c/messages", json!({"text": "go", "message_id": "m"})).await.expect(202);
    assert_eq!(woke["repeated"], false);
    let page = until_depth(&site, "c", 6).await;
    let roles: Vec<&str> = page["entries"].as_array().unwrap().iter().map(|entry| entry["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "tool", "user", "user", "user", "assistant"]);
    assert_eq!((&page["pending"], &page["entries"][1]["idempotency_key"]), (&json!([]), &json!("k")));
    let known = site.post_json(path, body).await.expect(200);
    assert_eq!(known["entry"], page["entries"][1]["id"], "by its key it is found in the conversation");
    let again = site.post_json("/v1/runs/c/messages", json!({"text": "go", "message_id": "m"})).await.expect(202);
    assert_eq!(again["repeated"], true);
}

#[tokio::test]
async fn a_conversation_goes_on_from_an_earlier_entry() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    for (number, message) in ["one", "two"].into_iter().enumerate() {
        site.signal("c", "message", json!(message)).await;
        until_depth(&site, "c", 3 + 2 * number as u64).await;
    }
    let before = site.get("/v1/runs/c/entries").await.expect(200);
    let path = "/v1/runs/c/branch";
    let body = json!({"from": before["entries"][2]["id"], "entry": {"role": "user", "content": "2"}, "idempotency_key": "b"});
    let first = site.post_json(path, body.clone()).await.expect(202);
    assert_eq!(first["repeated"], false);
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let page = site.get("/v1/runs/c/entries").await.expect(200);
        if texts(&page) == ["be brief", "one", "you said: one", "2"] {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{page}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let again = site.post_json(path, body).await.expect(202);
    assert_eq!((&again["repeated"], &again["index"]), (&json!(true), &first["index"]));
    let leaf = before["leaf"].as_str().unwrap();
    let left = site.get(&format!("/v1/runs/c/entries?leaf={leaf}")).await.expect(200);
    assert_eq!(texts(&left), texts(&before));
    let other = json!({"from": before["entries"][2]["id"], "idempotency_key": "b"});
    site.post_json(path, other).await.problem(409, "id_taken");
    site.post_json(path, json!({})).await.problem(409, "no_checkpoint");
    site.post_json(path, json!({"from": "00112233445566778899aabbccddeeff"})).await.problem(404, "entry_not_found");
    site.post_json(path, json!({"from": "what"})).await.problem(400, "json_invalid");
    // One at a time: the second would replace the first.
    site.post_json("/v1/runs/c/pause", json!({})).await.expect(202);
    let pending = json!({"from": leaf, "entry": {"role": "user", "content": "3"}, "idempotency_key": "p"});
    site.post_json(path, pending.clone()).await.expect(202);
    site.post_json(path, json!({"from": leaf})).await.problem(409, "branch_pending");
    assert_eq!(site.post_json(path, pending).await.expect(202)["repeated"], true);
    site.post_json(path, json!({"from": leaf, "entry": {"content": 1}})).await.problem(400, "json_invalid");
}

#[tokio::test]
async fn what_is_no_entry_and_no_message_is_refused_and_nothing_is_written() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    let before = site.records();
    let (entries, messages) = ("/v1/runs/c/entries", "/v1/runs/c/messages");
    site.post_json(entries, json!({"content": 1})).await.problem(400, "json_invalid");
    site.post_json(entries, json!({"role": "", "content": 1})).await.problem(400, "name_invalid");
    site.post_json(entries, json!({"role": "user", "content": 1, "idempotency_key": ""})).await.problem(400, "id_invalid");
    site.post_json(entries, json!({"role": "user", "key": 1})).await.problem(400, "json_invalid");
    site.post_json("/v1/runs/nope/entries", json!({"role": "user"})).await.problem(404, "run_not_found");
    site.post_json("/v1/runs/nope/entries", json!({"role": "user", "idempotency_key": "k"})).await.problem(404, "run_not_found");
    site.post_json(messages, json!({})).await.problem(400, "json_invalid");
    site.post_json(messages, json!({"text": "a", "content": "b"})).await.problem(400, "json_invalid");
    for nothing in [json!({"text": ""}), json!({"text": " "}), json!({"content": {"blocks": []}}), json!({"content": ""})] {
        let refused = site.post_json(messages, nothing).await;
        assert!(refused.body.contains("send a text or at least one block with content"), "{}", refused.body);
        refused.problem(400, "message_empty");
    }
    site.post_json(messages, json!({"text": "a", "signal": "onward.entry"})).await.problem(400, "id_reserved");
    site.post_json("/v1/runs/nope/messages", json!({"text": "a"})).await.problem(404, "run_not_found");
    let reserved = json!({"name": "onward.entry", "payload": 1});
    site.post_json("/v1/runs/c/signals", reserved.clone()).await.problem(400, "id_reserved");
    site.post_json("/v1/runs", json!({"kind": "chat", "id": "d", "signal": reserved})).await.problem(400, "id_reserved");
    assert_eq!(site.records(), before);
    // Any signal name and any content are accepted.
    site.post_json(messages, json!({"content": {"text": "x"}, "signal": "steer"})).await.expect(202);
    site.signal("c", "message", json!("one")).await;
    site.post_json(messages, json!({"text": "two", "message_id": "m"})).await.expect(202);
    site.post_json(messages, json!({"text": "three", "message_id": "m"})).await.problem(409, "id_taken");
}

#[tokio::test]
async fn grpc_appends_and_returns_the_same() {
    let site = Site::open().await;
    site.start("chat", "c", json!("be brief")).await;
    let client = onward::connect_client(&format!("http://{}", site.address), &Default::default(), None).unwrap();
    let key = RunKey::new(Default::default(), RunId::new("c").unwrap());
    let entry = |role: &str, text: &str| api::AppendEntryRequest {
        run: key.clone(),
        entry: AppendEntry {
            role: Name::new(role).unwrap(),
            content: Payload::json(text).unwrap(),
            idempotency_key: Some("k".to_owned()),
        },
        is_looked_up: false,
    };
    let first = client.append_entry(entry("user", "one")).await.unwrap();
    let again = client.append_entry(entry("user", "one")).await.unwrap();
    assert_eq!((first.already_existed, again.already_existed, again.index), (false, true, first.index));
    for other in [entry("user", "two"), entry("tool", "one")] {
        assert_eq!(client.append_entry(other).await.unwrap_err().code(), "entry_key_taken");
    }
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", site.address)).unwrap().connect().await.unwrap();
    let content = Payload::json("go").unwrap();
    let request = api::MessageRequest { run: key.clone(), content, message_id: Some("m".to_owned()), signal: None };
    let sent = call::<api::verb::SendMessage>(&channel, request.clone()).await.unwrap();
    assert!(!sent.repeated && call::<api::verb::SendMessage>(&channel, request).await.unwrap().repeated);
    let page = until_depth(&site, "c", 4).await;
    let known = client.append_entry(entry("user", "one")).await.unwrap();
    assert_eq!(known.entry.map(|entry| json!(entry.to_string())), Some(page["entries"][1]["id"].clone()));
    // A request with `is_looked_up` gets the same reply.
    let request = entry("user", "another");
    assert_eq!(call::<api::verb::AppendEntry>(&channel, request).await.unwrap_err().code(), tonic::Code::AlreadyExists);
}

/// Scenario 51.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_that_resume_an_agent_over_grpc_one_succeeds() {
    let site = Site::open().await;
    for worker in ["one", "two"] {
        let hello = json!({"frames": [{"hello": {
            "protocol": 1, "worker": worker, "task_kinds": [], "queues": [""], "runs_max": 50, "tasks": [], "sdk": "test", "kinds": [],
            "runs": [], "connection": 1,
        }}]});
        site.post_json(&format!("/v1/workers/{worker}/frames"), hello).await.expect(200);
    }
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", site.address)).unwrap().connect().await.unwrap();
    let resume = |run: &str, worker: &str| {
        let run = RunKey::new(Default::default(), RunId::new(run).unwrap());
        let (request, channel) =
            (api::ResumeAgentRequest { run, worker: WorkerId::new(worker).unwrap(), signal: None }, channel.clone());
        tokio::spawn(async move { call::<api::verb::ResumeAgent>(&channel, request).await })
    };
    for number in 0..20 {
        let id = format!("agent-{number}");
        site.post_json("/v1/runs", json!({"kind": "somebody else's", "id": id})).await.expect(201);
        let (one, two) = (resume(&id, "one"), resume(&id, "two"));
        let (one, two) = (one.await.unwrap().unwrap(), two.await.unwrap().unwrap());
        let loser = if one.success { &two } else { &one };
        assert_eq!((one.success != two.success, loser.why.as_deref()), (true, Some("held")), "{id}");
    }
    let nobody = resume("agent-0", "nobody").await.unwrap().unwrap_err();
    assert_eq!(nobody.code(), tonic::Code::FailedPrecondition, "{nobody}");
}

/// Calls a method like any program that has the `.proto` file.
pub async fn call<M: api::Verb>(channel: &tonic::transport::Channel, request: M::Request) -> Result<M::Reply, tonic::Status>
where
    M::Request: Send + Sync + 'static,
    M::Reply: Send + Sync + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let codec = onward_wire::grpc::Wire::<M::Request, M::Reply>::default();
    let path = axum::http::uri::PathAndQuery::try_from(format!("/onward.v1.Runs/{}", M::NAME)).unwrap();
    grpc.unary(tonic::Request::new(request), path, codec).await.map(tonic::Response::into_inner)
}
