//! Follows a run of a flow: its progress, its approvals and what it waits for.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use onward_core::api::{DecideRequest, Emitted, WaitQuery, WatchRequest};
use onward_core::live::{LiveContent, LiveFrame};
use onward_core::run::Wait;
use onward_core::{Event, Failure, Payload, RunKey};
use onward_flow::document::Flow;
use onward_flow::machine::Progress;
use onward_runtime::{CallRef, RuntimeError};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, interval};

use super::questions::{Answered, Questions};
use super::screen::ProgressScreen;
use crate::blocked_on::{self, PrintedBlockers};
use crate::connection::Connection;
use crate::directory::{own_command, shell_word};
use crate::error;
use crate::output::{escape, json_line, preview, print_stderr, time};

/// The prefix of the states with the progress of steps.
const PROGRESS: &str = "flow/";

/// The interval at which the screen moves.
const FRAME: Duration = Duration::from_millis(100);

/// The interval at which approvals, also those of children, and reasons of waiting are read.
const POLL: Duration = Duration::from_millis(700);

/// How following a run ended.
pub enum Followed {
    Ended(Result<Payload, Failure>),
    /// By Ctrl-C; the run is open.
    Interrupted,
}

pub struct Follower<'a> {
    connection: &'a Connection,
    key: RunKey,
    screen: ProgressScreen,
    questions: Questions,
    /// The options of commands that reach the run from another terminal.
    reach: String,
    by: Option<String>,
    /// Approvals whose command was printed.
    printed: BTreeSet<String>,
    blockers: PrintedBlockers,
    json: bool,
    /// What the run emits, from before its start; without it, the frames have what is emitted while they are read.
    emissions: Option<broadcast::Receiver<Emitted>>,
}

/// Returns the next emitted value; never without a receiver.
async fn next(emissions: &mut Option<broadcast::Receiver<Emitted>>) -> Emitted {
    loop {
        match emissions {
            None => std::future::pending().await,
            Some(receiver) => match receiver.recv().await {
                Ok(emitted) => return emitted,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => *emissions = None,
            },
        }
    }
}

impl<'a> Follower<'a> {
    pub fn new(
        connection: &'a Connection,
        key: RunKey,
        flow: &Flow,
        reach: String,
        by: Option<String>,
        json: bool,
    ) -> Follower<'a> {
        let screen = ProgressScreen::new(flow, json);
        let questions = Questions::new(screen.is_live() && !json);
        Follower {
            connection,
            key,
            screen,
            questions,
            reach,
            by,
            printed: BTreeSet::new(),
            blockers: PrintedBlockers::default(),
            json,
            emissions: None,
        }
    }

    /// Prints what this receiver gets instead of what the frames have.
    pub fn emissions(&mut self, emissions: broadcast::Receiver<Emitted>) {
        self.emissions = Some(emissions);
    }

    /// Shows the run from its beginning until it has ended or `stopped` returns.
    pub async fn follow(&mut self, stopped: impl Future<Output = ()>) -> Result<Followed> {
        let mut stopped = pin!(stopped);
        let mut frames = self.frames().await?;
        let (mut tick, mut poll) = (interval(FRAME), interval(POLL));
        poll.reset_at(Instant::now() + POLL); // workers get the time to start
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return Ok(Followed::Interrupted),
                emitted = next(&mut self.emissions) => self.emitted(&emitted)?,
                frame = frames.recv() => match frame {
                    Some(Ok(frame)) => {
                        if let LiveContent::Dropped(_) = &frame.content {
                            frames = self.frames().await?;
                        } else {
                            self.show(&frame)?;
                        }
                    }
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(Followed::Ended(self.connection.outcome(&self.key).await?)),
                },
                answered = self.questions.answered() => self.decide(answered).await?,
                _ = poll.tick() => self.poll().await?,
                _ = tick.tick() => self.screen.tick()?,
            }
        }
    }

    /// Removes what moves from the screen.
    pub fn close(&mut self) {
        self.screen.close();
    }

    /// Reads the frames of the run in a task of its own, because a read that is given up may lose a frame.
    async fn frames(&self) -> Result<mpsc::Receiver<Result<LiveFrame, RuntimeError>>> {
        let request = WatchRequest::from(self.key.clone());
        let mut updates = self.connection.watch_updates(request).await?;
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Some(frame) = updates.next().await.transpose() {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(receiver)
    }

    fn show(&mut self, frame: &LiveFrame) -> Result<()> {
        match &frame.content {
            LiveContent::Log(log) => {
                for (_, event) in log.record.indexed() {
                    if let Event::RunFailed(_) = event {
                        self.screen.fail(log.record.at)?;
                    }
                    let Event::StateSet(set) = event else { continue };
                    let Some(step) = set.key.as_str().strip_prefix(PROGRESS) else { continue };
                    // A state of the same name that the flow's server wrote in another form is not progress.
                    if let Ok(progress) =
                        set.value.read::<Progress>().map(|progress| Progress { step: step.to_owned(), ..progress })
                    {
                        self.screen.progress(progress, log.record.at)?;
                    }
                }
            }
            LiveContent::Emitted(emitted) if self.emissions.is_none() => self.emitted(emitted)?,
            _ => {}
        }
        Ok(())
    }

    /// Prints an emitted value: the message of the action `print`, or the value itself.
    fn emitted(&mut self, emitted: &Emitted) -> Result<()> {
        let value = emitted.value.read::<Value>().ok();
        let text = value.as_ref().and_then(|value| value.get("message").unwrap_or(value).as_str());
        let text = text.map_or_else(|| preview(&emitted.value), str::to_owned);
        self.screen.note(&escape::lines(&text))
    }

    /// Shows approvals that are new, withdraws a question that was answered elsewhere, and prints why the run waits.
    async fn poll(&mut self) -> Result<()> {
        let (namespace, run) = (self.connection.namespace.clone(), Some(self.key.clone()));
        let query = WaitQuery { namespace, run, below: true, limit: 100, partly: true };
        let Ok(reply) = self.connection.list_approvals(query).await else { return Ok(()) }; // the next poll tries again
        if let Some(asked) = self.questions.asked()
            && !reply.waits.iter().any(|wait| CallRef::from(wait).to_string() == asked)
        {
            self.questions.withdraw();
            self.screen.resume("decided elsewhere")?;
        }
        for wait in &reply.waits {
            self.approval(wait)?;
        }
        for blocker in blocked_on::of(self.connection, &self.key).await {
            if self.blockers.is_new(&blocker, time::now()) {
                for sentence in blocked_on::sentences(self.connection, std::slice::from_ref(&blocker)).await {
                    self.screen.note(&escape::text(&sentence))?;
                }
            }
        }
        Ok(())
    }

    fn approval(&mut self, wait: &Wait) -> Result<()> {
        let id = CallRef::from(wait).to_string();
        if self.printed.contains(&id) || self.questions.asked().is_some() {
            return Ok(());
        }
        if self.questions.can_ask() && wait.answer_schema.is_none() {
            self.questions.ask(id);
            return self.screen.ask(wait);
        }
        self.print_command(&id, &wait.title, wait.answer_schema.is_some())
    }

    /// Prints the command that decides an approval from another terminal.
    fn print_command(&mut self, id: &str, title: &str, needs_answer: bool) -> Result<()> {
        let answer = if needs_answer { "--answer JSON " } else { "" };
        let command = format!("{} approval decide {} --approve {answer}{}", own_command(), shell_word(id), self.reach);
        if self.json {
            let document = serde_json::json!({"approval": id, "title": title, "decide": command.trim_end()});
            print_stderr(&json_line(&document)?);
            self.printed.insert(id.to_owned());
            return Ok(());
        }
        self.screen.note(&format!("waits for approval: {}", escape::text(title)))?;
        self.screen.note(&format!("decide with: {}", escape::text(command.trim_end())))?;
        self.printed.insert(id.to_owned());
        Ok(())
    }

    async fn decide(&mut self, answered: Answered) -> Result<()> {
        let Some(id) = self.questions.asked().map(str::to_owned) else { return Ok(()) };
        let decide = match answered {
            Answered::Decision { approved, feedback } => super::questions::decision(approved, feedback, self.by.clone()),
            Answered::Unclear => return self.screen.ask_again(),
            Answered::Closed => {
                self.questions.withdraw();
                self.screen.resume("")?;
                return self.print_command(&id, "", false);
            }
        };
        self.questions.withdraw();
        let request = DecideRequest { namespace: self.connection.namespace.clone(), approval: id.clone(), decide };
        match self.connection.decide_approval(request).await {
            Ok(_) => {
                self.printed.insert(id); // until the list is read again
                self.screen.resume("")
            }
            Err(refused) => {
                self.screen.resume("")?;
                error::print_one(&refused.into(), false);
                self.print_command(&id, "", false)
            }
        }
    }
}
