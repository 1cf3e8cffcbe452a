//! A host that uses only HTTP and JSON, and works on one run per request.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::{LEASE, Site, key};

async fn post(site: &Site, path: &str, body: Value) -> (u16, Value) {
    let address = site.url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

async fn drive(site: &Site, run: &str, body: Value) -> Value {
    let (status, driven) = post(site, &format!("/v1/drive/{run}"), body).await;
    assert_eq!(status, 200, "{driven}");
    driven
}

/// Sends one frame and returns the reply.
async fn send_frame(site: &Site, worker: &Value, frame: Value) -> Value {
    let path = format!("/v1/workers/{}/frames?wait_ms=5000", worker.as_str().unwrap());
    let mut bring = json!([frame]);
    loop {
        let (status, answer) = post(site, &path, json!({"frames": bring})).await;
        assert_eq!(status, 200, "{answer}");
        let found = answer["frames"].as_array().unwrap().iter().find_map(|frame| frame.get("reply").cloned());
        if let Some(reply) = found {
            return reply["outcome"].clone();
        }
        bring = json!([]);
    }
}

fn run_of(driven: &Value) -> Value {
    driven["frames"].as_array().unwrap().iter().find_map(|frame| frame.get("run").cloned()).expect("the run comes along")
}

fn commit(run: &Value, events: Value, waits: bool) -> Value {
    let head = &run["head"];
    let n = head["next_commit"].as_u64().unwrap();
    json!({"commit": {"request": 1 + n, "commit": {
        "key": head["key"], "generation": 0, "epoch": head["epoch"], "n": n, "commit_id": 100 + n,
        "horizon": head["next_index"].as_u64().unwrap() - 1, "events": events, "waits": waits, "end_over_unread": false,
        "is_while_paused": false, "carries": {"signals": [], "cancel_reason": null},
    }}})
}

fn leave() -> Value {
    json!({"leave": {"request": 99}})
}

#[tokio::test]
async fn a_host_drives_a_run_from_its_start_to_its_end_in_three_requests_of_others() {
    let site = Site::new().await;
    site.start("r", "pay").await;
    let driven = drive(&site, "r", json!({})).await;
    assert_eq!((&driven["status"], &driven["delivered"]), (&json!("running"), &Value::Null));
    let (worker, run) = (&driven["worker"], run_of(&driven));
    assert_eq!(run["log"]["records"][0]["events"][0]["type"], "run_started");
    let events = json!([
        {"type": "approval_requested", "call_id": "0", "name": "ship", "title": "Ship?", "description": null, "show": null,
         "deciders": ["ada"], "deadline": null},
    ]);
    assert_eq!(send_frame(&site, worker, commit(&run, events, true)).await["committed"]["status"], "waiting");
    send_frame(&site, worker, leave()).await;

    // Nothing to do: the state of the run, and no worker.
    let driven = drive(&site, "r", json!({})).await;
    assert_eq!((&driven["status"], &driven["worker"]), (&json!("waiting"), &Value::Null));
    assert_eq!((&driven["awaiting"][0]["kind"], &driven["frames"]), (&json!("approval"), &json!([])));
    let approval = driven["awaiting"][0]["id"].clone();

    let decide = json!({"approval": {"id": approval, "approved": true, "decided_by": "ada", "decision_id": "d"}});
    let driven = drive(&site, "r", decide.clone()).await;
    assert_eq!(driven["delivered"]["repeated"], false);
    let (worker, run) = (&driven["worker"], run_of(&driven));
    let last = run["log"]["records"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["events"][0]["type"], &last["events"][0]["decided_by"]), (&json!("approval_decided"), &json!("ada")));
    let end = json!([{"type": "run_completed", "output": {"json": 7}}]);
    assert_eq!(send_frame(&site, worker, commit(&run, end, false)).await["committed"]["status"], "completed");
    send_frame(&site, worker, leave()).await;

    let driven = drive(&site, "r", decide).await;
    assert_eq!((&driven["status"], &driven["outcome"]["output"]["json"]), (&json!("completed"), &json!(7)));
    assert_eq!(driven["delivered"]["repeated"], true, "the same decision again is the same");
}

/// One of two hosts wins; the other gets an error, and its signal is not recorded.
#[tokio::test]
async fn a_run_that_a_host_drives_is_busy_until_the_host_lets_go_or_dies() {
    let site = Site::new().await;
    site.start("r", "pay").await;
    let signal = |id: &str| json!({"signal": {"name": "s", "payload": 1, "signal_id": id}});
    let ((first, one), (second, two)) =
        tokio::join!(post(&site, "/v1/drive/r", signal("a")), post(&site, "/v1/drive/r", signal("b")));
    let ((winner, loser), mut statuses) = (if first == 200 { (one, two) } else { (two, one) }, [first, second]);
    statuses.sort_unstable();
    assert_eq!((statuses, &loser["code"]), ([200, 409], &json!("run_busy")));
    let log = site.runtime.read_log(&key("r"), None, onward_core::Index(0), 10).await.unwrap();
    assert_eq!(log.len(), 2, "the loser's signal is not recorded: {log:?}");

    // The host dies: its lease expires, and its later frames are refused.
    site.pass(LEASE * 2).await;
    let path = format!("/v1/workers/{}/frames", winner["worker"].as_str().unwrap());
    let (status, outcome) = post(&site, &path, json!({"frames": []})).await;
    assert_eq!((status, outcome["frames"][0]["run_lost"]["run"]["id"].as_str()), (200, Some("r")), "{outcome}");
    let (status, problem) = post(&site, &path, json!({"frames": [commit(&run_of(&winner), json!([]), true)]})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_missing")));
    let again = drive(&site, "r", signal("a")).await;
    assert!(run_of(&again)["head"]["epoch"].as_u64() > run_of(&winner)["head"]["epoch"].as_u64());
    assert_eq!(again["delivered"]["repeated"], true);
}

#[tokio::test]
async fn a_run_that_cannot_be_driven_is_reported_and_nothing_is_written() {
    let site = Site::new().await;
    site.start("r", "pay").await;
    let code = async |run: &str, body: Value| post(&site, &format!("/v1/drive/{run}"), body).await.1["code"].clone();
    assert_eq!(code("nobody", json!({})).await, "run_not_found");
    assert_eq!(code("r", json!({"signal": {"name": ""}})).await, "name_invalid");
    assert_eq!(code("r", json!({"approval": {"id": "r~0~9", "approved": true, "decision_id": "d"}})).await, "wait_not_found");
    assert_eq!(
        code("r", json!({"approval": {"id": "other~0~9", "approved": true, "decision_id": "d"}})).await,
        "call_id_invalid"
    );
    assert_eq!(
        code("r", json!({"signal": {"name": "s"}, "approval": {"id": "r~0~9", "approved": true, "decision_id": "d"}})).await,
        "json_invalid"
    );
    assert_eq!(code("r", json!({"lease": 1})).await, "json_invalid");
    site.terminate("r").await;
    assert_eq!(code("r", json!({"signal": {"name": "s"}})).await, "run_closed");
    let log = site.runtime.read_log(&key("r"), None, onward_core::Index(0), 10).await.unwrap();
    assert_eq!(log.len(), 2);
}

/// One of two workers resumes the agent; the other gets a result, not an error.
#[tokio::test]
async fn of_two_resumes_of_an_agent_one_succeeds_and_the_other_is_no_error() {
    let site = Site::new().await;
    site.start("r", "chat").await;
    let path = "/v1/agents/r/resume";
    let ((first, one), (second, two)) = tokio::join!(post(&site, path, json!({})), post(&site, path, json!({})));
    assert_eq!((first, second), (200, 200), "{one} {two}");
    let (winner, loser) = if one["success"] == true { (one, two) } else { (two, one) };
    assert_eq!((&winner["success"], &winner["why"]), (&json!(true), &Value::Null));
    assert_eq!(
        (&loser["success"], &loser["why"], &loser["worker"], &loser["frames"]),
        (&json!(false), &json!("held"), &Value::Null, &json!([]))
    );
    let (worker, run) = (&winner["worker"], run_of(&winner));
    let awaits = json!([{"type": "signal_awaited", "call_id": "0", "name": "message", "deadline": null, "is_pattern": false}]);
    assert_eq!(send_frame(&site, worker, commit(&run, awaits, true)).await["committed"]["status"], "waiting");
    send_frame(&site, worker, leave()).await;

    // It waits: only a request with a signal that wakes it gets it.
    let (_, waits) = post(&site, path, json!({})).await;
    assert_eq!((&waits["success"], &waits["why"], &waits["status"]), (&json!(false), &json!("waiting"), &json!("waiting")));
    let (status, woken) = post(&site, path, json!({"signal": {"name": "message", "payload": "hi", "signal_id": "m"}})).await;
    assert_eq!((status, &woken["success"], &woken["delivered"]["woke"]), (200, &json!(true), &json!(true)));
    let (status, problem) = post(&site, path, json!({"worker": "nobody"})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_missing")));
    let (status, problem) = post(&site, "/v1/agents/nope/resume", json!({})).await;
    assert_eq!((status, &problem["code"]), (404, &json!("run_not_found")));
}
