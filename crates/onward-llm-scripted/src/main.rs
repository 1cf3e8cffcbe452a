//! `scripted-model [PORT]`: serves until it is stopped. The first line of its output is its address, as JSON.

#![forbid(unsafe_code)]

use onward_llm_scripted::ScriptedModel;
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "4010".to_owned());
    let Ok(port) = port.parse::<u16>() else {
        eprintln!("`{port}` is not a port\nusage: scripted-model [PORT]   serve a scripted model on 127.0.0.1 (default 4010)");
        std::process::exit(2);
    };
    let model = ScriptedModel::start_on(TcpListener::bind(("127.0.0.1", port)).await?)?;
    println!("{}", serde_json::json!({"url": model.url()}));
    std::future::pending().await
}
