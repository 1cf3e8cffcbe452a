//! The chat session: prints the stream of the run, and sends what is typed to the run.
//!
//! Prints every entry once, in the order of the conversation. Must never change the run except on a user's command.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::Result;
use onward_core::api::{BlockReason, EntriesRequest, EntryPage, EntryQuery, WaitQuery};
use onward_core::conversation::{DONE, Entry, EntryCursor};
use onward_core::event::{PauseReason, RunPaused};
use onward_core::stream::{AttemptFailed, StreamContent, TaskOutcome};
use onward_core::view::{AwaitedKind, RunView};
use onward_core::{ErrorCode, Failure, Hash, Name, Payload, RunKey, Status};
use onward_runtime::RuntimeError;
use onward_store::Consequence;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::draft::{Drafts, NewText};
use super::editor::Typed;
use super::question::ApprovalQuestion;
use super::render::{EntryPart, parts};
use super::screen::Screen;
use super::stream::{Action, ActionQueue, CANCELED_HERE, Listener, RETRY_DELAY, StreamEvent, listen};
use super::typing::TerminalInput;
use crate::blocked_on::{self, PrintedBlockers};
use crate::budget;
use crate::connection::Connection;
use crate::new_id;
use crate::output::{Style, escape, stop_text, time};

/// Polling interval for an idle run, while the next line or the end of input waits for that.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time without frames after which the session checks why the run makes no progress.
const SILENCE: Duration = Duration::from_secs(3);

/// Polling interval for approvals of descendants and for a stopped agent: the stream of the run has neither.
const DESCENDANTS_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Page size when entries were missed.
const MISSED: usize = 100;

const HELP: &str = "\
/help    show this list
/spend   show the cost of the run
/cancel  cancel the run
/wait    hold the next line until the agent is idle or has a question; for scripts
/quit    leave the chat; the run continues (also Ctrl-C, Ctrl-D)
Every other line is a message to the agent, also while it works.
Alt-Enter, or a backslash before Enter, adds a line to the message. Pasted lines are one message.
Decide a question with y or n and an optional reason: `n, use the other account`.";

/// Output of a ready-made agent.
#[derive(serde::Deserialize)]
struct AgentOutput {
    stop: String,
}

/// End of a chat.
pub enum ChatEnd {
    /// The user left; the run stays open.
    Left,
    Closed(Status),
}

/// Progress state of a run.
#[derive(PartialEq, Eq)]
enum RunProgress {
    Busy,
    Waits,
    Closed,
}

pub struct ChatSession {
    connection: Connection,
    pub key: RunKey,
    /// Kind to start with the first message; `None` once the run exists.
    kind: Option<Name>,
    by: Option<String>,
    pub screen: Screen,
    pub actions: ActionQueue,
    stream: Option<Listener>,
    drafts: Drafts,
    /// Last entry that was printed, and all of them.
    leaf: Option<Hash>,
    shown: BTreeSet<Hash>,
    /// Messages that were typed here and are not entries yet.
    sent: VecDeque<String>,
    questions: VecDeque<ApprovalQuestion>,
    /// Tool names by the id of their call.
    tools: BTreeMap<String, String>,
    /// The input has ended.
    has_ended: bool,
    /// The next line waits until the run is idle (`/wait`).
    waits: bool,
    is_away: bool,
    /// Reasons for a blocked run that were already printed.
    printed_blockers: PrintedBlockers,
    /// A message or decision was sent, and the run has not been idle since.
    is_expecting: bool,
    /// The last pause that was printed has not ended.
    pub is_paused: bool,
}

impl ChatSession {
    pub fn new(connection: Connection, key: RunKey, kind: Option<Name>, by: Option<String>, screen: Screen) -> ChatSession {
        let actions = ActionQueue::begin(connection.clone(), key.clone());
        ChatSession {
            connection,
            key,
            kind,
            by,
            screen,
            actions,
            stream: None,
            drafts: Drafts::default(),
            leaf: None,
            shown: BTreeSet::new(),
            sent: VecDeque::new(),
            questions: VecDeque::new(),
            tools: BTreeMap::new(),
            has_ended: false,
            waits: false,
            is_away: false,
            printed_blockers: PrintedBlockers::default(),
            is_expecting: false,
            is_paused: false,
        }
    }

    /// Returns whether there is a run to return to.
    pub fn has_begun(&self) -> bool {
        self.kind.is_none()
    }

    /// Attaches to an existing run: prints its last entries and its open approvals.
    pub async fn take_up(&mut self, limit: usize) -> Result<()> {
        let page = self.entries(EntryQuery { limit, ..EntryQuery::default() }).await?;
        if page.before.is_some() {
            let all = page.depth.unwrap_or_default();
            let id = crate::directory::shell_word(self.key.id.as_str());
            self.screen
                .note(&format!("last {} of {all} entries; `onward run entries {id}` shows the others", page.entries.len()))?;
        }
        self.show_page(&page)?;
        self.reload_questions().await?;
        let view = retry_while_unreachable(|| self.connection.read_run(self.key.clone())).await?;
        self.print_stop(&view)?;
        if let Some(pause) = &view.pause {
            self.print_pause(pause).await?;
        }
        self.stream = Some(listen(self.connection.clone(), self.key.clone()));
        Ok(())
    }

    /// Runs the session until the user leaves or the run is closed.
    pub async fn run(&mut self, mut input: mpsc::UnboundedReceiver<TerminalInput>) -> Result<ChatEnd> {
        if self.questions.is_empty() {
            self.screen.prompt("> ")?;
        }
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        let mut silent_since = tokio::time::Instant::now();
        let mut poll_descendants = tokio::time::interval(DESCENDANTS_POLL_INTERVAL);
        poll_descendants.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_held = self.waits || self.has_ended;
            tokio::select! {
                typed = input.recv(), if !is_held => {
                    if let Some(over) = self.take_input(typed.unwrap_or(TerminalInput::End)).await? {
                        return Ok(over);
                    }
                }
                stream = next(&mut self.stream) => {
                    silent_since = tokio::time::Instant::now();
                    match stream {
                        Some(stream) => if let Some(over) = self.handle_stream_event(stream).await? {
                            return Ok(over);
                        },
                        None => self.stream = None,
                    }
                }
                Some((action, outcome)) = self.actions.done.recv() => self.took(action, outcome)?,
                _ = poll_descendants.tick(), if self.stream.is_some() && !self.is_away => self.poll_descendants().await?,
                _ = poll.tick() => {
                    if is_held && self.actions.open() == 0 && self.is_settled().await? {
                        self.waits = false;
                        if self.has_ended {
                            return Ok(ChatEnd::Left);
                        }
                    }
                    // Without a pending message or decision, silence is normal.
                    let expects = self.is_expecting && self.stream.is_some();
                    if silent_since.elapsed() > SILENCE && expects {
                        silent_since = tokio::time::Instant::now();
                        self.print_blockers().await?;
                    }
                }
            }
        }
    }

    async fn take_input(&mut self, input: TerminalInput) -> Result<Option<ChatEnd>> {
        match input {
            TerminalInput::Message(message) => self.take_message(&message).await,
            TerminalInput::End => {
                self.has_ended = true;
                Ok((!self.has_begun()).then_some(ChatEnd::Left))
            }
            TerminalInput::Keys(keys) => {
                let Screen::Terminal(terminal) = &mut self.screen else { return Ok(None) };
                let typed = terminal.editor.handle_keys(&keys);
                terminal.typed()?;
                for typed in typed {
                    let Typed::Message(message) = typed else { return Ok(Some(ChatEnd::Left)) };
                    if let Some(over) = self.take_message(&message).await? {
                        return Ok(Some(over));
                    }
                }
                Ok(None)
            }
        }
    }

    async fn take_message(&mut self, message: &str) -> Result<Option<ChatEnd>> {
        let message = message.trim();
        if message.is_empty() {
            return Ok(None);
        }
        if self.screen.is_terminal() {
            self.show_user_message(message)?;
        }
        if let Some(command) = message.strip_prefix('/').filter(|command| !command.contains('\n')) {
            return self.command(command).await;
        }
        if let Some(question) = self.questions.front()
            && let Some(decide) = question.decision(message, self.by.as_deref())
        {
            let call = question.call.clone();
            self.questions.pop_front();
            self.actions.add(Action::Decide { call, decide });
            self.is_expecting = true;
            self.ask_next()?;
            return Ok(None);
        }
        self.sent.push_back(message.to_owned());
        self.is_expecting = true;
        match self.kind.take() {
            Some(kind) => {
                let input = Payload::json(message)?;
                self.actions.add(Action::Start { kind, input, seed: new_id::random_u64() });
            }
            None => self.actions.add(Action::message(message)),
        }
        if !self.questions.is_empty() {
            self.screen.note("sent to the agent; the question is still open: y or n")?;
        }
        Ok(None)
    }

    async fn command(&mut self, command: &str) -> Result<Option<ChatEnd>> {
        match command {
            "quit" | "q" | "exit" => return Ok(Some(ChatEnd::Left)),
            "help" => {
                for line in HELP.lines() {
                    self.screen.note(line)?;
                }
            }
            "wait" => self.waits = self.has_begun(),
            _ if !self.has_begun() => self.screen.note("the run has not started; send a message first")?,
            "cancel" => self.actions.add(Action::Cancel),
            "spend" => self.print_spend().await?,
            other => self.screen.note(&format!("unknown command `/{other}`; `/help` lists commands"))?,
        }
        Ok(None)
    }

    async fn print_spend(&mut self) -> Result<()> {
        let head = self.connection.read_head(self.key.clone()).await?;
        let spend = head.spend.map(|spend| *spend).unwrap_or_default();
        self.screen.document(&json!({"type": "spend", "spend": spend}))?;
        let (read, written) = (spend.tokens.total() - spend.tokens.output, spend.tokens.output);
        let mut text =
            format!("{} model calls, {read} input and {written} output tokens, {} dollars", spend.attempts, spend.cost);
        if spend.unpriced > 0 {
            text.push_str(&format!("; {} without a price", spend.unpriced));
        }
        if spend.unknown > 0 {
            text.push_str(&format!("; {} of unknown cost", spend.unknown));
        }
        Ok(self.screen.note(&text)?)
    }

    /// Handles the outcome of an action.
    fn took(&mut self, action: Action, outcome: Result<(), RuntimeError>) -> Result<()> {
        self.actions.ended();
        match (action, outcome) {
            (Action::Start { .. }, Ok(())) => {
                self.screen.document(&json!({"type": "run", "id": self.key.id}))?;
                self.stream = Some(listen(self.connection.clone(), self.key.clone()));
            }
            (Action::Start { .. }, Err(error)) => return Err(error.into()),
            (_, Ok(())) => {}
            (Action::Decide { .. }, Err(error)) if error.code() == ErrorCode::SignalLost => {
                self.screen.note("the question was already decided")?;
            }
            (action, Err(error)) => {
                if let Action::Message { text, .. } = &action {
                    self.sent.retain(|sent| sent != text);
                }
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                self.screen.note(&format!("{error}{hint}"))?;
            }
        }
        Ok(())
    }

    async fn handle_stream_event(&mut self, stream: StreamEvent) -> Result<Option<ChatEnd>> {
        match stream {
            StreamEvent::Away => {
                self.is_away = true;
                self.screen.note("the server is unreachable; waiting for it")?;
            }
            StreamEvent::Back => {
                self.is_away = false;
                self.screen.note("the server is reachable again")?;
            }
            StreamEvent::Failed(error) => return Err(error.into()),
            StreamEvent::Frames(frames) => {
                let has_some = !frames.is_empty();
                for frame in frames {
                    if let Some(over) = self.take_frame(frame.content).await? {
                        return Ok(Some(over));
                    }
                }
                if has_some && !self.questions.is_empty() {
                    self.reload_questions().await?;
                }
            }
        }
        Ok(None)
    }

    async fn take_frame(&mut self, content: StreamContent) -> Result<Option<ChatEnd>> {
        match content {
            StreamContent::TaskFrame(task_frame) => {
                let words = self.drafts.push(&task_frame);
                self.show_words(words)?;
            }
            StreamContent::AttemptReset(reset) => self.drafts.reset(reset.generation, &reset.task),
            StreamContent::AttemptFailed(failed) => self.print_failed_attempt(&failed)?,
            StreamContent::TaskEnd(end) => {
                self.drafts.end(end.generation, &end.task, end.outcome == TaskOutcome::Completed);
                self.screen.end_words()?;
            }
            StreamContent::Entry(entry) => {
                if !self.shown.contains(&entry.id) {
                    let leaf = Some(EntryCursor { id: entry.id, generation: Some(entry.generation) });
                    let limit = if entry.parent == self.leaf { 1 } else { MISSED };
                    let page = self.entries(EntryQuery { leaf, limit, ..EntryQuery::default() }).await?;
                    self.show_page(&page)?;
                }
            }
            StreamContent::BranchReset(reset) => {
                self.leaf = reset.leaf;
                self.screen.note("the agent continues from an earlier entry; the entries after it are abandoned")?;
            }
            StreamContent::ApprovalRequested(approval) => self.add_question(ApprovalQuestion::of(&self.key, &approval))?,
            StreamContent::Paused(pause) => self.print_pause(&pause).await?,
            StreamContent::Resumed(_) => {
                self.is_paused = false;
                self.screen.note("resumed")?;
            }
            StreamContent::StreamReset(reset) => {
                self.drafts.reset_all();
                if let Some(id) = reset.leaf.filter(|leaf| !self.shown.contains(leaf)) {
                    // Entries after this leaf arrive as frames.
                    let leaf = Some(EntryCursor { id, generation: Some(reset.generation) });
                    let page = self.entries(EntryQuery { leaf, limit: MISSED, ..EntryQuery::default() }).await?;
                    self.show_page(&page)?;
                }
                self.reload_questions().await?;
            }
            StreamContent::End(end) => {
                self.print_end(end.status).await?;
                return Ok(Some(ChatEnd::Closed(end.status)));
            }
        }
        Ok(None)
    }

    /// Prints a pause and what to do about it.
    async fn print_pause(&mut self, pause: &RunPaused) -> Result<()> {
        self.is_paused = true;
        let advice = if pause.reason == PauseReason::BudgetExhausted {
            let head = retry_while_unreachable(|| self.connection.read_head(self.key.clone())).await?;
            format!("resume it with `{}`", budget::resume_command(&head, time::now()))
        } else {
            format!("`onward run show {}` shows details", crate::directory::shell_word(self.key.id.as_str()))
        };
        Ok(self.screen.note(&format!("paused: {}; {advice}", pause.message))?)
    }

    fn show_words(&mut self, words: NewText) -> Result<()> {
        let (text, is_anew) = match words {
            NewText::Nothing => return Ok(()),
            NewText::More(text) => (text, false),
            NewText::Anew(text) => (text, true),
        };
        if is_anew {
            self.screen.note("the answer starts again; ignore the text above")?;
        }
        self.screen.document(&json!({"type": "text", "text": text, "is_anew": is_anew}))?;
        Ok(self.screen.words(&text)?)
    }

    fn print_failed_attempt(&mut self, failed: &AttemptFailed) -> Result<()> {
        let AttemptFailed { attempt, failure, next_delay_ms, .. } = failed;
        let then = match next_delay_ms {
            Some(delay) => format!("; next attempt in {}", time::span(Duration::from_millis(*delay))),
            None => String::new(),
        };
        self.screen.document(&json!({"type": "attempt_failed", "attempt": attempt, "message": failure.message}))?;
        Ok(self.screen.note(&format!("attempt {attempt} failed: {}{then}", failure.message))?)
    }

    /// Prints the entries of a page that were not printed yet.
    fn show_page(&mut self, page: &EntryPage) -> Result<()> {
        for entry in &page.entries {
            if self.shown.insert(entry.id) {
                self.show(entry)?;
            }
            self.leaf = Some(entry.id);
        }
        Ok(())
    }

    fn show(&mut self, entry: &Entry) -> Result<()> {
        let content = &entry.content;
        self.screen.document(&json!({"type": "entry", "id": entry.id, "role": entry.role, "content": content}))?;
        let role = entry.role.as_str();
        for part in parts(entry) {
            match part {
                EntryPart::Text(text) if role == "assistant" => {
                    // In JSON the entry document has the text.
                    let words = self.drafts.finish(&text);
                    if !matches!(self.screen, Screen::Json) {
                        self.show_words(words)?;
                    }
                    self.screen.end_words()?;
                }
                EntryPart::Text(text) if text.is_empty() => {}
                EntryPart::Text(text) if role == "user" => {
                    if let Some(at) = self.sent.iter().position(|sent| *sent == text) {
                        self.sent.remove(at); // it is on the screen since it was typed
                    } else {
                        self.show_user_message(&text)?;
                    }
                }
                EntryPart::Text(text) if role == "summary" => {
                    drop(self.drafts.finish(&text));
                    self.screen.note("older entries were summarized for the model")?;
                }
                EntryPart::Text(text) => {
                    self.screen.line(&format!("{}:", escape::text(role)))?;
                    self.screen.complete_text(&text)?;
                }
                EntryPart::Call { id, name, arguments } => {
                    self.screen.end_words()?;
                    let line = format!("→ {} {}", escape::text(&name), escape::text(&arguments));
                    self.tools.insert(id, name);
                    self.screen.line(&line)?;
                }
                EntryPart::Result { call_id, text, is_error } => {
                    let name = self.tools.remove(&call_id).unwrap_or(call_id);
                    let state = if is_error { " failed" } else { "" };
                    self.screen.line(&format!("← {}{state}: {}", escape::text(&name), escape::text(&text)))?;
                }
            }
        }
        Ok(())
    }

    /// Prints a message of a user; the lines after the first are indented.
    fn show_user_message(&mut self, text: &str) -> Result<()> {
        for (number, line) in text.lines().enumerate() {
            let start = if number == 0 { ">" } else { " " };
            self.screen.painted(&format!("{start} {}", escape::text(line)), Style::bold)?;
        }
        Ok(())
    }

    fn add_question(&mut self, question: ApprovalQuestion) -> Result<()> {
        if self.questions.iter().all(|known| known.call != question.call) {
            self.questions.push_back(question);
            if self.questions.len() == 1 {
                self.ask_next()?;
            }
        }
        Ok(())
    }

    /// Prints the first open question with the exact bytes to decide.
    fn ask_next(&mut self) -> Result<()> {
        let Some(question) = self.questions.front().cloned() else { return Ok(self.screen.prompt("> ")?) };
        self.screen.document(&question.document())?;
        self.screen.painted(&format!("? {}", escape::text(&question.headline())), Style::yellow)?;
        if let Some(description) = &question.description {
            self.screen.complete_text(description)?;
        }
        if let Some(bytes) = question.bytes() {
            self.screen.exact(&bytes)?;
        }
        match question.schema() {
            None => self.screen.line("? y or n, with an optional reason")?,
            Some(schema) => {
                self.screen.exact(&schema)?;
                self.screen.line("? y with an answer in JSON that fits this schema, or n with an optional reason")?;
            }
        }
        Ok(self.screen.prompt("y/n> ")?)
    }

    /// Reloads the open approvals of the run and its descendants, with retries. Known ones may have been decided elsewhere.
    async fn reload_questions(&mut self) -> Result<()> {
        let open = retry_while_unreachable(|| self.open_questions()).await?;
        self.take_questions(open)
    }

    /// Polls for what no frame reports. Ignores an unreachable server until the next tick.
    async fn poll_descendants(&mut self) -> Result<()> {
        match self.open_questions().await {
            Err(error) if error.consequence() == Consequence::Retry => return Ok(()),
            open => self.take_questions(open?)?,
        }
        if self.is_expecting && self.actions.open() == 0 && self.sent.is_empty() {
            self.is_settled().await?;
        }
        Ok(())
    }

    async fn open_questions(&self) -> Result<Vec<ApprovalQuestion>, RuntimeError> {
        let (namespace, run) = (self.connection.namespace.clone(), Some(self.key.clone()));
        let query = WaitQuery { namespace, run, below: true, ..WaitQuery::default() };
        let mut open = Vec::new();
        for wait in self.connection.list_approvals(query).await?.waits {
            let mut question = ApprovalQuestion::from(&wait);
            if wait.run != self.key {
                let known = self.questions.iter().find(|known| known.call == question.call);
                question.agent = match known {
                    Some(known) => known.agent.clone(),
                    None => Some(self.connection.read_head(wait.run).await?.kind),
                };
            }
            open.push(question);
        }
        Ok(open)
    }

    fn take_questions(&mut self, open: Vec<ApprovalQuestion>) -> Result<()> {
        let first = self.questions.front().map(|question| question.call.clone());
        self.questions.retain(|known| open.iter().any(|question| question.call == known.call));
        if first.is_some() && self.questions.front().map(|question| &question.call) != first.as_ref() {
            self.screen.note("the question was decided elsewhere")?;
            self.ask_next()?;
        }
        // While a decision is being sent, its question is still listed as open.
        if self.actions.open() == 0 {
            for question in open {
                self.add_question(question)?;
            }
        }
        Ok(())
    }

    async fn entries(&self, query: EntryQuery) -> Result<EntryPage, RuntimeError> {
        retry_while_unreachable(|| self.connection.read_entries(EntriesRequest { run: self.key.clone(), query })).await
    }

    /// Returns whether the run waits for outside input and every entry so far was printed.
    async fn is_settled(&mut self) -> Result<bool> {
        if self.is_away || !self.has_begun() {
            return Ok(!self.has_begun());
        }
        let view = match self.connection.read_run(self.key.clone()).await {
            Err(error) if error.consequence() == Consequence::Retry => return Ok(false),
            view => view?,
        };
        // The end of a run is printed when its frame arrives.
        let asks_below = view.awaits(AwaitedKind::Child) && !self.questions.is_empty();
        if progress_of(&view) != RunProgress::Waits && !asks_below {
            return Ok(false);
        }
        if view.awaits(AwaitedKind::Approval) && self.questions.is_empty() {
            self.reload_questions().await?;
        }
        let page = self.entries(EntryQuery { limit: 1, ..EntryQuery::default() }).await?;
        let has_shown = page.leaf.is_none_or(|leaf| self.shown.contains(&leaf));
        if has_shown && std::mem::take(&mut self.is_expecting) {
            self.print_stop(&view)?;
        }
        Ok(has_shown)
    }

    /// Prints why the agent stopped, unless its model was done.
    fn print_stop(&mut self, view: &RunView) -> Result<()> {
        let Some(stop) = view.agent_stop() else { return Ok(()) };
        self.screen.document(&json!({"type": "stopped", "stop": stop}))?;
        let what = match stop {
            "budget_exhausted" => {
                format!("raise the budget with `{}`, then send a message", budget::resume_command(&view.head, time::now()))
            }
            _ => "send a message to continue".to_owned(),
        };
        Ok(self.screen.note(&format!("stopped: {}; {what}", stop_text(stop)))?)
    }

    /// Prints once that no worker serves the run, and for each task why it is blocked: once, and again if that lasts longer than
    /// announced.
    async fn print_blockers(&mut self) -> Result<()> {
        let mut found = blocked_on::of(&self.connection, &self.key).await;
        if found.iter().any(|blocker| blocker.task.is_none() && blocker.why == BlockReason::NoWorker) {
            found.retain(|blocker| blocker.task.is_none());
        } else {
            let Ok(view) = self.connection.read_run(self.key.clone()).await else { return Ok(()) };
            self.is_expecting = progress_of(&view) == RunProgress::Busy || !self.sent.is_empty();
            // Failed attempts and their next time were printed when they failed.
            found.retain(|blocker| blocker.task.is_some() && blocker.why != BlockReason::Retries);
        }
        let now = time::now();
        found.retain(|blocker| self.printed_blockers.is_new(blocker, now));
        for sentence in blocked_on::sentences(&self.connection, &found).await {
            self.screen.note(&sentence)?;
        }
        Ok(())
    }

    async fn print_end(&mut self, status: Status) -> Result<()> {
        self.screen.document(&json!({"type": "end", "status": status}))?;
        let view = retry_while_unreachable(|| self.connection.read_run(self.key.clone())).await?;
        let why = match view.outcome {
            // The failure of a canceled run only repeats the status that is printed below.
            Some(Err(failure)) if failure.is_canceled() => view.cancel_reason.filter(|reason| reason != CANCELED_HERE),
            Some(Err(Failure { code, message, .. })) => Some(format!("{message} ({code})")),
            Some(Ok(output)) => {
                output.read::<AgentOutput>().ok().filter(|outcome| outcome.stop != DONE).map(|outcome| stop_text(&outcome.stop))
            }
            None => None,
        };
        let ended = match status {
            Status::Canceled | Status::Terminated => format!("the run was {}", status.as_str()),
            status => format!("the run has {}", status.as_str()),
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        Ok(self.screen.note(&format!("{ended}{why}"))?)
    }
}

/// Waits for the next stream event; never returns without a listener.
async fn next(stream: &mut Option<Listener>) -> Option<StreamEvent> {
    match stream {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}

/// Retries `request` while the server is unreachable. The stream reader reports that to the user.
async fn retry_while_unreachable<T, F: Future<Output = Result<T, RuntimeError>>>(
    request: impl Fn() -> F,
) -> Result<T, RuntimeError> {
    loop {
        match request().await {
            Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
            answer => return answer,
        }
    }
}

/// Classifies a run: working, waiting for outside input, or closed.
fn progress_of(view: &RunView) -> RunProgress {
    let awaits = |kind| view.awaits(kind);
    match view.head.status {
        Status::Pending | Status::Running => RunProgress::Busy,
        Status::Paused => RunProgress::Waits,
        Status::Waiting if awaits(AwaitedKind::Approval) => RunProgress::Waits,
        Status::Waiting if awaits(AwaitedKind::Task) || awaits(AwaitedKind::Child) => RunProgress::Busy,
        Status::Waiting if awaits(AwaitedKind::Signal) || awaits(AwaitedKind::Promise) => RunProgress::Waits,
        Status::Waiting => RunProgress::Busy,
        _ => RunProgress::Closed,
    }
}
