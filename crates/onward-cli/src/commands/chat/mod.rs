//! `onward chat`: a conversation with an agent, in a terminal or through pipes.
//!
//! Everything durable is in the run: whoever leaves, however that happens, comes back with `--run` and finds the conversation as it is. In
//! a directory without a server the agents of the settings work in this process, for as long as the chat lasts.

mod actions;
mod blocked;
mod draft;
mod editor;
mod question;
mod render;
mod screen;
mod session;
mod stream;
mod typing;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use onward::Onward;
use onward_core::{Name, Namespace, RunHead, RunKey, Status};
use onward_runtime::RuntimeError;
use onward_store::{Consequence, RunQuery};

use crate::args::Global;
use crate::builtin_agents::BuiltinAgents;
use crate::connection::{Place, Site};
use crate::directory::{own_command, shell_path, shell_word};
use crate::error::{Mistake, RUN_FAILED};
use crate::interrupt::INTERRUPTED;
use crate::new_id;
use crate::output::say;
use crate::serving::{mark, told_to_stop};
pub use screen::Screen;
use session::{Over, Talk};

/// How long a worker is looked for that has an agent which there was before: it may have been started together with the chat.
const WORKER_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(250);

/// How long somebody who leaves waits without being told for what.
const AT_ONCE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The agent to talk to; the run begins with the first thing that is said
    #[arg(long, value_name = "KIND", required_unless_present = "run")]
    agent: Option<String>,
    /// The run to take up; with --agent it is begun if it is not there
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// How many of the last entries to show of a run that is taken up
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    entries: u32,
    /// Wait for the server and for a worker that has the agent, however long that takes
    #[arg(long, requires = "agent")]
    wait: bool,
    /// Who decides, where a question names who may
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// What a chat is about, and where.
pub struct Chat {
    pub site: Site,
    pub agent: Option<Name>,
    pub run: Option<String>,
    pub entries: usize,
    pub by: Option<String>,
    /// Whether a server that is not there, and an agent that no worker has, are waited for.
    pub waits: bool,
    /// What the settings say of the agent, if they name it: where its tools come from.
    pub tools_of: Option<Vec<String>>,
    /// How to come back.
    pub again: String,
    /// The run has to be named for that.
    pub is_named: bool,
    /// The worker is in this process, and leaves with it.
    pub is_alone: bool,
}

pub async fn execute(args: ChatArgs, global: &Global) -> Result<ExitCode> {
    let agent = args.agent.as_deref().map(Name::new).transpose().map_err(RuntimeError::from)?;
    let screen = Screen::new(global.json);
    if screen.is_terminal() {
        // The screen is the chat's: what engine and programs say beside would stand among its lines, and look like them.
        let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
    }
    let (site, worker, again) = open(agent.as_ref(), global).await?;
    let named = agent.as_ref().and_then(|agent| global.config.tables()?.agents.get(agent.as_str()));
    let tools_of = named.map(|settings| settings.mcp.clone());
    let chat = Chat {
        site,
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

/// Lets a worker of this process end what it does; whoever interrupts again does not wait for that.
pub async fn leave(worker: Onward) {
    let (told, mut shutdown) = (told_to_stop(), std::pin::pin!(worker.shutdown()));
    if tokio::time::timeout(AT_ONCE, &mut shutdown).await.is_err() {
        say("what is under way may come to its end; Ctrl-C leaves at once");
        tokio::select! {
            () = shutdown => {}
            () = told => {}
        }
    }
}

/// A server; or a directory, with a worker of this process that has the agents of the settings.
async fn open(agent: Option<&Name>, global: &Global) -> Result<(Site, Option<Onward>, String)> {
    let path = match Place::of(global)? {
        Place::Server { url, .. } => {
            let again = format!("{} chat --server {}{}", own_command(), shell_word(&url), namespace_option(global)?);
            return Ok((Site::to_write(global)?, None, again));
        }
        Place::Directory(path) => path,
    };
    if let Some(url) = mark::server_of(&path) {
        let message = format!("{} is held by the server at {url}", path.display());
        let hint = Some(format!("go through it with `--server {url}`, or ONWARD_URL"));
        return Err(Mistake { code: "directory_locked", message, hint, exit: crate::error::CONFLICT }.into());
    }
    let Some(house) = BuiltinAgents::open(&global.config)? else {
        let hint = "talk through a server with `--server URL`, or name models and agents in `onward.toml`: docs/operations.md";
        return Err(Mistake::usage("usage", "there is no agent here: the settings name none, nor a server", hint).into());
    };
    if let Some(agent) = agent.filter(|agent| house.agents().all(|name| name != agent.as_str())) {
        let message = format!("the settings name no agent `{agent}`");
        let hint = format!("there are: {}", house.agents().collect::<Vec<_>>().join(", "));
        return Err(Mistake::usage("usage", message, &hint).into());
    }
    let namespace = global.namespace()?;
    let builder = Onward::embedded(&path).namespace(namespace.as_str());
    let worker = house.equip(builder).await?.start().await?;
    let runtime = worker.runtime().cloned().expect("its directory is here");
    let again = format!("{} chat --data {}{}", own_command(), shell_path(&path), namespace_option(global)?);
    Ok((Site::of(runtime, global)?, Some(worker), again))
}

fn namespace_option(global: &Global) -> Result<String> {
    let namespace = global.namespace()?;
    let is_usual = namespace == Namespace::default();
    Ok(if is_usual { String::new() } else { format!(" --namespace {}", shell_word(namespace.as_str())) })
}

/// Refuses an agent that nobody has, where there are others: it would be waited for for ever. One that somebody has talked to before may
/// have a worker in a moment; that its name is in the store says nothing more, for it may have been mistyped then, too. One that the
/// settings name is no mistake: its tools may take their time.
async fn check_agent(site: &Site, agent: &Name, tools_of: Option<&[String]>) -> Result<()> {
    let query = RunQuery { namespace: site.namespace.clone(), kind: Some(agent.clone()), limit: 1, ..RunQuery::default() };
    let mut until = None;
    loop {
        // Who may not ask finds out by talking.
        let Ok(workers) = site.list_workers(site.namespace.clone()).await else { return Ok(()) };
        let there: BTreeSet<&str> = workers.iter().flat_map(|worker| &worker.kinds).map(|(kind, _)| kind.as_str()).collect();
        if there.is_empty() || there.contains(agent.as_str()) {
            return Ok(());
        }
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        if let Some(tools_of) = tools_of {
            let tools: Vec<String> = tools_of.iter().map(|name| format!("`{name}`")).collect();
            let with = if tools.is_empty() { String::new() } else { format!(", with tools of {}", tools.join(", ")) };
            say(&format!(
                "no worker has an agent `{agent}` now, which the settings name{with}; waiting for it; there are: {there}"
            ));
            return Ok(());
        }
        let now = Instant::now();
        if until.is_none() {
            let is_known = site.list_runs(query.clone()).await.is_ok_and(|page| !page.runs.is_empty());
            if is_known {
                say(&format!("no worker has an agent `{agent}` now; looking for one that starts; there are: {there}"));
            }
            until = Some(if is_known { now + WORKER_PATIENCE } else { now });
        }
        if until.is_some_and(|until| until <= now) {
            let hint = format!("there are: {there}; `--wait` waits for one");
            return Err(Mistake::usage("usage", format!("no worker has an agent `{agent}`"), &hint).into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Chat {
    /// Looks whether the run is there; a server that is not there yet is waited for where that was said.
    async fn reach(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let mut has_told = false;
        loop {
            match self.site.read_head(key.clone()).await {
                Err(error) if self.waits && error.consequence() == Consequence::Retry => {
                    if !std::mem::replace(&mut has_told, true) {
                        say(&format!("{error}; waiting for it"));
                    }
                    tokio::time::sleep(stream::ASK_AGAIN).await;
                }
                answer => {
                    if has_told {
                        say("the server is there");
                    }
                    return answer;
                }
            }
        }
    }

    /// Talks until somebody leaves, and says how to come back.
    pub async fn hold(self, screen: Screen) -> Result<ExitCode> {
        let mut told = std::pin::pin!(told_to_stop());
        let key = self.site.key(&self.run.clone().unwrap_or_else(new_id::run))?;
        let head = tokio::select! {
            head = self.reach(&key) => head,
            () = &mut told => return Ok(ExitCode::from(INTERRUPTED)),
        };
        let is_there = match head {
            Ok(head) => {
                if let Some(agent) = self.agent.as_ref().filter(|agent| **agent != head.kind && *agent != head.first_kind()) {
                    let message = format!("run {} is of the kind `{}`, and not `{agent}`", key.id, head.kind);
                    return Err(
                        Mistake::usage("usage", message, "leave `--agent` out to go on with it, or take another id").into()
                    );
                }
                true
            }
            Err(error) if error.code() == "run_not_found" && self.agent.is_some() => false,
            Err(error) => return Err(error.into()),
        };
        let kind = self.agent.filter(|_| !is_there);
        if let Some(kind) = kind.as_ref().filter(|_| !self.is_alone && !self.waits) {
            check_agent(&self.site, kind, self.tools_of.as_deref()).await?;
        }
        let raw = typing::Raw::enter(&screen)?;
        let mut talk = Talk::new(self.site, key, kind, self.by, screen);
        if talk.screen.is_terminal() {
            talk.screen.note("Enter says it, /help lists the rest, Ctrl-C leaves and cancels nothing")?;
        }
        let input = typing::begin(&talk.screen);
        let held = async {
            if is_there {
                talk.take_up(self.entries).await?;
            }
            talk.talk(input).await
        };
        let (over, code) = tokio::select! {
            biased;
            () = &mut told => (Ok(Over::Left), INTERRUPTED),
            over = held => (over, 0),
        };
        if let Screen::Terminal(terminal) = &mut talk.screen {
            terminal.close()?;
        } else {
            talk.screen.end_words()?;
        }
        drop(raw);
        match over? {
            Over::Closed(Status::Failed) => Ok(ExitCode::from(RUN_FAILED)),
            Over::Closed(_) => Ok(ExitCode::from(code)),
            Over::Left => {
                if talk.acts.open() > 0 {
                    say(&format!("{} of what you said or decided may not have arrived", talk.acts.open()));
                }
                if talk.has_begun() {
                    let run = if self.is_named { format!(" --run {}", shell_word(talk.key.id.as_str())) } else { String::new() };
                    let kept = if self.is_alone { "the run is kept as it is" } else { "the run goes on" };
                    say(&format!("{kept}; come back with: {}{run}", self.again));
                }
                Ok(ExitCode::from(code))
            }
        }
    }
}
