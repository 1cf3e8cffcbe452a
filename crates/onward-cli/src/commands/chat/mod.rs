//! `onward chat`: a conversation with an agent, in a terminal or through pipes.
//!
//! All durable state is in the run: a chat that ended in any way continues with `--run`. On a directory without a server, the
//! agents of the settings run in this process until the chat ends.

mod draft;
mod editor;
mod question;
mod render;
mod screen;
mod session;
mod stream;
mod typing;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use onward::Onward;
use onward_core::api::{RunQuery, WorkersReply};
use onward_core::{ErrorCode, Name, Namespace, RunHead, RunKey, Status};
use onward_runtime::RuntimeError;
use onward_store::Consequence;

use crate::args::Global;
use crate::builtin_agents::BuiltinAgents;
use crate::connection::{Connection, Endpoint};
use crate::directory::{own_command, shell_path, shell_word};
use crate::error::{Exit, INTERRUPTED, Mistake, RUN_FAILED};
use crate::new_id;
use crate::output::print_stderr;
use crate::serving::{mark, shutdown_signal};
pub use screen::Screen;
use session::{ChatEnd, ChatSession};

/// Wait for a worker of an agent that has earlier runs: it may be starting together with the chat.
const WORKER_PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval of that wait.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Shutdown time after which a note is printed.
const AT_ONCE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Agent to chat with; the first message starts the run
    #[arg(long, value_name = "KIND", required_unless_present = "run")]
    agent: Option<String>,
    /// Run to continue; with --agent, a new run gets this id if it does not exist
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Number of recent entries to show of a continued run
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    entries: u32,
    /// Wait without a limit for the server and for a worker that serves the agent
    #[arg(long, requires = "agent")]
    wait: bool,
    /// Name of the decider, for approvals that restrict who may decide
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Parameters of a chat.
pub struct Chat {
    pub connection: Connection,
    pub agent: Option<Name>,
    pub run: Option<String>,
    pub entries: usize,
    pub by: Option<String>,
    /// Waits for an unreachable server and for an agent that no worker serves.
    pub waits: bool,
    /// MCP servers of the agent, if the settings define it.
    pub tools_of: Option<Vec<String>>,
    /// Command that continues the chat.
    pub again: String,
    /// That command needs `--run`.
    pub is_named: bool,
    /// The worker runs in this process and stops with it.
    pub is_alone: bool,
}

pub async fn execute(args: ChatArgs, global: &Global) -> Result<()> {
    let agent = args.agent.as_deref().map(Name::new).transpose().map_err(RuntimeError::from)?;
    let screen = Screen::new(global.json);
    if screen.is_terminal() {
        // Log lines of the engine and of MCP programs would mix with the lines of the chat and could imitate them.
        let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
    }
    let (connection, worker, again) = open(agent.as_ref(), args.wait, global).await?;
    let named = agent.as_ref().and_then(|agent| global.config.tables()?.agents.get(agent.as_str()));
    let tools_of = named.map(|settings| settings.mcp.clone());
    let chat = Chat {
        connection,
        agent,
        run: args.run,
        entries: args.entries as usize,
        by: args.by,
        waits: args.wait,
        tools_of,
        again,
        is_named: true,
        is_alone: worker.is_some(),
    };
    let code = chat.hold(screen).await;
    if let Some(worker) = worker {
        leave(worker).await;
    }
    code
}

/// Shuts down the worker of this process. A second Ctrl-C exits without waiting for it.
pub async fn leave(worker: Onward) {
    let (stopped, mut shutdown) = (shutdown_signal(), std::pin::pin!(worker.shutdown()));
    if tokio::time::timeout(AT_ONCE, &mut shutdown).await.is_err() {
        print_stderr("waiting for running work to finish; press Ctrl-C to exit at once");
        tokio::select! {
            () = shutdown => {}
            () = stopped => {}
        }
    }
}

/// Connects to the server, or opens the directory with a worker of this process that runs the agents of the settings.
async fn open(agent: Option<&Name>, waits: bool, global: &Global) -> Result<(Connection, Option<Onward>, String)> {
    let path = match Endpoint::of(global)? {
        Endpoint::Server { url, .. } => {
            let connection = connect(waits, global).await?;
            let again =
                format!("{} chat --server {}{}", own_command(), shell_word(&url), namespace_option(&connection.namespace));
            return Ok((connection, None, again));
        }
        Endpoint::Directory(path) => path,
    };
    if let Some(url) = mark::server_of(&path) {
        let message = format!("{} is in use by the server at {url}", path.display());
        let hint = format!("use `--server {url}` or ONWARD_URL");
        return Err(Mistake::new(ErrorCode::DirectoryLocked, message, Some(&hint)).into());
    }
    let Some(builtin) = BuiltinAgents::open(&global.config)? else {
        let hint = "set `--server URL`, or define models and agents in `onward.toml` (docs/guide/agents-without-code.md)";
        return Err(
            Mistake::usage(ErrorCode::Usage, "no agent is available: the settings define no agents and no server", hint).into()
        );
    };
    if let Some(agent) = agent.filter(|agent| builtin.agents().all(|name| name != agent.as_str())) {
        let message = format!("the settings define no agent `{agent}`");
        let hint = format!("use one of: {}", builtin.agents().collect::<Vec<_>>().join(", "));
        return Err(Mistake::usage(ErrorCode::Usage, message, &hint).into());
    }
    let namespace = global.namespace()?;
    let builder = Onward::embedded(&path).namespace(namespace.as_str());
    let worker = builtin.equip(builder).await?.start().await?;
    let runtime = worker.runtime().cloned().expect("its directory is here");
    let again = format!("{} chat --data {}{}", own_command(), shell_path(&path), namespace_option(&namespace));
    Ok((Connection::of(runtime, global)?, Some(worker), again))
}

/// Connects to the server. With `waits`, retries while it is unreachable.
async fn connect(waits: bool, global: &Global) -> Result<Connection> {
    let mut has_printed = false;
    loop {
        match Connection::to_write(global).await {
            Err(error) if waits && error.downcast_ref().is_some_and(is_unreachable) => {
                if !std::mem::replace(&mut has_printed, true) {
                    print_stderr(&format!("{error}; waiting for the server"));
                }
                tokio::time::sleep(stream::RETRY_DELAY).await;
            }
            connection => return connection,
        }
    }
}

fn is_unreachable(error: &onward::Error) -> bool {
    error.code() == ErrorCode::ServerUnreachable
}

fn namespace_option(namespace: &Namespace) -> String {
    let is_usual = *namespace == Namespace::default();
    if is_usual { String::new() } else { format!(" --namespace {}", shell_word(namespace.as_str())) }
}

/// Fails if workers are connected and none of them serves the agent: the chat could wait forever. Waits briefly for a worker if
/// the agent has earlier runs; these alone prove nothing, because their name may have had the same typo. Accepts an agent of the
/// settings, whose MCP servers may be slow to start.
async fn check_agent(connection: &Connection, agent: &Name, tools_of: Option<&[String]>) -> Result<()> {
    let query = RunQuery { namespace: connection.namespace.clone(), kind: Some(agent.clone()), limit: 1, ..RunQuery::default() };
    let mut until = None;
    loop {
        // If workers cannot be listed, for lack of permission for example, the first message reports the problem.
        let Ok(WorkersReply { workers }) = connection.list_workers(connection.namespace.clone()).await else { return Ok(()) };
        let there: BTreeSet<&str> = workers.iter().flat_map(|worker| &worker.kinds).map(|known| known.kind.as_str()).collect();
        if there.is_empty() || there.contains(agent.as_str()) {
            return Ok(());
        }
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        if let Some(tools_of) = tools_of {
            let tools: Vec<String> = tools_of.iter().map(|name| format!("`{name}`")).collect();
            let with = if tools.is_empty() { String::new() } else { format!(" (MCP servers: {})", tools.join(", ")) };
            print_stderr(&format!(
                "no worker serves agent `{agent}` of the settings yet{with}; waiting for it; available agents: {there}"
            ));
            return Ok(());
        }
        let now = Instant::now();
        if until.is_none() {
            let is_known = connection.list_runs(query.clone()).await.is_ok_and(|page| !page.runs.is_empty());
            if is_known {
                print_stderr(&format!("no worker serves agent `{agent}`; waiting for one to start; available agents: {there}"));
            }
            until = Some(if is_known { now + WORKER_PATIENCE } else { now });
        }
        if until.is_some_and(|until| until <= now) {
            let hint = format!("use one of: {there}; or wait for a worker with `--wait`");
            return Err(Mistake::usage(ErrorCode::Usage, format!("no worker serves agent `{agent}`"), &hint).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl Chat {
    /// Reads the head of the run. With `waits`, retries while the server is unreachable.
    async fn reach(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let mut has_printed = false;
        loop {
            match self.connection.read_head(key.clone()).await {
                Err(error) if self.waits && error.consequence() == Consequence::Retry => {
                    if !std::mem::replace(&mut has_printed, true) {
                        print_stderr(&format!("{error}; waiting for the server"));
                    }
                    tokio::time::sleep(stream::RETRY_DELAY).await;
                }
                answer => {
                    if has_printed {
                        print_stderr("connected to the server");
                    }
                    return answer;
                }
            }
        }
    }

    /// Runs the chat until the user leaves or the run is closed, and prints how to continue it.
    pub async fn hold(self, screen: Screen) -> Result<()> {
        let mut stopped = std::pin::pin!(shutdown_signal());
        let key = self.connection.key(&self.run.clone().unwrap_or_else(new_id::run))?;
        let head = tokio::select! {
            head = self.reach(&key) => head,
            () = &mut stopped => return Err(Exit(INTERRUPTED).into()),
        };
        let is_there = match head {
            Ok(head) => {
                if let Some(agent) = self.agent.as_ref().filter(|agent| **agent != head.kind && *agent != head.first_kind()) {
                    let message = format!("run {} has kind `{}`, not `{agent}`", key.id, head.kind);
                    return Err(Mistake::usage(
                        ErrorCode::Usage,
                        message,
                        "omit `--agent` to continue the run, or use another id",
                    )
                    .into());
                }
                true
            }
            Err(error) if error.code() == ErrorCode::RunNotFound && self.agent.is_some() => false,
            Err(error) => return Err(error.into()),
        };
        let kind = self.agent.filter(|_| !is_there);
        if let Some(kind) = kind.as_ref().filter(|_| !self.is_alone && !self.waits) {
            check_agent(&self.connection, kind, self.tools_of.as_deref()).await?;
        }
        let raw = typing::RawMode::enter(&screen)?;
        let mut session = ChatSession::new(self.connection, key, kind, self.by, screen);
        if session.screen.is_terminal() {
            session.screen.note("Enter sends, /help lists commands, Ctrl-C leaves without canceling the run")?;
        }
        let input = typing::begin(&session.screen);
        let held = async {
            if is_there {
                session.take_up(self.entries).await?;
            }
            session.run(input).await
        };
        let (over, is_interrupted) = tokio::select! {
            biased;
            () = &mut stopped => (Ok(ChatEnd::Left), true),
            over = held => (over, false),
        };
        if let Screen::Terminal(terminal) = &mut session.screen {
            terminal.close()?;
        } else {
            session.screen.end_words()?;
        }
        drop(raw);
        match over? {
            ChatEnd::Closed(Status::Failed) => return Err(Exit(RUN_FAILED).into()),
            ChatEnd::Closed(_) => {}
            ChatEnd::Left => {
                if session.actions.open() > 0 {
                    print_stderr(&format!("inputs that were not acknowledged and may be lost: {}", session.actions.open()));
                }
                if session.has_begun() {
                    let run =
                        if self.is_named { format!(" --run {}", shell_word(session.key.id.as_str())) } else { String::new() };
                    let kept = match (session.is_paused, self.is_alone) {
                        (true, _) => "the run is paused",
                        (false, true) => "the run is saved",
                        (false, false) => "the run continues",
                    };
                    print_stderr(&format!("{kept}; return to the chat with: {}{run}", self.again));
                }
            }
        }
        if is_interrupted { Err(Exit(INTERRUPTED).into()) } else { Ok(()) }
    }
}
