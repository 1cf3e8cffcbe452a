//! The progress of a run on stderr. On a terminal, steps that run move in the last lines, and steps that are over are above them. In
//! a file, each change is a line.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use onward_core::Timestamp;
use onward_core::run::Wait;
use onward_flow::document::Flow;
use onward_flow::graph::{Graph, NodeKind};
use onward_flow::machine::{Progress, ProgressState};
use unicode_width::UnicodeWidthStr;

use crate::output::{Style, clip, escape, print_stderr, time};

/// The frames of the spinner.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The widest columns of names and of kinds, in characters.
const NAME_MAX: usize = 28;
const KIND_MAX: usize = 30;

/// The most running steps that are shown at once, and the most lines of what an approval shows.
const MOVING_MAX: usize = 12;
const SHOW_LINES: usize = 40;

/// A step that runs.
struct Running {
    progress: Progress,
    since: Timestamp,
}

pub struct ProgressScreen {
    mode: Mode,
    /// The kind and what it calls, of each step.
    kinds: BTreeMap<String, String>,
    name_width: usize,
    kind_width: usize,
    running: BTreeMap<String, Running>,
    /// The running steps in the order in which they began.
    order: Vec<String>,
    /// Lines that came while a question was open.
    held: Vec<String>,
    is_asking: bool,
    /// The moving lines on the terminal.
    drawn: usize,
    frame: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Lines,
    Silent,
}

impl ProgressScreen {
    /// Creates a screen: moving on a terminal, in lines otherwise, silent for `--json`.
    pub fn new(flow: &Flow, json: bool) -> ProgressScreen {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let mode = match io::stderr().is_terminal() && !is_dumb {
            _ if json => Mode::Silent,
            true => Mode::Live,
            false => Mode::Lines,
        };
        ProgressScreen::with_mode(flow, mode)
    }

    fn with_mode(flow: &Flow, mode: Mode) -> ProgressScreen {
        let graph = Graph::of(flow);
        let steps = graph.nodes.iter().filter(|node| !matches!(node.kind, NodeKind::Start | NodeKind::End));
        let mut kinds = BTreeMap::new();
        for node in steps {
            let detail = node.detail.as_deref().filter(|_| node.kind != NodeKind::Approval);
            let kind = detail.map_or_else(|| node.kind.as_str().to_owned(), |detail| format!("{} {detail}", node.kind.as_str()));
            kinds.insert(node.name.clone(), clip(&escape::text(&kind), KIND_MAX));
        }
        let widest = |widths: &mut dyn Iterator<Item = usize>, max| widths.max().unwrap_or(0).min(max);
        let name_width = widest(&mut kinds.keys().map(|name| escape::text(name).width()), NAME_MAX);
        let kind_width = widest(&mut kinds.values().map(|kind| kind.width()), KIND_MAX);
        ProgressScreen {
            mode,
            kinds,
            name_width,
            kind_width,
            running: BTreeMap::new(),
            order: Vec::new(),
            held: Vec::new(),
            is_asking: false,
            drawn: 0,
            frame: 0,
        }
    }

    pub fn is_live(&self) -> bool {
        self.mode == Mode::Live
    }

    /// Takes the progress of a step.
    pub fn progress(&mut self, progress: Progress, at: Timestamp) -> Result<()> {
        let known = self.running.get(&progress.step);
        let since = known.filter(|known| known.progress.times == progress.times).map_or(at, |known| known.since);
        if progress.state == ProgressState::Running {
            let is_new = known.is_none();
            if self.mode == Mode::Lines {
                let count = format_count(&progress);
                let word = if is_new || count.is_empty() { "running".to_owned() } else { count };
                self.put(&[format!("{}: {word}", escape::text(&progress.step))])?;
            }
            if is_new {
                self.order.push(progress.step.clone());
            }
            self.running.insert(progress.step.clone(), Running { progress, since });
            return self.redraw();
        }
        self.running.remove(&progress.step);
        self.order.retain(|step| *step != progress.step);
        let line = match self.mode {
            Mode::Lines => format_over(&progress, since, at),
            _ => self.format_row(&progress, mark(progress.state, Style::stderr()), since, at),
        };
        self.put(&[line])
    }

    /// Takes the end of a failed run, which is not in the progress of its steps.
    pub fn fail(&mut self, at: Timestamp) -> Result<()> {
        let running: Vec<Progress> = self.running.values().map(|running| running.progress.clone()).collect();
        for progress in running {
            self.progress(Progress { state: ProgressState::Failed, ..progress }, at)?;
        }
        Ok(())
    }

    /// Prints lines above the moving ones. The text is already escaped.
    pub fn note(&mut self, text: &str) -> Result<()> {
        let indent = if self.mode == Mode::Live { "  " } else { "" };
        let lines: Vec<String> = text.lines().map(|line| format!("{indent}{line}")).collect();
        self.put(&lines)
    }

    /// Moves the spinner.
    pub fn tick(&mut self) -> Result<()> {
        self.frame += 1;
        self.redraw()
    }

    /// Prints an approval and the prompt for the decision. Until [`ProgressScreen::resume`], nothing else is written.
    pub fn ask(&mut self, wait: &Wait) -> Result<()> {
        let style = Style::stderr();
        let mut lines = vec![format!("{} {}", style.yellow("?"), style.bold(&escape::text(&wait.title)))];
        if let Some(show) = &wait.show {
            let text = match show.read::<serde_json::Value>() {
                Ok(serde_json::Value::String(text)) => text,
                Ok(value) => format!("{value:#}"),
                Err(_) => format!("{show:?}"),
            };
            let count = text.lines().count();
            lines.extend(text.lines().take(SHOW_LINES).map(|line| format!("  {} {}", style.dim("|"), escape::text(line))));
            if count > SHOW_LINES {
                lines.push(style.dim(&format!("  | {} more lines", count - SHOW_LINES)));
            }
        }
        self.put(&lines)?;
        self.erase()?;
        self.is_asking = true;
        self.ask_again()
    }

    /// Writes the prompt.
    pub fn ask_again(&mut self) -> Result<()> {
        let mut out = io::stderr();
        write!(out, "  {} ", Style::stderr().cyan("y or n, with feedback after it:"))?;
        Ok(out.flush()?)
    }

    /// Ends the question, and prints what came meanwhile. A note gives the reason if there is no answer.
    pub fn resume(&mut self, note: &str) -> Result<()> {
        self.is_asking = false;
        if !note.is_empty() {
            print_stderr(&format!("\n  {}", Style::stderr().dim(note)));
        }
        let held = std::mem::take(&mut self.held);
        self.put(&held)
    }

    /// Removes the moving lines, and prints what is still held back.
    pub fn close(&mut self) {
        if self.is_asking {
            print_stderr("");
            drop(self.resume(""));
        }
        drop(self.erase());
        self.mode = if self.mode == Mode::Live { Mode::Lines } else { self.mode };
    }

    /// Writes lines above the moving ones.
    fn put(&mut self, lines: &[String]) -> Result<()> {
        if self.mode == Mode::Silent {
            return Ok(());
        }
        if self.is_asking {
            self.held.extend_from_slice(lines);
            return Ok(());
        }
        self.erase()?;
        lines.iter().for_each(|line| print_stderr(line));
        self.redraw()
    }

    fn erase(&mut self) -> Result<()> {
        if self.drawn > 0 {
            let mut out = io::stderr();
            write!(out, "\u{1b}[{}A\r\u{1b}[J", self.drawn)?;
            out.flush()?;
            self.drawn = 0;
        }
        Ok(())
    }

    /// Writes the moving lines again, at once, so that they do not flicker.
    fn redraw(&mut self) -> Result<()> {
        if self.mode != Mode::Live || self.is_asking {
            return Ok(());
        }
        let (style, now) = (Style::stderr(), time::now());
        let spinner = style.cyan(SPINNER[self.frame % SPINNER.len()]);
        let mut out = if self.drawn > 0 { format!("\u{1b}[{}A\r", self.drawn) } else { String::new() };
        let shown: Vec<&String> = self.order.iter().take(MOVING_MAX).collect();
        for step in &shown {
            let running = &self.running[*step];
            out.push_str(&self.format_row(&running.progress, spinner.clone(), running.since, now));
            out.push_str("\u{1b}[K\n");
        }
        self.drawn = shown.len();
        if self.order.len() > MOVING_MAX {
            out.push_str(&style.dim(&format!("  and {} more steps\u{1b}[K\n", self.order.len() - MOVING_MAX)));
            self.drawn += 1;
        }
        out.push_str("\u{1b}[J");
        let mut stderr = io::stderr();
        stderr.write_all(out.as_bytes())?;
        Ok(stderr.flush()?)
    }

    /// Formats a step in columns: state, name, kind, time, and counts or what came next.
    fn format_row(&self, progress: &Progress, mark: String, since: Timestamp, until: Timestamp) -> String {
        let style = Style::stderr();
        let width = terminal_width();
        let name = clip(&escape::text(&progress.step), self.name_width.max(4));
        let kind = self.kinds.get(&progress.step).map_or("", String::as_str);
        let room = width.saturating_sub(self.name_width + 25);
        let kind_width = self.kind_width.min(room);
        let kind = clip(kind, kind_width);
        let took = if progress.state == ProgressState::Skipped { "skipped".to_owned() } else { time::span(until.since(since)) };
        let mut notes = Vec::new();
        notes.extend(Some(format_count(progress)).filter(|count| !count.is_empty()));
        if progress.times > 1 {
            notes.push(format!("{} times", progress.times));
        }
        if progress.state == ProgressState::Failed {
            notes.extend(progress.next.first().map(|next| format!("goes to {}", escape::text(next))));
        }
        let room = width.saturating_sub(self.name_width + kind_width + 18);
        let notes = clip(&notes.join(", "), room);
        let columns =
            format!("{mark} {}  {} {:>8}  {notes}", pad(&name, self.name_width), style.dim(&pad(&kind, kind_width)), took);
        columns.trim_end().to_owned()
    }
}

fn terminal_width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

/// Fills a text with blanks up to a width on the terminal.
fn pad(text: &str, width: usize) -> String {
    format!("{text}{:1$}", "", width.saturating_sub(text.width()))
}

fn format_count(progress: &Progress) -> String {
    match (progress.done, progress.of) {
        (Some(done), Some(of)) => format!("{done} of {of}"),
        _ => String::new(),
    }
}

/// Formats the end of a step as a line.
fn format_over(progress: &Progress, since: Timestamp, at: Timestamp) -> String {
    let step = escape::text(&progress.step);
    let took = time::span(at.since(since));
    match (progress.state, progress.next.first()) {
        (ProgressState::Skipped, _) => format!("{step}: skipped"),
        (ProgressState::Canceled, _) => format!("{step}: canceled (after {took})"),
        (ProgressState::Failed, Some(next)) => format!("{step}: failed (after {took}), goes to {}", escape::text(next)),
        (ProgressState::Failed, None) => format!("{step}: failed (after {took})"),
        _ => format!("{step}: done (after {took})"),
    }
}

fn mark(state: ProgressState, style: Style) -> String {
    match state {
        ProgressState::Done => style.green("✓"),
        ProgressState::Failed => style.red("✗"),
        ProgressState::Running | ProgressState::Skipped | ProgressState::Canceled => style.dim("-"),
    }
}

#[cfg(test)]
mod tests;
