//! The client: executes one line of JSON and answers with another.

use onward::budget::Budget;
use onward::prelude::*;
use onward::{Error, RunQuery};
use serde::Serialize;
use serde_json::{Value, json};

/// A line: the number of the request, what to do, and with what.
pub async fn answer(onward: &Onward, line: &str) {
    let asked: Value = serde_json::from_str(line).expect("the runner writes JSON");
    let verb = asked["verb"].as_str().expect("a verb");
    let reply = match act(onward, verb, &asked["args"]).await {
        Ok(value) => json!({"id": asked["id"], "value": value}),
        Err(error) => {
            let failure = error.failure().map(|failure| {
                let details: Option<Value> = failure.details.as_ref().and_then(|details| details.read().ok());
                json!({"code": failure.code, "message": failure.message, "retryable": failure.retryable, "details": details})
            });
            json!({"id": asked["id"], "error": error.code(), "message": error.to_string(), "failure": failure})
        }
    };
    println!("{reply}");
}

async fn act(onward: &Onward, verb: &str, args: &Value) -> Result<Value, Error> {
    let text = |name: &str| args[name].as_str().unwrap_or_default().to_owned();
    let optional = |name: &str| args[name].as_str().map(str::to_owned);
    let run = match optional("run") {
        Some(run) => onward.run::<Value>(&run)?,
        None => onward.run::<Value>("none")?,
    };
    let done = match verb {
        "start" => {
            let start = onward.start::<Value, _>(text("kind").as_str(), &args["input"]).id(text("id"));
            let start = match &args["signal"] {
                Value::Null => start,
                signal => {
                    let name = signal["name"].as_str().unwrap_or_default();
                    start.signal(name, &signal["value"]).signal_id(signal["id"].as_str().unwrap_or_default())
                }
            };
            return Ok(start.await?.id().into());
        }
        "result" => return run.result().await,
        "signal" => run.signal(text("name").as_str(), &args["value"]).id(text("id")).await.map(drop),
        "message" => run.message(&args["value"]).id(text("id")).await.map(drop),
        "append" => run.append(&text("role"), &args["content"]).id(text("id")).await.map(drop),
        "query" => return run.query(&text("name"), &args["input"]).await,
        "update" => return run.update(&text("name"), &args["input"]).id(text("id")).await,
        "wait" => {
            let (key, wanted) = (text("key"), &args["value"]);
            let is_set = |state: &onward::Payload| state.read::<Value>().is_ok_and(|value| value == *wanted);
            run.until(|view| view.state.iter().any(|(name, value)| name.as_str() == key && is_set(value))).await.map(drop)
        }
        "until" => return Ok(document(&run.until(|view| view.pause.is_some()).await?)),
        "view" => return Ok(document(&run.view().await?)),
        "log" => return Ok(document(&run.log().await?)),
        "cancel" => run.cancel(&text("reason")).await.map(drop),
        "terminate" => run.terminate(&text("reason")).await.map(drop),
        "pause" => run.pause(&text("reason")).await.map(drop),
        "resume" => run.resume_with(Budget::default()).await.map(drop),
        "approve" | "disapprove" => {
            let (feedback, decided_by, decision_id) = (optional("feedback"), optional("decided_by"), text("id"));
            let decide = Decide { approved: verb == "approve", feedback, decided_by, answer: None, decision_id };
            onward.decide_approval(&text("approval"), decide).await.map(drop)
        }
        "resolve" => onward.resolve(&text("promise"), &args["value"], &text("id")).await.map(drop),
        "reject" => onward.reject(&text("promise"), Failure::retryable(text("message")), &text("id")).await.map(drop),
        "start_task" => {
            return onward.task::<Value, _>(text("kind").as_str(), &args["input"]).id(text("id")).await?.result().await;
        }
        "list_runs" => {
            let attributes = serde_json::from_value(args["attributes"].clone()).expect("the runner writes attributes");
            let kind = serde_json::from_value(args["kind"].clone()).expect("the runner writes a kind");
            let found = onward.list_runs(RunQuery { kind, attributes, ..RunQuery::default() }).await?;
            return Ok(document(&found));
        }
        _ => panic!("unknown verb {verb}"),
    };
    done.map(|()| Value::Null)
}

/// Returns a document of the API.
fn document(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("documents of the API are JSON")
}
