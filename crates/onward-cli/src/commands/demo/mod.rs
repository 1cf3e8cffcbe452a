//! `onward demo`: an order whose worker is killed twice and that completes without repeating a recorded step.
//!
//! The workflow runs in a child process on an embedded directory. This process reads the log beside the worker, sends SIGKILL,
//! starts new workers, and counts the executed steps. While the run waits for a person, no worker exists; this process then
//! decides the approval like `onward approval decide`.

mod agent;
mod order;
mod question;
mod stage;
mod worker;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use onward_core::{Event, RunKey};
use tokio::process::{Child, ChildStdin, Command};

use crate::args::Global;
use crate::directory::{own_command, run_key, shell_path};
use crate::modes::create_private;
use crate::new_id;
use crate::output::{Style, print};
use order::Order;
use stage::Stage;
pub use worker::{WorkerArgs, work};

/// Output of `--source`: the code that the demo runs.
const SOURCE: &str = include_str!("order.rs");

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    #[command(subcommand)]
    what: Option<DemoSubject>,
    /// Run with shorter delays
    #[arg(long)]
    fast: bool,
    /// Print the code of the workflow and exit
    #[arg(long)]
    source: bool,
}

#[derive(Debug, Subcommand)]
enum DemoSubject {
    /// Chat with an agent that survives kill -9; its model is scripted, so no API key is needed
    Agent,
}

impl DemoArgs {
    pub fn is_agent(&self) -> bool {
        self.what.is_some()
    }
}

/// Durations of the demo.
struct Pace {
    /// One unit of work in a step.
    unit: Duration,
    /// The timer of the order.
    hold: Duration,
    /// Time between the start of the timer and the kill.
    into_hold: Duration,
    /// Pause for reading.
    read: Duration,
}

impl Pace {
    fn new(fast: bool) -> Pace {
        let ms = Duration::from_millis;
        if fast {
            return Pace { unit: ms(150), hold: ms(900), into_hold: ms(200), read: ms(50) };
        }
        Pace { unit: ms(700), hold: ms(2_500), into_hold: ms(700), read: ms(900) }
    }
}

pub async fn execute(args: DemoArgs, global: &Global) -> Result<()> {
    if let Some(DemoSubject::Agent) = args.what {
        return agent::execute(global).await;
    }
    if args.source {
        return Ok(print(SOURCE)?);
    }
    let word = random_word();
    let data = match global.named_directory() {
        Some(data) => data,
        None => fresh_directory(&word)?,
    };
    let id = format!("demo-{word}");
    let effects = data.join(format!("{id}.effects"));
    let stage = Stage::new(data.clone(), run_key(&id)?, effects.clone());
    let order = Order { item: "a teapot".to_owned(), cents: 4_200, hold_ms: 0 };
    let mut demo =
        Demo { pace: Pace::new(args.fast), data, key: run_key(&id)?, effects, order, stage, lives: 0, kept: BTreeSet::new() };
    demo.order.hold_ms = demo.pace.hold.as_millis() as u64;
    demo.perform().await
}

/// A worker process. It exits when its stdin closes, so it cannot outlive this process.
struct WorkerProcess {
    child: Child,
    /// Taken from the child, because waiting for a child closes its stdin.
    _alive: Option<ChildStdin>,
}

struct Demo {
    pace: Pace,
    data: PathBuf,
    key: RunKey,
    effects: PathBuf,
    order: Order,
    stage: Stage,
    /// Number of started workers.
    lives: u32,
    /// Steps that were recorded when the current worker started.
    kept: BTreeSet<String>,
}

impl Demo {
    async fn perform(&mut self) -> Result<()> {
        self.introduce()?;
        self.killed_between_steps().await?;
        self.killed_while_a_timer_runs().await?;
        self.waits_for_a_person().await?;
        self.finishes().await?;
        let holds = self.stage.print_summary()?;
        self.print_next_steps()?;
        if !holds {
            bail!("a step ran more or less often than expected");
        }
        Ok(())
    }

    fn introduce(&self) -> Result<()> {
        let style = Style::stdout();
        let text = format!(
            "{}\n\n\
             Steps: charge and reserve in parallel, wait, print a label, ask a person, ship.\n\
             A worker process runs the order; this process watches and kills the worker.\n\n  \
             log   an event in the run's log on disk\n  \
             does  an execution of a step or task, noted in a separate file\n\n\
             Run {}, data in {} (kept)\n\n",
            style.bold("onward demo: an order that survives kill -9"),
            self.key,
            shell_path(&self.data),
        );
        Ok(print(&text)?)
    }

    async fn killed_between_steps(&mut self) -> Result<()> {
        let mut worker = self.start_worker("starts the order").await?;
        let charged = |event: &Event| matches!(event, Event::StepCompleted(event) if event.name.as_str() == "charge");
        self.watch(&mut worker, |stage| stage.has(charged)).await?;
        self.kill(worker, "charge is recorded, reserve is running").await?;
        self.read().await;
        Ok(())
    }

    async fn killed_while_a_timer_runs(&mut self) -> Result<()> {
        self.stage.note("A new process runs the same function from the top:")?;
        let mut worker = self.start_worker("replays the log").await?;
        self.watch(&mut worker, |stage| stage.has(|event| matches!(event, Event::TimerStarted(_)))).await?;
        tokio::time::sleep(self.pace.into_hold).await;
        self.kill(worker, "the timer is running").await?;
        self.print_durable_state()?;
        self.read().await;
        Ok(())
    }

    async fn waits_for_a_person(&mut self) -> Result<()> {
        self.stage.note("A third process. The timer is a row on disk and keeps its due time:")?;
        let worker = self.start_worker("replays the log").await?;
        self.until_exit(worker).await?;
        if !self.stage.has(|event| matches!(event, Event::ApprovalRequested(_))) {
            bail!("the worker exited before the order requested its approval");
        }
        self.stage.process("worker 3", "is idle and exits")?;
        self.print_durable_state()?;
        self.stage.note("No worker is running now. The waiting run is a row on disk, for weeks if needed.")?;
        self.decide().await
    }

    async fn decide(&mut self) -> Result<()> {
        let approval = question::open_approval(&self.data, &self.key).await?;
        let answer = question::ask(&approval.title).await?;
        let verdict = if answer.approved { "--approve" } else { "--reject" };
        print(&format!(
            "{}\n\n  {} approval decide {} {verdict} {}\n\n",
            answer.note,
            own_command(),
            approval.id,
            self.data_option()
        ))?;
        question::decide(&self.data, &approval.id, answer.approved, new_id::unique()).await?;
        self.stage.show_new_events().await
    }

    async fn finishes(&mut self) -> Result<()> {
        let worker = self.start_worker("replays the log").await?;
        self.until_exit(worker).await?;
        if !self.stage.events.last().is_some_and(|(_, _, event)| event.ends_log()) {
            bail!("the worker exited before the order was completed");
        }
        self.print_durable_state()?;
        Ok(())
    }

    /// Starts a worker process: this program on the same directory.
    async fn start_worker(&mut self, what: &str) -> Result<WorkerProcess> {
        self.kept = self.stage.recorded().into_keys().collect();
        let program = std::env::current_exe().context("cannot determine the path of this program")?;
        let mut command = Command::new(program);
        command.arg("demo-worker").arg("--data").arg(&self.data).arg("--effects").arg(&self.effects);
        command.args(["--run", self.key.id.as_str(), "--order", &serde_json::to_string(&self.order)?]);
        command.args(["--unit-ms", &self.pace.unit.as_millis().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker")?;
        self.lives += 1;
        let pid = child.id().unwrap_or_default();
        self.stage.process(&format!("worker {}", self.lives), &format!("pid {pid} {what}"))?;
        Ok(WorkerProcess { _alive: child.stdin.take(), child })
    }

    /// Shows new lines until `until` is true. Fails if the worker exits before that.
    async fn watch(&mut self, worker: &mut WorkerProcess, until: impl Fn(&Stage) -> bool) -> Result<()> {
        tokio::select! {
            biased;
            watched = self.stage.watch(until) => watched,
            status = worker.child.wait() => bail!("the worker exited unexpectedly: {}", status?),
        }
    }

    /// Kills the worker with SIGKILL: nothing is flushed and no destructor runs.
    async fn kill(&mut self, mut worker: WorkerProcess, when: &str) -> Result<()> {
        let pid = worker.child.id().unwrap_or_default();
        worker.child.start_kill().context("cannot kill the worker")?;
        worker.child.wait().await?;
        self.stage.show_new_events().await?;
        self.stage.process("kill -9", &format!("pid {pid}: {when}"))
    }

    async fn until_exit(&mut self, mut worker: WorkerProcess) -> Result<()> {
        let exit: ExitStatus = tokio::select! {
            never = self.stage.watch(|_| false) => return never,
            status = worker.child.wait() => status?,
        };
        self.stage.show_new_events().await?;
        if !exit.success() {
            bail!("the worker failed: {exit}");
        }
        Ok(())
    }

    /// Shows which recorded steps this worker did not run again.
    fn print_durable_state(&self) -> Result<()> {
        let recorded = self.stage.recorded();
        let mut kept: Vec<_> = recorded.iter().filter(|(name, _)| self.kept.contains(*name)).collect();
        kept.sort_by_key(|(_, (index, _))| *index);
        let kept: Vec<String> = kept.into_iter().map(|(name, (index, _))| format!("{name} ({index})")).collect();
        self.stage.process("replayed", &format!("not run again: {}", kept.join(", ")))
    }

    async fn read(&self) {
        tokio::time::sleep(self.pace.read).await;
    }

    fn data_option(&self) -> String {
        format!("--data {}", shell_path(&self.data))
    }

    fn print_next_steps(&self) -> Result<()> {
        let (onward, id, data) = (own_command(), &self.key, self.data_option());
        Ok(print(&format!(
            "\nTry next:\n\n  {onward} run show {id} {data}\n  {onward} run events {id} {data}\n  {onward} demo --source\n"
        ))?)
    }
}

/// Creates a new private directory. Fails if the path exists.
fn fresh_directory(word: &str) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("onward-demo-{word}"));
    create_private(&path)?;
    Ok(path)
}

/// Returns six random hexadecimal digits.
fn random_word() -> String {
    new_id::unique().chars().rev().take(6).collect()
}
