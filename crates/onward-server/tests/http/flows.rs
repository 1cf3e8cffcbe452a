//! Definitions of flows: stored, listed and deleted; refused with all problems.

use onward_core::Name;
use onward_server::{Bounds, Scope};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::keys::Locked;
use crate::site::Site;

const GREET: &str = "\
flow: greet
inputs:
  whom: { type: string }
steps:
  - name: hello
    task: mail
    with: \"Hello {{ inputs.whom }}\"
";

fn put(document: &str) -> Value {
    json!({"document": document})
}

#[tokio::test]
async fn a_stored_flow_has_versions_and_new_runs_are_pinned_to_the_current_one() {
    let site = Site::open().await;
    let first = site.put_json("/v1/flows/greet", put(GREET)).await.expect(201);
    assert_eq!((&first["is_changed"], &first["flow"]["is_current"]), (&json!(true), &json!(true)));
    let second = site.put_json("/v1/flows/greet", put(&GREET.replace("Hello", "Good morning"))).await.expect(201);
    let [old, new] = [&first, &second].map(|reply| reply["flow"]["version"].as_str().unwrap().to_owned());
    assert_ne!(old, new);
    site.put_json("/v1/flows/greet", put(&GREET.replace("Hello", "Good morning"))).await.expect(200);

    site.post_json("/v1/runs", json!({"kind": "greet", "id": "g", "input": {"whom": "Ada"}})).await.expect(201);
    assert_eq!(site.show("g").await["version"], new);
    let shown = site.get("/v1/flows/greet").await.expect(200);
    let versions: Vec<_> = shown["flows"].as_array().unwrap().iter().map(|flow| (&flow["version"], &flow["open_runs"])).collect();
    assert_eq!(versions, [(&json!(new), &json!(1)), (&json!(old), &json!(0))]);
    assert_eq!(shown["flows"][1]["document"], GREET);
    let listed = site.get("/v1/flows").await.expect(200);
    assert_eq!((listed["flows"].as_array().unwrap().len(), &listed["flows"][0]["document"]), (1, &Value::Null));

    site.send("DELETE", "/v1/flows/greet", "", "").await.problem(409, "flow_in_use");
    site.send("DELETE", "/v1/flows/greet?force=true", "", "").await.expect(204);
    site.get("/v1/flows/greet").await.problem(404, "flow_not_found");
}

/// DF1, KI1.
#[tokio::test]
async fn a_document_with_errors_is_refused_with_all_of_them_and_an_input_that_does_not_fit_starts_nothing() {
    let site = Site::open().await;
    let broken = GREET.replace("task:", "tsak:").replace("inputs.whom", "inputs.who");
    let refused = site.put_json("/v1/flows/greet", put(&broken)).await;
    let problem = refused.json();
    refused.problem(400, "flow_invalid");
    let violations = problem["violations"].as_array().unwrap();
    assert!(violations.len() >= 2, "{problem}");
    assert!(violations.iter().any(|one| one["message"].as_str().unwrap().contains("line 6")), "{problem}");
    site.put_json("/v1/flows/other", put(GREET)).await.problem(400, "flow_invalid");
    site.put_json("/v1/flows/greet", json!({"document": GREET, "expected": "0123"})).await.problem(409, "flow_changed");
    site.put_json("/v1/flows/greet", json!({"document": GREET, "dry_run": true})).await.expect(200);
    site.get("/v1/flows/greet").await.problem(404, "flow_not_found");

    site.put_json("/v1/flows/greet", json!({"document": GREET, "expected": ""})).await.expect(201);
    let before = site.records();
    for input in [json!({}), json!({"whom": 1}), json!({"whom": "Ada", "who": "Ada"})] {
        site.post_json("/v1/runs", json!({"kind": "greet", "input": input})).await.problem(400, "input_invalid");
    }
    assert_eq!(site.records(), before);
}

/// DF2: of several requests that expect the same version in the same moment, one succeeds.
#[tokio::test]
async fn one_of_several_editors_that_expect_the_same_version_stores_its_document() {
    let site = Site::open().await;
    let mut expected = String::new();
    for round in 0..5 {
        let edit = |editor: usize| {
            let document = GREET.replace("Hello", &format!("Hello {round} {editor}"));
            site.put_json("/v1/flows/greet", json!({"document": document, "expected": expected}))
        };
        let replies: [_; 4] = tokio::join!(edit(0), edit(1), edit(2), edit(3)).into();
        let (stored, refused): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 201);
        assert_eq!((stored.len(), refused.len()), (1, 3), "round {round}");
        let version = stored[0].json()["flow"]["version"].as_str().unwrap().to_owned();
        for reply in refused {
            let detail = reply.problem(409, "flow_changed");
            assert!(detail.contains(&version), "{detail}");
        }
        let listed = site.get("/v1/flows/greet").await.expect(200);
        assert_eq!(listed["flows"].as_array().unwrap().len(), round + 1, "nothing of the others is stored");
        expected = version;
    }
}

/// S4: a definition is code for workers, so it needs the scope of a worker, and a key that is bound to kinds defines only these.
#[tokio::test]
async fn flows_are_stored_by_keys_that_may_work_and_deleted_by_admins() {
    let (locked, root) = Locked::open().await;
    let body = put(GREET).to_string();
    let all = Scope::ALL.into_iter().filter(|scope| ![Scope::Work, Scope::Admin].contains(scope)).collect::<Vec<_>>();
    let caller = locked.make("caller", "default", &all);
    let worker = locked.make("worker", "default", &[Scope::Work]);
    let kinds = Some([Name::new("greet").unwrap()].into());
    let bound = locked.make_bound(Bounds { kinds, ..Bounds::default() });
    locked.until(&bound, 200).await;
    locked.send(&caller, "PUT", "/v1/flows/greet", &body).await.problem(403, "not_allowed");
    locked.send(&worker, "PUT", "/v1/flows/greet", &body).await.expect(201);
    locked.send(&worker, "GET", "/v1/flows/greet", "").await.problem(403, "not_allowed");
    locked.send(&caller, "GET", "/v1/flows/greet", "").await.expect(200);
    locked.send(&bound, "PUT", "/v1/flows/greet", &body).await.expect(200);
    locked.send(&bound, "PUT", "/v1/flows/other", &body.replace("flow: greet", "flow: other")).await.problem(403, "not_allowed");
    for key in [&caller, &worker, &bound] {
        locked.send(key, "DELETE", "/v1/flows/greet?force=true", "").await.problem(403, "not_allowed");
    }
    let elsewhere = locked.send_in("elsewhere", &root, "GET", "/v1/flows", "").await.expect(200);
    assert_eq!(elsewhere["flows"], json!([]));
    locked.send(&root, "DELETE", "/v1/flows/greet", "").await.expect(204);
}

/// Pictures have styles of their own and nothing that acts.
#[tokio::test]
async fn a_flow_and_its_runs_are_drawn() {
    let site = Site::open().await;
    site.put_json("/v1/flows/greet", put(GREET)).await.expect(201);
    let picture = site.get("/v1/flows/greet/graph").await;
    assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/svg+xml")));
    assert!(picture.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert!(
        picture.body.starts_with("<svg") && picture.body.contains("hello") && !picture.body.contains("<script"),
        "{}",
        picture.body
    );
    assert!(site.get("/v1/flows/greet/graph?format=mermaid").await.body.starts_with("flowchart"));
    site.get("/v1/flows/greet/graph?format=png").await.problem(400, "query_invalid");
    site.get("/v1/flows/none/graph").await.problem(404, "flow_not_found");
    site.post_json("/v1/runs", json!({"kind": "greet", "id": "g", "input": {"whom": "Ada"}})).await.expect(201);
    assert!(site.get("/v1/runs/g/graph").await.body.starts_with("<svg"));
    site.start("order", "o", json!("a teapot")).await;
    site.get("/v1/runs/o/graph").await.problem(404, "flow_not_found");
}

/// S4: an import stores definitions only for a key that may define flows, otherwise nothing is written.
#[tokio::test]
async fn an_import_that_brings_a_definition_needs_the_scope_of_a_worker_beside_admin() {
    let from = Site::open().await;
    from.put_json("/v1/flows/greet", put(GREET)).await.expect(201);
    from.post_json("/v1/runs", json!({"kind": "greet", "id": "g", "input": {"whom": "Ada"}})).await.expect(201);
    let lines = from.get("/v1/runs/g/export").await.body;
    assert_eq!(from.get("/v1/export").await.body, lines);
    assert_eq!(lines.matches("\"document\":").count(), 1, "{lines}");

    let (locked, root) = Locked::open().await;
    let admin = locked.make("admin", "default", &[Scope::Admin]);
    let both = locked.make("both", "default", &[Scope::Admin, Scope::Work]);
    let worker = locked.make("worker", "default", &[Scope::Work, Scope::Read]);
    let bound = locked.make_bound(Bounds { kinds: Some([Name::new("greet").unwrap()].into()), ..Bounds::default() });
    locked.until(&worker, 200).await;
    let import = async |key: &ApiKey, text: &str| {
        let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/x-ndjson\r\n", key.reveal());
        locked.site.send("POST", "/v1/import", &headers, text).await
    };
    for (key, scope) in [(&admin, "the scope `work`"), (&worker, "the scope `admin`"), (&bound, "the scope `admin`")] {
        let refused = import(key, &lines).await;
        assert!(refused.body.contains(scope), "{}", refused.body);
        refused.problem(403, "not_allowed");
    }
    let evil = import(&both, &lines.replace("Hello", "Evil")).await;
    assert!(evil.json()["violations"][0]["message"].as_str().unwrap().contains("has version"), "{}", evil.body);
    evil.problem(400, "flow_invalid");
    let undefined: String = lines.lines().filter(|line| !line.contains("\"document\"")).map(|line| format!("{line}\n")).collect();
    import(&both, &undefined).await.problem(422, "import_invalid");
    locked.send(&root, "GET", "/v1/flows/greet", "").await.problem(404, "flow_not_found");
    locked.send(&root, "GET", "/v1/runs/g", "").await.problem(404, "run_not_found");

    let done = import(&both, &lines).await.expect(200);
    assert_eq!((&done["created"], &done["flows"][0]["flow"]), (&json!(["g"]), &json!("greet")));
    let shown = locked.send(&root, "GET", "/v1/flows/greet", "").await.expect(200);
    assert_eq!((&shown["flows"][0]["is_current"], &shown["flows"][0]["open_runs"]), (&json!(false), &json!(1)));
    // The definition is here now.
    let again = import(&admin, &lines).await.expect(200);
    assert_eq!((&again["unchanged"], &again["flows"]), (&json!(["g"]), &json!([])));
    assert_eq!(locked.send(&root, "GET", "/v1/runs/g/export", "").await.body, lines, "U2");
    assert!(locked.send(&root, "GET", "/v1/runs/g/graph", "").await.body.starts_with("<svg"));
}
