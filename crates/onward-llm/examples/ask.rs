//! Calls a model once: `ask openai http://127.0.0.1:4010/v1 [KEY_VARIABLE] < request.json`.
//!
//! Prints the deltas as lines of JSON, then the reply, or the error with its code. Example of a request: `{"model": "m",
//! "messages": [{"role": "user", "blocks": [{"type": "text", "text": "hello"}]}]}`.

use std::io::Read;

use onward_llm::{ApiFormat, Http, Key, ModelRequest, Provider, ProviderSettings};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (api_format, url, variable) = match &arguments[..] {
        [api_format, url] => (api_format, url, None),
        [api_format, url, variable] => (api_format, url, Some(variable)),
        _ => return Err("usage: ask openai|anthropic BASE_URL [KEY_VARIABLE] < request.json".into()),
    };
    let api_format: ApiFormat = serde_json::from_value(json!(api_format))?;
    let key = variable.map(std::env::var).transpose()?.map(Key::new);
    let provider = Provider::new("ask", &ProviderSettings::new(api_format, url), key, &Http::new())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let request: ModelRequest = serde_json::from_str(&text)?;
    let outcome = provider.call(&request, &mut |delta| println!("{}", json!({ "delta": delta }))).await;
    match outcome {
        Ok(reply) => println!("{}", json!({ "reply": reply })),
        Err(error) => {
            let details = json!({"code": error.code(), "retryable": error.is_retryable(), "retry_after": error.retry_after()});
            println!("{}", json!({ "error": error, "means": details }));
        }
    }
    Ok(())
}
