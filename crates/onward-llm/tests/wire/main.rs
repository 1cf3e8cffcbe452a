//! Calls over real sockets: to the scripted model in both API formats, and to servers with other faults.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod faults;
mod network;

use std::time::Duration;

use onward_llm::{ApiFormat, CallError, Delta, Http, Key, Limits, ModelReply, ModelRequest, Provider, ProviderSettings};
use onward_llm_scripted::ScriptedModel;

const DIALECTS: [ApiFormat; 2] = [ApiFormat::OpenAi, ApiFormat::Anthropic];

const KEY: &str = "sk-very-secret";

fn provider(api_format: ApiFormat, url: &str) -> Provider {
    let base_url = if api_format == ApiFormat::OpenAi { format!("{url}/v1") } else { url.to_owned() };
    let settings = ProviderSettings::new(api_format, &base_url);
    Provider::new("p", &settings, Some(Key::new(KEY)), &Http::trusting([])).unwrap()
}

/// Returns a scripted model and a provider for it.
async fn scripted(api_format: ApiFormat) -> (ScriptedModel, Provider) {
    let model = ScriptedModel::start().await.unwrap();
    let provider = provider(api_format, &model.url());
    (model, provider)
}

async fn call(provider: &Provider, request: &ModelRequest) -> (Result<ModelReply, CallError>, Vec<Delta>) {
    let mut deltas = Vec::new();
    let outcome = provider.call(request, &mut |delta| deltas.push(delta)).await;
    (outcome, deltas)
}

/// Returns limits for a test that waits for one of them.
fn short(call_ms: u64, idle_ms: u64) -> Limits {
    let [call_timeout, idle_timeout] = [call_ms, idle_ms].map(Duration::from_millis);
    Limits { call_timeout, idle_timeout, ..Limits::default() }
}
