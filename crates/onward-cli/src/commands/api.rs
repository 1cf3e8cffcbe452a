//! `onward api`: requests to any route of the HTTP API, with the URL, key and namespace of every other command.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use onward::HttpAnswer;
use onward_core::ErrorCode;

use crate::args::{Global, read_argument};
use crate::connection::Endpoint;
use crate::error::{Exit, Mistake, exit_code, print_problem};
use crate::output::{json_line, print_stderr};

#[derive(Debug, Args)]
pub struct ApiArgs {
    /// HTTP method: GET, POST, PUT or DELETE
    method: String,
    /// Path with its query, like '/v1/runs?status=waiting'; /openapi.json lists all paths
    path: String,
    /// Request body: JSON, @FILE, or - for stdin
    #[arg(long, short, value_name = "JSON")]
    body: Option<String>,
}

/// Streams the response body to stdout. Reports a problem document like every other error.
pub async fn execute(args: ApiArgs, global: &Global) -> Result<()> {
    let http = Endpoint::http(global, "`onward api` needs a server")?;
    let body = args.body.as_deref().map(|body| read_argument(body, "the body")).transpose()?;
    let answer = http.request(&args.method.to_uppercase(), &args.path, body).await?;
    if answer.status >= 400 {
        return refused(answer, global).await;
    }
    pass_on(answer).await
}

/// Copies the body to stdout unchanged, without escaping, and adds a line end if it is missing.
async fn pass_on(mut answer: HttpAnswer) -> Result<()> {
    let mut last = b'\n';
    while let Some(chunk) = answer.chunk().await? {
        last = chunk.last().copied().unwrap_or(last);
        let mut out = std::io::stdout().lock();
        out.write_all(&chunk)?;
        out.flush()?;
    }
    if last != b'\n' {
        std::io::stdout().write_all(b"\n")?;
    }
    Ok(())
}

async fn refused(answer: HttpAnswer, global: &Global) -> Result<()> {
    let status = answer.status;
    let text = answer.text().await?;
    let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(code) = problem["code"].as_str() else {
        let message = format!("the server returned status {status} without a problem document; is it an Onward server?");
        return Err(Mistake::new(ErrorCode::ServerUnreachable, message, None).into());
    };
    if global.json {
        print_stderr(&json_line(&problem)?);
    } else {
        print_problem(code, problem["detail"].as_str().unwrap_or_default(), problem["hint"].as_str());
    }
    Err(Exit(exit_code(code)).into())
}
