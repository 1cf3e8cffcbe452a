//! Renders one position of the log as rows of text for a given size. Does no I/O.

use onward_core::view::RunView;

use super::timeline::Timeline;
use crate::commands::run::awaited_word;
use crate::output::{clip, escape, preview, time};

/// Minimum width for two columns: the log beside the details instead of above them.
const WIDE: usize = 130;

/// The last line: keys and their effects.
const HELP: &str = "→ next  ← back  ↓↑ by record  PgDn PgUp by ten  Home End  q quit";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Title,
    Current,
    Dim,
    Input,
}

/// A line of the screen, at most as long as the screen is wide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    pub paint: Paint,
}

fn row(text: impl Into<String>, paint: Paint) -> Row {
    Row { text: text.into(), paint }
}

/// Renders exactly `height` rows of at most `width` characters, in two columns if the screen is wide.
pub fn draw(timeline: &Timeline, at: usize, width: usize, height: usize) -> Vec<Vec<Row>> {
    let (width, height) = (width.max(20), height.max(6));
    let moment = timeline.moment(at);
    let body = height - 3;
    let mut rows = vec![vec![row(head(timeline, at, &moment.view, width), Paint::Title)]];
    if width >= WIDE {
        let left = width * 55 / 100;
        let log = log(timeline, at, left - 1, body);
        let detail = fitted(detail(timeline, at, &moment, width - left), width - left, body);
        for (log, detail) in log.into_iter().zip(detail) {
            let text = format!("{:left$}", log.text);
            rows.push(vec![Row { text, ..log }, detail]);
        }
    } else {
        let above = (body * 45 / 100).clamp(1, (body - 2).max(1));
        rows.extend(log(timeline, at, width, above).into_iter().map(|row| vec![row]));
        rows.push(vec![row("─".repeat(width), Paint::Dim)]);
        let below = fitted(detail(timeline, at, &moment, width), width, body - above - 1);
        rows.extend(below.into_iter().map(|row| vec![row]));
    }
    rows.push(vec![row("", Paint::Plain)]);
    rows.push(vec![row(clip(HELP, width), Paint::Dim)]);
    rows
}

fn head(timeline: &Timeline, at: usize, view: &RunView, width: usize) -> String {
    let line = &timeline.lines[at];
    let (id, kind) = (escape::text(timeline.key.id.as_str()), escape::text(view.head.kind.as_str()));
    let generation = if view.head.generation > 0 { format!("  generation {}", view.head.generation) } else { String::new() };
    let left = format!(" {id}  {kind}{generation}");
    let right = format!("{}  event {} of {}  {} ", view.head.status, line.index.0, timeline.last(), line.after);
    let gap = width.saturating_sub(left.chars().count() + right.chars().count());
    clip(&format!("{left}{}{right}", " ".repeat(gap.max(1))), width)
}

/// Renders the events around the current one.
fn log(timeline: &Timeline, at: usize, width: usize, height: usize) -> Vec<Row> {
    let first = at.saturating_sub(height / 2).min(timeline.lines.len().saturating_sub(height));
    let lines = timeline.lines.iter().enumerate().skip(first).take(height).map(|(number, line)| {
        let mark = if number == at { "▶" } else { " " };
        let joined = if line.offset > 0 { "│" } else { " " };
        let text = format!("{mark}{:>4} {:>10} {joined}{:<18} {}", line.index.0, line.after, line.name, line.what);
        let paint = match (number == at, number > at, line.is_input) {
            (true, _, _) => Paint::Current,
            (_, true, _) => Paint::Dim,
            (_, _, true) => Paint::Input,
            _ => Paint::Plain,
        };
        row(clip(&text, width), paint)
    });
    let mut rows: Vec<Row> = lines.collect();
    rows.resize(height, row("", Paint::Plain));
    rows
}

/// Renders the current event and the run after it.
fn detail(timeline: &Timeline, at: usize, moment: &super::timeline::Moment, width: usize) -> Vec<Row> {
    let mut rows = vec![row(timeline.lines[at].name, Paint::Title)];
    rows.extend(wrapped(&escape::text(&moment.record), width, Paint::Dim));
    let calls: Vec<String> = moment.calls.iter().map(|at| line_text(timeline, *at)).collect();
    section(&mut rows, "calls of the code", &calls, width);
    section(&mut rows, "waits for", &awaiting(&moment.view), width);
    section(&mut rows, "state", &state(&moment.view), width);
    if let Some(pause) = &moment.view.pause {
        section(&mut rows, "paused", &[escape::text(&pause.message).into_owned()], width);
    }
    match &moment.view.outcome {
        Some(Ok(output)) => section(&mut rows, "output", &[preview(output)], width),
        Some(Err(failure)) => {
            let text = format!("[{}] {failure}", failure.code);
            section(&mut rows, "failure", &[escape::text(&text).into_owned()], width);
        }
        None => {}
    }
    section(&mut rows, "event", &whole(timeline, at), width);
    rows
}

fn line_text(timeline: &Timeline, at: usize) -> String {
    let line = &timeline.lines[at];
    format!("{} {}", line.name, line.what)
}

fn section(rows: &mut Vec<Row>, title: &str, lines: &[String], width: usize) {
    if lines.is_empty() {
        return;
    }
    rows.push(row(title, Paint::Title));
    for line in lines {
        rows.push(row(clip(&format!("  {line}"), width), Paint::Plain));
    }
}

/// Describes what the run waits for, longest wait first.
pub fn awaiting(view: &RunView) -> Vec<String> {
    let one = |awaited: &onward_core::view::Awaited| {
        let kind = awaited_word(awaited.kind);
        let name = awaited.name.as_ref().map(|name| format!(" {}", escape::text(name.as_str()))).unwrap_or_default();
        let child = awaited.child.as_ref().map(|child| format!(" ({})", escape::text(child.as_str()))).unwrap_or_default();
        let until = awaited.deadline.map(|deadline| format!(", {}", time::until(deadline, awaited.since))).unwrap_or_default();
        format!("{kind}{name}{child}{until}")
    };
    view.awaiting.iter().map(one).collect()
}

pub fn state(view: &RunView) -> Vec<String> {
    view.state.iter().map(|(key, value)| format!("{} = {}", escape::text(key.as_str()), preview(value))).collect()
}

/// Returns the JSON fields of the event, one per line.
fn whole(timeline: &Timeline, at: usize) -> Vec<String> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(timeline.event(at)) else { return Vec::new() };
    let fields = fields.into_iter().filter(|(name, value)| name != "type" && !value.is_null());
    fields.map(|(name, value)| escape::text(&format!("{name}: {value}")).into_owned()).collect()
}

fn wrapped(text: &str, width: usize, paint: Paint) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for word in text.split(' ') {
        match rows.last_mut() {
            Some(last) if last.text.chars().count() + 1 + word.chars().count() <= width => last.text += &format!(" {word}"),
            _ => rows.push(row(clip(word, width), paint)),
        }
    }
    rows
}

/// Pads or truncates to exactly `height` rows. The last row counts truncated rows.
fn fitted(mut rows: Vec<Row>, width: usize, height: usize) -> Vec<Row> {
    if rows.len() > height && height > 0 {
        let left = rows.len() - (height - 1);
        rows.truncate(height - 1);
        rows.push(row(clip(&format!("… {left} more lines; enlarge the window"), width), Paint::Dim));
    }
    rows.resize(height, row("", Paint::Plain));
    rows
}

#[cfg(test)]
mod tests;
