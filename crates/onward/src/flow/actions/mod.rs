//! The built-in actions: steps that flows have without a worker of their own.
//!
//! Owns what their arguments mean and what they return. Must never reach a host or a file that the operator has not allowed (FP3).

mod documents;
mod http;
mod http_hosts;

use std::sync::{Arc, Weak};

use onward_core::{Failure, Payload, Timestamp};
use onward_flow::document::Action;
use onward_store::sync::random_u64;
use onward_store::{Clock, SystemClock};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) use documents::Documents;
pub use documents::DocumentsError;
pub use http_hosts::HostError;
pub(crate) use http_hosts::HttpHosts;

use crate::Result;
use crate::agent::AgentCtx;
use crate::ctx::Attempt;
use crate::host::cell::{Deps, find_dep};
use crate::shell::ShellCode;

/// An action with its arguments, for all of its attempts.
pub(super) struct ActionCall {
    pub arguments: Value,
    pub action: Action,
    label: String,
    deps: Arc<Deps>,
    clock: Arc<dyn Clock>,
    /// The code of the run, which owns the step that has this call.
    code: Weak<ShellCode>,
}

impl ActionCall {
    pub fn new(ctx: &AgentCtx, code: Weak<ShellCode>, label: &str, action: Action, arguments: Value) -> ActionCall {
        let shared = &ctx.cell.shared;
        let clock = shared.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
        ActionCall { arguments, action, label: label.to_owned(), deps: shared.deps.clone(), clock, code }
    }

    /// Reads the arguments. Without `with`, an action has none.
    fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let arguments = if self.arguments.is_null() { json!({}) } else { self.arguments.clone() };
        serde_json::from_value(arguments).map_err(|error| invalid(format!("the arguments of the action: {error}")))
    }
}

/// Runs one attempt of an action.
pub(super) async fn run_action(call: Arc<ActionCall>, attempt: Attempt) -> Result<Value, onward_core::BoxError> {
    run(&call, &attempt).await.map_err(Into::into)
}

async fn run(call: &ActionCall, attempt: &Attempt) -> Result<Value> {
    match call.action {
        Action::Http => {
            let Some(hosts) = find_dep::<HttpHosts>(&call.deps) else { return Err(HttpHosts::none(&call.arguments)) };
            http::send(&hosts, call.read()?, &attempt.idempotency_key()).await
        }
        Action::Read => documents(call)?.read(call.read()?).await,
        Action::Write => documents(call)?.write(call.read()?).await,
        Action::Json => parse(&call.read::<Text>()?.text),
        Action::Fail => Err(fail(call.read()?)),
        Action::Print => print(call),
        Action::Now => Ok(now(call.clock.now())),
        Action::Random => random(call.read()?),
        Action::Uuid => Ok(uuid().into()),
    }
}

fn documents(call: &ActionCall) -> Result<Arc<Documents>> {
    find_dep::<Documents>(&call.deps).ok_or_else(Documents::none)
}

/// Returns the failure of arguments that an action does not accept; it is not attempted again.
fn invalid(message: impl Into<String>) -> Failure {
    Failure::fatal(message).with_code("invalid_arguments")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Failure::fatal(format!("the text is not JSON: {error}")).with_code("json_invalid"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    message: String,
    code: Option<String>,
    details: Option<Value>,
}

fn fail(fail: Fail) -> Failure {
    let failure = Failure::fatal(fail.message);
    let failure = fail.code.into_iter().fold(failure, Failure::with_code);
    let details = fail.details.and_then(|details| Payload::json(&details).ok());
    details.into_iter().fold(failure, Failure::with_details)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Print {
    message: Value,
}

/// Sends a message to the readers of the run.
fn print(call: &ActionCall) -> Result<Value> {
    let Print { message } = call.read()?;
    let shown = json!({"step": call.label, "message": message});
    if let Some(code) = call.code.upgrade() {
        // A run that is closed has no readers.
        code.emit(|ctx| ctx.emission("print", &shown)).unwrap_or(Ok(()))?;
    }
    Ok(Value::Null)
}

fn now(now: Timestamp) -> Value {
    now.to_string().into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RandomArguments {
    min: Option<i64>,
    max: Option<i64>,
}

/// Returns a number from 0 up to 1, or an integer from `min` to `max`, both included.
fn random(RandomArguments { min, max }: RandomArguments) -> Result<Value> {
    match (min, max) {
        (None, None) => Ok(json!((random_u64() >> 11) as f64 / (1u64 << 53) as f64)),
        (min, Some(max)) if min.unwrap_or(0) <= max => {
            let min = min.unwrap_or(0);
            let count = u64::try_from(i128::from(max) - i128::from(min) + 1).unwrap_or(u64::MAX);
            // The high half of the product is evenly distributed, up to one part in 2^64 / count.
            let offset = (u128::from(random_u64()) * u128::from(count)) >> 64;
            let number = i128::from(min) + i128::try_from(offset).unwrap_or(0);
            Ok(json!(i64::try_from(number).unwrap_or(max)))
        }
        _ => Err(invalid("`random` takes no arguments, or `max` that is not below `min`")),
    }
}

/// Returns a random version 4 UUID.
fn uuid() -> String {
    let (high, low) = (random_u64(), random_u64());
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    let hex = format!("{high:016x}{low:016x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests;
