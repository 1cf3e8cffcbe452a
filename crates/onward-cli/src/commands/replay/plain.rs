//! Prints the whole log at once, for pipes and files.

use anyhow::Result;
use serde::Serialize;

use super::screen::{awaiting, state};
use super::story::Story;
use crate::output::document::View;
use crate::output::{Style, print as print_text, print_json as print_document};

/// Prints every record with its events, and what the run waits for and its state after it if they changed.
pub fn print(story: &Story, from: u64) -> Result<()> {
    let style = Style::stdout();
    // Waits and state from before the first printed event count as shown.
    let before = story.lines.iter().rposition(|line| line.index.0 < from).map(|at| story.moment(at).view);
    let mut shown = before.map_or((Vec::new(), Vec::new()), |view| (awaiting(&view), state(&view)));
    for (at, line) in story.lines.iter().enumerate() {
        let last_of_record = story.lines.get(at + 1).is_none_or(|next| next.record != line.record);
        if line.index.0 < from {
            continue;
        }
        let moment = story.moment(at);
        let mut text = String::new();
        if line.offset == 0 {
            let title = if line.is_input { "input" } else { moment.record.split(": ").last().unwrap_or_default() };
            text.push_str(&format!("{}\n", style.dim(&format!("-- {title}"))));
        }
        text.push_str(&format!("{:<4} {:>10}  {:<18} {}\n", line.index.0, line.after, line.name, line.what));
        if last_of_record {
            let (waits, values) = (awaiting(&moment.view), state(&moment.view));
            if waits != shown.0 && !waits.is_empty() {
                text.push_str(&format!("       waits for: {}\n", waits.join("; ")));
            }
            if values != shown.1 && !values.is_empty() {
                text.push_str(&format!("       state: {}\n", values.join(", ")));
            }
            shown = (waits, values);
        }
        print_text(&text)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Step<'a> {
    index: u64,
    at: onward_core::Timestamp,
    commit: Option<u64>,
    event: &'a onward_core::Event,
    run: View<'a>,
}

/// Prints one JSON line for each event, with the view of the run after it.
pub fn print_json(story: &Story, from: u64) -> Result<()> {
    for (at, line) in story.lines.iter().enumerate().filter(|(_, line)| line.index.0 >= from) {
        let moment = story.moment(at);
        let commit = story.records[line.record].commit.map(|commit| commit.n);
        let step =
            Step { index: line.index.0, at: story.time(at), commit, event: story.event(at), run: View::from(&moment.view) };
        print_document(&step)?;
    }
    Ok(())
}
