//! AG-UI in front of the ready-made loop. Its own client, with approvals and with an agent that is written by hand, is in `tests/ag-ui`.

use onward::Onward;
use onward::agent::{Agent, Provider, Tool};
use onward::prelude::*;
use onward_llm_scripted::{Answer, ScriptedModel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::{DEADLINE, Site};

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

/// A front end with its messages.
struct FrontEnd {
    site: Site,
    messages: Vec<Value>,
}

impl FrontEnd {
    /// Says something, and returns the events of the turn.
    async fn say(&mut self, text: &str) -> Vec<Value> {
        let number = self.messages.len();
        self.messages.push(json!({ "id": format!("u{number}"), "role": "user", "content": text }));
        let body = json!({
            "threadId": "t", "runId": format!("r{number}"), "messages": self.messages,
            "tools": [], "context": [], "state": {}, "forwardedProps": {},
        });
        let events = tokio::time::timeout(DEADLINE, self.post(&body.to_string())).await.expect("the turn ends");
        let snapshot = events.iter().rev().find(|event| event["type"] == "MESSAGES_SNAPSHOT");
        if let Some(messages) = snapshot.and_then(|event| event["messages"].as_array()) {
            self.messages.clone_from(messages);
        }
        events
    }

    async fn post(&self, body: &str) -> Vec<Value> {
        let address = self.site.address;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /v1/agents/helper/ag-ui HTTP/1.0\r\nHost: {address}\r\nAccept: text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        let (mut answer, mut piece) = (Vec::new(), vec![0; 4_096]);
        loop {
            let count = stream.read(&mut piece).await.unwrap();
            answer.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&answer);
            let events =
                text.lines().filter_map(|line| line.strip_prefix("data: ")).map_while(|data| serde_json::from_str(data).ok());
            let events: Vec<Value> = events.collect();
            let is_over = events.last().is_some_and(|event| event["type"] == "RUN_FINISHED" || event["type"] == "RUN_ERROR");
            if is_over || count == 0 {
                assert!(is_over, "the turn has no end: {text}");
                return events;
            }
        }
    }
}

/// The text that was streamed.
fn text(events: &[Value]) -> String {
    let pieces = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    pieces.map(|event| event["delta"].as_str().unwrap()).collect()
}

fn has(events: &[Value], kind: &str) -> bool {
    events.iter().any(|event| event["type"] == kind)
}

/// The first turn starts the run with an object that has `messages`; the ready-made loop makes entries of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_end_takes_turns_with_the_ready_made_loop() {
    let (site, model) = (Site::memory().await, ScriptedModel::start().await.unwrap());
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let weather =
        Tool::new("weather", "Tells the weather", |City { city }| async move { Ok::<_, Failure>(format!("sunny in {city}")) });
    let agent = Agent::new("helper").model("m").tool(weather.pure()).converse();
    let _worker = Onward::connect(site.url()).model("m", &provider).register_agent(agent).start().await.unwrap();
    let client = Onward::connect(site.url()).start().await.unwrap();
    let mut front_end = FrontEnd { site, messages: Vec::new() };
    model.next(Answer::text("Good morning."));
    let events = front_end.say("hello").await;
    assert_eq!(text(&events), "Good morning.");
    assert_eq!(events.last().unwrap()["outcome"], json!({ "type": "success" }));
    model.next(Answer::call("weather", r#"{"city":"Ulm"}"#));
    let events = front_end.say("and the weather?").await;
    for kind in ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"] {
        assert!(has(&events, kind), "{kind} in {events:?}");
    }
    assert_eq!(text(&events), "weather says: sunny in Ulm");
    let entries = client.run::<Value>("helper:t").unwrap().entries().await.unwrap().entries;
    let roles: Vec<&str> = entries.iter().map(|entry| entry.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "tool", "assistant"], "nothing is said twice");
    assert_eq!(model.request_count(), 3);
}
