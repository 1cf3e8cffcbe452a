//! `onward api`: requests to any route of the HTTP API, with the URL, key and namespace of every other command.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward::HttpAnswer;

use crate::args::Global;
use crate::connection::Endpoint;
use crate::error::{Mistake, exit_code, print_problem};
use crate::output::{json_line, say};

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
pub async fn execute(args: ApiArgs, global: &Global) -> Result<ExitCode> {
    let Endpoint::Server { url, key } = Endpoint::of(global)? else {
        let hint = "set `--server URL` or ONWARD_URL";
        return Err(Mistake::usage("usage", "`onward api` needs a server", hint).into());
    };
    let body = args.body.as_deref().map(read_body).transpose()?;
    let http = onward::connect_http(&url, &global.namespace()?, key.as_deref())?;
    let answer = http.ask(&args.method.to_uppercase(), &args.path, body).await?;
    if answer.status >= 400 {
        return refused(answer, global).await;
    }
    pass_on(answer).await?;
    Ok(ExitCode::SUCCESS)
}

fn read_body(text: &str) -> Result<String> {
    match text {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the body from stdin")?;
            Ok(text)
        }
        text => match text.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read the body from {path}")),
            None => Ok(text.to_owned()),
        },
    }
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

async fn refused(answer: HttpAnswer, global: &Global) -> Result<ExitCode> {
    let status = answer.status;
    let text = answer.text().await?;
    let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(code) = problem["code"].as_str() else {
        let message = format!("the server returned status {status} without a problem document; is it an Onward server?");
        return Err(Mistake { code: "server_unreachable", message, hint: None, exit: crate::error::UNREACHABLE }.into());
    };
    if global.json {
        say(&json_line(&problem)?);
    } else {
        print_problem(code, problem["detail"].as_str().unwrap_or_default(), problem["hint"].as_str());
    }
    Ok(ExitCode::from(exit_code(code)))
}
