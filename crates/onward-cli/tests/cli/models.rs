//! Models and agents in the settings of a server: they run without code, and errors are reported at startup.

use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use onward::agent::AgentCtx;
use onward::prelude::*;
use onward::{Encryption, EncryptionKey};
use onward_llm_scripted::{Fault, Rule, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, onward, ran, with_code};

/// A scripted model with its own runtime, for synchronous tests.
pub struct Model {
    pub scripted: ScriptedModel,
    _runtime: tokio::runtime::Runtime,
}

pub fn model() -> Model {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let scripted = runtime.block_on(ScriptedModel::start()).unwrap();
    Model { scripted, _runtime: runtime }
}

/// Writes settings with the model `small` and `more`.
pub fn settings(folder: &Path, model: &Model, more: &str) -> std::path::PathBuf {
    let file = folder.join("onward.toml");
    let url = model.scripted.url();
    let text = format!(
        "[providers.local]\napi_format = \"openai\"\nbase_url = \"{url}/v1\"\nkey_env = \"LOCAL_KEY\"\n\
         [models.small]\nprovider = \"local\"\nprice = {{ input = \"1\", output = \"2\" }}\n{more}"
    );
    std::fs::write(&file, text).unwrap();
    file
}

pub fn dev_with(folder: &Path, file: &Path) -> Served {
    let mut command = onward();
    command.args(["dev", "--port", "0", "--config"]).arg(file).arg("--data").arg(folder.join("data"));
    serve(command.env("LOCAL_KEY", "sk-secret"))
}

impl Served {
    /// Waits until the run is closed or paused and returns it.
    fn result(&self, id: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, run) = self.request("GET", &format!("/v1/runs/{id}"), "");
            if run["status"] != "pending" && run["status"] != "running" && run["status"] != "waiting" {
                return run;
            }
            assert!(Instant::now() < deadline, "{run}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn an_agent_of_the_settings_works_without_any_code() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    model.scripted.rule(Rule::when_user_says("hello", ScriptedReply::text("Hi there.")));
    let file = settings(folder.path(), &model, "[agents.support]\nmodel = \"small\"\nsystem = \"Be brief.\"\n");
    let mut served = dev_with(folder.path(), &file);
    let started = served.request("POST", "/v1/runs", r#"{"kind": "support", "id": "s", "input": "hello"}"#);
    assert_eq!(started.0, 201, "{}", started.1);
    let run = served.result("s");
    assert_eq!((&run["status"], &run["outcome"]["output"]["json"]["text"]), (&json!("completed"), &json!("Hi there.")), "{run}");
    assert_ne!(run["spend"]["cost"], json!("0"), "{run}");
    let request = &model.scripted.requests()[0];
    assert_eq!(request.body["messages"][0]["content"], "Be brief.");
    assert_eq!(request.key.as_deref(), Some("sk-secret"));
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    assert!(!folder.path().join("data/onward.db-wal").exists(), "the worker has let the store go");
}

#[test]
fn a_worker_without_keys_calls_the_models_of_the_server() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    model.scripted.next(ScriptedReply::text("Seven."));
    let served = dev_with(folder.path(), &settings(folder.path(), &model, ""));
    async fn ask(ctx: AgentCtx, question: String) -> Result<String> {
        ctx.append("user", &question).await?;
        Ok(ctx.llm("small").await?.text())
    }
    let answer = with_code(Onward::connect(&*served.url).agent("own", ask), async |onward| {
        onward.start::<String, _>("own", "How many?").await.unwrap().result().await.unwrap()
    });
    assert_eq!(answer, "Seven.");
}

#[test]
fn a_model_of_the_server_reports_that_a_call_is_sealed_and_what_to_do() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let served = dev_with(folder.path(), &settings(folder.path(), &model, ""));
    async fn ask(ctx: AgentCtx, question: String) -> Result<String> {
        ctx.append("user", &question).await?;
        Ok(ctx.llm("small").await?.text())
    }
    let sealed = Encryption::new([EncryptionKey::new("2026-11", [7; 32]).unwrap()]).unwrap();
    let failure = with_code(Onward::connect(&*served.url).codec(sealed).agent("own", ask), async |onward| {
        let run = onward.start::<String, _>("own", "How many?").id("r").await.unwrap();
        let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
        failure
    });
    assert_eq!((failure.code.as_str(), model.scripted.request_count()), ("payload_unreadable", 0));
    assert!(
        failure.message.contains("encrypted with key `2026-11`") && failure.message.contains("onward run retry r"),
        "{failure:?}"
    );
}

#[test]
fn a_failed_call_is_logged_by_the_server_without_its_content() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    model.scripted.next(ScriptedReply::fault(Fault::RequestRefused));
    model.scripted.next(ScriptedReply::fault(Fault::ServerError));
    let more = "[server]\nattachments = \"pictures\"\n[agents.support]\nmodel = \"small\"\n";
    std::fs::create_dir(folder.path().join("pictures")).unwrap();
    let hash = "0917b13a9091915d54b6336f45909539cce452b3661b21f386418a257883b30a"; // of `SECRET`
    std::fs::write(folder.path().join("pictures").join(hash), "SECRET").unwrap();
    let mut served = dev_with(folder.path(), &settings(folder.path(), &model, more));
    let picture = json!({"type": "attachment", "media_type": "image/png", "source": {"hash": hash}});
    let content = json!({"blocks": [{"type": "text", "text": "a SECRET word"}, picture]});
    let start = json!({"kind": "support", "id": "s", "input": content});
    assert_eq!(served.request("POST", "/v1/runs", &start.to_string()).0, 201);
    assert_eq!(served.result("s")["status"], "completed");
    let body = model.scripted.requests()[0].body.to_string();
    assert!(body.contains("data:image/png;base64,U0VDUkVU"), "{body}");
    served.signal("-TERM");
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let warnings: Vec<Value> = stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warnings: Vec<&Value> = warnings.iter().filter(|line| line["level"] == "warn").collect();
    let of = |name: &str| warnings.iter().map(|line| line[name].as_str().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(of("code"), ["model_request_refused", "model_failed"], "{stderr}");
    assert_eq!(of("message")[1], "a model call failed: the provider failed");
    assert_eq!((of("model")[0], of("provider")[0], of("status")[1]), ("small", "local", "500"), "{stderr}");
    assert!(!stderr.contains("SECRET") && !stderr.contains("sk-secret"), "{stderr}");
}

/// The built-in workers of a directory's server die with it, so their leases end at its restart.
#[test]
fn a_call_whose_server_was_killed_goes_on_as_soon_as_the_server_is_back() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    model.scripted.next(ScriptedReply::text("I will never say this").with_fault(Fault::StallAfter { chunks: 1 }));
    let file = settings(folder.path(), &model, "[server]\nlease = \"1h\"\n[agents.support]\nmodel = \"small\"\n");
    let mut served = dev_with(folder.path(), &file);
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "support", "id": "s", "input": "hello"}"#).0, 201);
    let deadline = Instant::now() + PATIENCE;
    while model.scripted.request_count() == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    served.signal("-KILL");
    served.end();
    let served = dev_with(folder.path(), &file);
    let run = served.result("s");
    assert_eq!(run["outcome"]["output"]["json"]["text"], "You said: hello", "{run}");
    assert_eq!(run["spend"]["attempts"], json!(2), "{run}");
}

/// Attachments are sent inside the message or by the hash of a stored one.
#[test]
fn a_model_is_shown_what_a_message_has_attached() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let more = format!(
        "[server]\nattachments = \"{}\"\n[agents.a]\nmodel = \"small\"\nconverse = true\n",
        folder.path().join("kept").display()
    );
    let served = dev_with(folder.path(), &settings(folder.path(), &model, &more));
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "a", "id": "c", "input": "hello"}"#).0, 201);
    let wait_for_request = |count: u64| {
        let deadline = Instant::now() + PATIENCE;
        while model.scripted.request_count() < count {
            assert!(Instant::now() < deadline, "the model received {} requests", model.scripted.request_count());
            std::thread::sleep(Duration::from_millis(10));
        }
        model.scripted.requests().pop().unwrap().body["messages"].to_string()
    };
    wait_for_request(1);
    let picture = folder.path().join("picture.PNG");
    std::fs::write(&picture, [0xff; 3]).unwrap();
    let send_attachment =
        |file: &Path| ran(onward().args(["run", "message", "c", "look", "--server", &served.url, "--attach"]).arg(file));
    assert_eq!(send_attachment(&picture).code, 0);
    assert!(wait_for_request(2).contains("data:image/png;base64,////"));
    let odd = send_attachment(Path::new("picture.xyz"));
    assert!(odd.code == 2 && odd.err.contains("unknown file type: picture.xyz"), "{}", odd.err);
    let (status, kept) = served.request("POST", "/v1/attachments", "hello");
    assert_eq!(status, 201, "{kept}");
    let attached = json!({"type": "attachment", "media_type": "image/png", "source": {"hash": kept["hash"]}});
    let message = json!({"content": {"blocks": [{"type": "text", "text": "and this"}, attached]}});
    assert_eq!(served.request("POST", "/v1/runs/c/messages", &message.to_string()).0, 202);
    assert!(wait_for_request(3).contains("data:image/png;base64,aGVsbG8="));
}

/// A minimal MCP server over stdio.
pub const TOOLS: &str = r#"
    require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
        const { id, method, params } = JSON.parse(line);
        if (id === undefined) return;
        const schema = { type: 'object', properties: { word: { type: 'string' } }, required: ['word'] };
        const tool = (name, annotations) => ({ name, description: 'Shouts', inputSchema: schema, annotations });
        const result = {
            'initialize': { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 't', version: '1' } },
            'tools/list': { tools: [tool('shout'), tool('hide'), tool('look', { readOnlyHint: true }), tool('set', { idempotentHint: true })] },
            'tools/call': { content: [{ type: 'text', text: String(params?.arguments?.word).toUpperCase() }] },
        }[method];
        console.log(JSON.stringify(result ? { jsonrpc: '2.0', id, result } : { jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } }));
    });
"#;

#[test]
fn an_agent_has_the_tools_of_a_program_that_the_settings_name() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    std::fs::write(folder.path().join("tools.js"), format!("console.error('I am here');\n{TOOLS}")).unwrap();
    let more = "[mcp.loud]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\ntools = [\"shout\"]\n\
                [agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\n";
    let mut served = dev_with(folder.path(), &settings(folder.path(), &model, more));
    let start = json!({"kind": "caller", "id": "c", "input": "Please shout {\"word\": \"fish\"}"});
    assert_eq!(served.request("POST", "/v1/runs", &start.to_string()).0, 201);
    let run = served.result("c");
    assert_eq!(run["outcome"]["output"]["json"]["text"], "shout says: FISH", "{run}");
    let tools = &model.scripted.requests()[0].body["tools"];
    assert_eq!((tools.as_array().unwrap().len(), &tools[0]["function"]["name"]), (1, &json!("shout")), "`tools` selects one");
    served.signal("-TERM");
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let line = stderr.lines().find(|line| line.contains("I am here")).unwrap_or_else(|| panic!("{stderr}"));
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["program"], "loud", "its stderr is logged under its name in the settings: {line}");
}

/// The same tool over HTTP, by a server that drops its session after each call, like a restart. Prints its port.
const FORGETFUL: &str = r#"
    let session = 1;
    require('http').createServer((request, response) => {
        let body = '';
        request.on('data', (data) => body += data).on('end', () => {
            const head = { 'content-type': 'application/json', 'mcp-session-id': 's' + session };
            const answer = (status, value) => response.writeHead(status, head).end(JSON.stringify(value));
            const { id, method, params } = JSON.parse(body || '{}');
            const result = {
                'initialize': { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 't', version: '1' } },
                'tools/list': { tools: [{ name: 'shout', inputSchema: { type: 'object', properties: { word: { type: 'string' } } } }] },
                'tools/call': { content: [{ type: 'text', text: String(params?.arguments?.word).toUpperCase() }] },
            }[method];
            if (id === undefined) return response.writeHead(202).end();
            if (method.startsWith('tools/') && request.headers['mcp-session-id'] !== 's' + session) {
                return answer(400, { jsonrpc: '2.0', id: null, error: { code: -32000, message: 'Bad Request: No valid session ID provided' } });
            }
            answer(result ? 200 : 404, { jsonrpc: '2.0', id, result, error: result ? undefined : { code: -32601, message: 'no' } });
            if (method === 'tools/call') session += 1;
        });
    }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });
"#;

#[test]
fn tools_of_a_server_that_was_started_anew_are_called_all_the_same() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = folder.path().join("forgetful.js");
    std::fs::write(&file, FORGETFUL).unwrap();
    let mut server = std::process::Command::new("node").arg(&file).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut port).unwrap();
    let more = format!(
        "[mcp.loud]\nurl = \"http://127.0.0.1:{}/mcp\"\nclass = \"at_most_once\"\n[agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\n",
        port.trim()
    );
    let served = dev_with(folder.path(), &settings(folder.path(), &model, &more));
    for id in ["first", "second"] {
        let start = json!({"kind": "caller", "id": id, "input": "Please shout {\"word\": \"fish\"}"});
        assert_eq!(served.request("POST", "/v1/runs", &start.to_string()).0, 201);
        let run = served.result(id);
        assert_eq!(run["outcome"]["output"]["json"]["text"], "shout says: FISH", "{run}");
    }
    drop(served);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// The log has the effect class of each tool call.
#[test]
fn the_settings_declare_what_doing_a_tool_twice_would_do() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    std::fs::write(folder.path().join("tools.js"), TOOLS).unwrap();
    let mut more = String::new();
    let mut add = |agent: &str, classes: &str| {
        more += &format!("[mcp.{agent}]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\n{classes}\n");
        more += &format!("[agents.{agent}]\nmodel = \"small\"\nmcp = [\"{agent}\"]\n");
    };
    add("plain", "");
    add("careful", "class = \"at_most_once\"\nclasses = { look = \"pure\" }");
    add("trusting", "class = \"at_most_once\"\nclasses = { set = \"at_least_once\" }\ntrust_hints = true");
    let served = dev_with(folder.path(), &settings(folder.path(), &model, &more));
    let class = |agent: &str, tool: &str| {
        let start =
            json!({"kind": agent, "id": format!("{agent}-{tool}"), "input": format!("Please {tool} {{\"word\": \"fish\"}}")});
        assert_eq!(served.request("POST", "/v1/runs", &start.to_string()).0, 201);
        served.result(&format!("{agent}-{tool}"));
        let (_, events) = served.request("GET", &format!("/v1/runs/{agent}-{tool}/events?generation=1"), "");
        let kind = format!("tool.{agent}.{tool}");
        let scheduled = |record: &&Value| record["event"]["kind"] == kind.as_str();
        let record = events["events"].as_array().unwrap().iter().find(scheduled).unwrap_or_else(|| panic!("{events}")).clone();
        record["event"]["options"]["class"].as_str().unwrap_or_else(|| panic!("{record}")).to_owned()
    };
    assert_eq!(["shout", "look"].map(|tool| class("plain", tool)), ["at_least_once", "at_least_once"]);
    assert_eq!(["shout", "look"].map(|tool| class("careful", tool)), ["at_most_once", "pure"]);
    assert_eq!(["shout", "look", "set"].map(|tool| class("trusting", tool)), ["at_most_once", "pure", "at_least_once"]);
}

#[test]
fn the_key_is_shown_nowhere() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, "");
    let shown = ran(onward().args(["config", "show", "--origin", "--config"]).arg(&file).env("LOCAL_KEY", "sk-secret"));
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(!shown.out.contains("sk-secret") && !shown.err.contains("sk-secret"));
    assert!(shown.err.contains("models: small; agents: none"), "{}", shown.err);
}

/// Commands that start workers fail if the settings are incomplete.
#[test]
fn what_is_wrong_is_refused_at_the_start_with_a_hint() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let refused = |more: &str, set: &[(&str, &str)], expected: &str| {
        let file = settings(folder.path(), &model, more);
        let mut command = onward();
        command.args(["dev", "--ephemeral", "--port", "0", "--config"]).arg(&file).envs(set.iter().copied());
        let shown = file.display().to_string();
        let ran = ran(&mut command);
        assert_eq!(ran.err.replace(&shown, "FILE").trim_end(), expected);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    };
    let set = &[("LOCAL_KEY", "sk-secret")];
    refused(
        "",
        &[],
        "error[model_key_missing]: the model `small` needs a key, and the environment variable LOCAL_KEY is not set\n\
         hint: set it for the process that calls models, and start that process again",
    );
    refused(
        "[models.large]\nprovider = \"lokal\"\n",
        set,
        "error[config_invalid]: `models.large`: unknown provider `lokal`\n\
         hint: use `openai`, `anthropic` or a table [providers.…]; defined: local",
    );
    refused(
        "[agents.a]\nmodel = \"huge\"\n",
        set,
        "error[config_invalid]: `agents.a`: unknown model `huge`\nhint: use a model with a table [models.…]; defined: small",
    );
    refused(
        "[agents.a]\nmodel = \"small\"\nsistem = \"x\"\n",
        set,
        "error[config_invalid]: FILE:10: unknown field `sistem`, expected one of `model`, `system`, `max_turns`, `max_tool_calls`, `converse`, \
         `compact_at`, `budget`, `stop_at_budget`, `mcp`\nhint: see docs/operations.md for these tables",
    );
    refused(
        "[providers.p]\napi_format = \"openai\"\nbase_url = \"http://x\"\nkey = \"sk-secret\"\n",
        set,
        "error[config_invalid]: FILE:11: unknown field `key`, expected one of `api_format`, `base_url`, `key_env`, `headers`, \
         `max_tokens_name`, `call_timeout_seconds`, `idle_timeout_seconds`, `answer_bytes_max`, `retries`\n\
         hint: set `key_env` to the name of an environment variable with the key; keys are not read from this file",
    );
    refused(
        "[agent.a]\nmodel = \"small\"\n",
        set,
        "error[config_invalid]: FILE:8: unknown setting `agent.a`\nhint: did you mean `[agents.a]`?",
    );
}

/// A server that does not start is retried without a restart of the server that did.
#[test]
fn a_failing_mcp_server_does_not_restart_the_others() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let starts = "require('fs').appendFileSync('starts', 'x');";
    std::fs::write(folder.path().join("tools.js"), format!("{starts}{TOOLS}")).unwrap();
    let more = "[mcp.good]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\n\
                [mcp.bad]\ncommand = \"sh\"\narguments = [\"-c\", \"test -e fixed && exec node tools.js\"]\nfolder = \".\"\n\
                tools = []\n[agents.caller]\nmodel = \"small\"\nmcp = [\"good\", \"bad\"]\n";
    let file = settings(folder.path(), &model, more);
    let mut command = onward();
    command.args(["dev", "--port", "0", "--ephemeral", "--log-level", "debug", "--config"]).arg(file);
    let mut served = serve(command.env("LOCAL_KEY", "sk-secret"));
    let mut lines = std::io::BufReader::new(served.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..2 {
        let waits = lines.find(|line| line.contains("agent waits for its tools")).unwrap();
        assert!(waits.contains("MCP server `bad`"), "{waits}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "x");
    std::fs::write(folder.path().join("fixed"), "").unwrap();
    lines.find(|line| line.contains("agent has its tools")).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "xx", "each server started once");
}
