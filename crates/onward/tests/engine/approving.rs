//! A decision about a tool call is bound to the text of the arguments and to the definition of the tool (S8, S15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use onward::agent::{Agent, AgentCtx, AgentOutcome, McpServerSettings, McpTransport, Tool, ToolCall, Tools};
use onward::prelude::*;
use onward::{Decide, Failure, RunHandle, Status};
use onward_core::view::AwaitedKind;
use onward_core::{Event, Index, Namespace, RunId, RunKey};
use onward_llm_scripted::{ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::in_memory;
use crate::models::with_model;
use crate::site::{Site, awaited, count, paused, until_status};

#[derive(Deserialize, JsonSchema)]
struct Payment {
    cents: u64,
}

/// Creates a tool that needs an approval and counts its executions.
fn pay(description: &str, paid: &Arc<AtomicU32>) -> Tool {
    let paid = paid.clone();
    let pay = move |Payment { cents }| {
        paid.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("{cents} are paid")) }
    };
    Tool::new("pay", description, pay).keyed().needs_approval()
}

async fn approve(onward: &Onward, id: &str, decision_id: &str) {
    let decide = Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: decision_id.into() };
    onward.decide_approval(id, decide).await.unwrap();
}

/// Returns the result of the first tool call as the model gets it.
async fn tool_result(run: &RunHandle<AgentOutcome>) -> String {
    let entries = run.entries().await.unwrap().entries;
    let tool = entries.iter().find(|entry| entry.role.as_str() == "tool").unwrap();
    String::from_utf8(tool.content.data().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_with_a_name_twice_are_refused_before_anyone_is_asked() {
    let (model, paid) = (ScriptedModel::start().await.unwrap(), Arc::new(AtomicU32::new(0)));
    let agent = Agent::new("payer").model("m").tool(pay("Pays", &paid));
    let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
    let twice = [r#"{"cents":1,"cents":9000}"#, r#"{"cents":1,"\u0063ents":9000}"#, r#"{"cents":1,"more":[{"a":1,"a":2}]}"#];
    for (number, arguments) in twice.into_iter().enumerate() {
        model.next(ScriptedReply::call("pay", arguments));
        model.next(ScriptedReply::text("I see."));
        let run: RunHandle<AgentOutcome> = onward.start("payer", "pay").id(format!("r{number}")).await.unwrap();
        assert_eq!(run.result().await.unwrap().text, "I see.");
        assert!(tool_result(&run).await.contains("tool_arguments_invalid"), "{arguments}");
        let mut is_requested = false;
        for generation in 0..=run.view().await.unwrap().head.generation {
            let log = run.log_of(generation).await.unwrap();
            is_requested |= log.iter().flat_map(|record| &record.events).any(|event| event.name() == "approval_requested");
        }
        assert!(!is_requested, "{arguments}: a person is asked about ambiguous arguments");
    }
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    onward.shutdown().await;
}

/// An agent without a model: it makes one call.
async fn payer(ctx: AgentCtx, arguments: String) -> Result<String> {
    let call = ToolCall { id: "c".to_owned(), name: "pay".to_owned(), arguments };
    Ok(ctx.tool(&call).await?.text())
}

/// The tool is redefined between the question and the decision: the call is asked anew, and the run pauses because of the
/// decision that is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_about_another_definition_of_the_tool_is_asked_anew() {
    let (site, paid) = (Site::memory(), Arc::new(AtomicU32::new(0)));
    let builder = site.builder().await.agent("payer", payer);
    let before = builder.tools(Tools::new().with(pay("Pays into escrow", &paid))).start().await.unwrap();
    let run: RunHandle<String> = before.start("payer", r#"{"cents":1}"#).id("r").await.unwrap();
    let question = awaited(&run, AwaitedKind::Approval).await;
    before.shutdown().await;
    let client = site.builder().await.start().await.unwrap();
    approve(&client, &question, "first").await;
    client.shutdown().await;
    let builder = site.builder().await.agent("payer", payer);
    let after = builder.tools(Tools::new().with(pay("Pays at once", &paid))).start().await.unwrap();
    let run: RunHandle<String> = after.run("r").unwrap();
    let again = awaited(&run, AwaitedKind::Approval).await;
    assert_ne!(again, question);
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    approve(&after, &again, "second").await;
    // The first decision has no effect, and nothing is executed before an operator has looked at it (SG3).
    let why = paused(&run).await.message;
    assert!(why.contains("the code abandoned") && why.contains("tool.pay"), "{why}");
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "1 are paid");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    after.shutdown().await;
}

/// The same definition after a restart is the same question.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_counts_after_a_restart_with_the_same_definition() {
    let (site, paid) = (Site::memory(), Arc::new(AtomicU32::new(0)));
    let engine = async || site.builder().await.agent("payer", payer).tools(Tools::new().with(pay("Pays", &paid))).start().await;
    let before = engine().await.unwrap();
    let run: RunHandle<String> = before.start("payer", r#"{"cents":1}"#).id("r").await.unwrap();
    let question = awaited(&run, AwaitedKind::Approval).await;
    before.shutdown().await;
    let after = engine().await.unwrap();
    approve(&after, &question, "first").await;
    let run: RunHandle<String> = after.run("r").unwrap();
    assert_eq!(run.result().await.unwrap(), "1 are paid");
    assert_eq!(count(&run, "approval_requested").await, 1);
    after.shutdown().await;
}

/// S10: a store of encrypted payloads does not learn the hash of the arguments, which could be compared with guesses.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_decision_is_bound_to_is_hidden_from_a_store_of_sealed_payloads() {
    let paid = Arc::new(AtomicU32::new(0));
    let mut kept = Vec::new();
    for site in [Site::memory(), Site::memory(), Site::sealed()] {
        let builder = site.builder().await.agent("payer", payer).tools(Tools::new().with(pay("Pays", &paid)));
        let onward = builder.start().await.unwrap();
        let run: RunHandle<String> = onward.start("payer", r#"{"cents":1}"#).id("r").await.unwrap();
        let question = awaited(&run, AwaitedKind::Approval).await;
        let key = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
        let log = site.runtime(&onward).read_log(&key, None, Index(0), 100).await.unwrap();
        kept.extend(log.into_iter().flat_map(|record| record.events).find_map(|event| match event {
            Event::ApprovalRequested(event) => event.bound_to,
            _ => None,
        }));
        approve(&onward, &question, "d").await;
        assert_eq!(run.result().await.unwrap(), "1 are paid");
        onward.shutdown().await;
    }
    assert_eq!(kept.len(), 3);
    assert_eq!(kept[0], kept[1]);
    assert_ne!(kept[0], kept[2]);
}

/// The call is approved where the agent runs, and reaches a worker that has another tool of this name.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_another_definition_does_not_carry_out_an_approved_call() {
    let (site, paid) = (Site::server(), Arc::new(AtomicU32::new(0)));
    let tools = |description: &str| Tools::new().with(pay(description, &paid));
    let agents = site.builder().await.agent("payer", payer).dep(tools("Pays into escrow")).start().await.unwrap();
    for (description, outcome) in [("Pays at once", "(tool_changed)"), ("Pays into escrow", "1 are paid")] {
        let worker = site.builder().await.tools(tools(description)).start().await.unwrap();
        let run: RunHandle<String> = agents.start("payer", r#"{"cents":1}"#).await.unwrap();
        approve(&agents, &awaited(&run, AwaitedKind::Approval).await, "d").await;
        let result = run.result().await.unwrap();
        assert!(result.ends_with(outcome), "{result}");
        worker.shutdown().await;
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    agents.shutdown().await;
}

/// An MCP server with one tool. Its description contains the generation; sessions of other generations have expired.
struct ToolServer {
    generation: AtomicUsize,
    calls: AtomicUsize,
}

impl ToolServer {
    async fn start() -> (Arc<ToolServer>, String) {
        let server = Arc::new(ToolServer { generation: AtomicUsize::new(1), calls: AtomicUsize::new(0) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = serving.clone();
                tokio::spawn(async move { server.answer(stream).await });
            }
        });
        (server, url)
    }

    async fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let (head, body) = request(&mut stream).await?;
        let generation = self.generation.load(Ordering::SeqCst);
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let session = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
        let (status, answer) = if session.is_some_and(|session| session != generation.to_string()) {
            ("404 Not Found", None)
        } else if message["id"].is_null() {
            ("202 Accepted", None)
        } else {
            ("200 OK", Some(self.result(&message, generation)))
        };
        let body = answer.map(|answer| answer.to_string()).unwrap_or_default();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nMcp-Session-Id: {generation}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).await.ok()
    }

    fn result(&self, message: &Value, generation: usize) -> Value {
        let id = &message["id"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let server = json!({ "name": "till", "version": "1" });
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": server })
            }
            "tools/list" => {
                let schema = json!({ "type": "object", "properties": { "cents": { "type": "integer" } } });
                json!({ "tools": [{ "name": "pay", "description": format!("Pays, {generation}"), "inputSchema": schema }] })
            }
            "tools/call" => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                json!({ "content": [{ "type": "text", "text": "paid" }] })
            }
            _ => return json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } }),
        };
        json!({ "jsonrpc": "2.0", "id": id, "result": result })
    }
}

/// Reads one request: its head, and as many bytes as its `Content-Length`.
async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            return Some((head, bytes.split_off(end + 4)));
        }
    }
}

/// The server changes the tool after the approval and before the call (MP1).
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_its_server_redefines_after_the_approval_is_not_called() {
    for (is_changed, outcome) in [(true, "tool_changed"), (false, "paid")] {
        let (model, (server, url)) = (ScriptedModel::start().await.unwrap(), ToolServer::start().await);
        let settings = McpServerSettings::new(McpTransport::http(&url));
        let tools = Tools::new().with_mcp(settings, |tool| Some(tool.needs_approval())).await.unwrap();
        let agent = Agent::new("payer").model("m").tools(&tools);
        let onward = with_model(in_memory(), &model).register(agent).start().await.unwrap();
        model.next(ScriptedReply::call("pay", r#"{"cents":1}"#));
        model.next(ScriptedReply::text("I see."));
        let run: RunHandle<AgentOutcome> = onward.start("payer", "pay").id("r").await.unwrap();
        let question = awaited(&run, AwaitedKind::Approval).await;
        server.generation.fetch_add(usize::from(is_changed), Ordering::SeqCst);
        approve(&onward, &question, "d").await;
        assert_eq!(run.result().await.unwrap().text, "I see.");
        let result = tool_result(&run).await;
        assert!(result.contains(outcome), "{result}");
        assert_eq!(server.calls.load(Ordering::SeqCst), usize::from(!is_changed));
        onward.shutdown().await;
    }
}

/// The worker dies while an approval is open, and the next worker has another schema of the tool. The run is `running` until the
/// lease of the dead worker ends; then a new approval is requested, and the first decision pauses the run with a report.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_another_schema_makes_void_is_requested_again_after_the_death_of_the_worker() {
    #[derive(Deserialize, JsonSchema)]
    struct PaymentIn {
        cents: u64,
        currency: Option<String>,
    }
    let (site, paid) = (Site::server(), Arc::new(AtomicU32::new(0)));
    site.lease.set(Duration::from_secs(30)).unwrap();
    let model = ScriptedModel::start().await.unwrap();
    let client = site.builder().await.start().await.unwrap();
    model.next(ScriptedReply::call("pay", r#"{"cents":1}"#));
    let agent = Agent::new("payer").model("m").tool(pay("Pays", &paid));
    let builder = with_model(site.builder().await, &model).register(agent);
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let before = process.spawn(async { builder.start().await.unwrap() }).await.unwrap();
    let run: RunHandle<AgentOutcome> = client.start("payer", "pay").id("r").await.unwrap();
    let question = awaited(&run, AwaitedKind::Approval).await;
    std::mem::forget(before); // it says nothing, like a process that is killed
    process.shutdown_background();
    approve(&client, &question, "first").await;
    until_status(&run, Status::Running).await;
    site.pass(&client, Duration::from_secs(31)).await;

    model.next(ScriptedReply::call("pay", r#"{"cents":1}"#));
    model.next(ScriptedReply::text("done"));
    let counter = paid.clone();
    let pay_in = move |PaymentIn { cents, currency }| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("{cents} {} are paid", currency.unwrap_or_default())) }
    };
    let agent = Agent::new("payer").model("m").tool(Tool::new("pay", "Pays", pay_in).keyed().needs_approval());
    let after = with_model(site.builder().await, &model).register(agent).start().await.unwrap();
    let again = awaited(&run, AwaitedKind::Approval).await;
    assert_ne!(again, question);
    approve(&client, &again, "second").await;
    let why = paused(&run).await.message;
    assert!(why.contains("the code abandoned approval `tool.pay`") && why.contains("onward run resume r"), "{why}");
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "done");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    after.shutdown().await;
}
