//! Two workers that want one agent, each at its own server, on one PostgreSQL database.

use std::net::SocketAddr;

use onward::agent::{Agent, AgentOutcome, Provider};
use onward::{Onward, RunHandle};
use onward_core::{Namespace, Status};
use onward_llm_scripted::ScriptedModel;
use onward_testkit::Cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::{Site, eventually};

const AGENTS: u64 = 10;

async fn post(address: SocketAddr, path: &str, body: &Value) -> (String, Value) {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

/// Returns the only worker of a server by its own id. The server's id for it adds namespace and connection.
async fn worker_of(site: &Site) -> String {
    let workers = async || site.runtime().list_workers(&Namespace::default()).pop();
    let worker = eventually("the worker is there", workers).await;
    worker.id.as_str().split(':').nth(2).unwrap().to_owned()
}

/// Returns the text of an entry: user messages are texts, answers of models have blocks.
fn text(entry: &onward::Entry) -> String {
    let content: Value = entry.content.read().unwrap();
    content.as_str().or(content["blocks"][0]["text"].as_str()).unwrap().to_owned()
}

/// Returns the entries, once the agent waits after so many of them.
async fn until_entries(site: &Site, client: &Onward, id: &str, words: usize) -> Vec<String> {
    let run: RunHandle<AgentOutcome> = client.run(id).unwrap();
    eventually(&format!("{id} has {words} entries"), async || {
        site.head(id).await.filter(|head| head.status == Status::Waiting)?;
        let entries = run.entries().limit(100).await.ok()?.entries;
        (entries.len() >= words).then(|| entries.iter().map(|entry| format!("{}: {}", entry.role, text(entry))).collect())
    })
    .await
}

/// Scenario 51: each agent waits, and is not in memory, when two workers resume it with the same message at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_that_resume_a_waiting_agent_one_does_and_it_answers_once() {
    let database = Cluster::shared().database(None).unwrap();
    let model = ScriptedModel::start().await.unwrap();
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let sites = [Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await];
    let host = async |site: &Site| {
        let agent = Agent::new("helper").model("m").converse();
        Onward::connect(site.url()).model("m", &provider).register(agent).start().await.unwrap()
    };
    let client = Onward::connect(sites[0].url()).start().await.unwrap();
    let ids: Vec<String> = (0..AGENTS).map(|number| format!("agent-{number}")).collect();
    let first = host(&sites[0]).await;
    for id in &ids {
        client.start::<AgentOutcome, _>("helper", "hello").id(id).await.unwrap();
        until_entries(&sites[0], &client, id, 2).await;
    }
    first.shutdown().await;
    eventually("no worker is left", async || sites[0].runtime().list_workers(&Namespace::default()).is_empty().then_some(()))
        .await;
    let mut hosts = Vec::new();
    for site in &sites {
        hosts.push((host(site).await, worker_of(site).await));
    }
    let signal = json!({"name": "message", "payload": "and now?", "signal_id": "m"});
    for id in &ids {
        let resume = |number: usize| {
            let (address, path) = (sites[number].address, format!("/v1/agents/{id}/resume"));
            let body = json!({"worker": hosts[number].1, "signal": signal});
            async move { post(address, &path, &body).await }
        };
        let (one, two) = tokio::join!(resume(0), resume(1));
        assert_eq!((one.0.as_str(), two.0.as_str()), ("200", "200"), "{one:?} {two:?}");
        // Both may succeed, one after the other: the first has let the waiting run go when the second takes it.
        let successes = [&one.1, &two.1].map(|answer| answer["success"].as_bool().unwrap());
        assert!(successes.contains(&true), "{one:?} {two:?}");
    }
    for id in &ids {
        let expected = ["user: hello", "assistant: You said: hello", "user: and now?", "assistant: You said: and now?"];
        assert_eq!(until_entries(&sites[1], &client, id, 4).await, expected);
    }
    assert_eq!(model.request_count(), 2 * AGENTS, "one call of the model for each turn");
}
