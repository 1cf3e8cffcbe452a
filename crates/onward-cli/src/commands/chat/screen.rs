//! The output of the chat: a terminal with an input line, plain lines, or JSON.
//!
//! Lines of the chat start in the first column. Text of models, tools and people is indented by two spaces, so that it cannot
//! imitate a line of the chat. Must never print a character that moves the cursor.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::editor::Editor;
use crate::output::{Style, escape, json_line, print_stderr};

const INDENT: &str = "  ";

pub enum Screen {
    Terminal(Terminal),
    Plain { is_in_words: bool },
    Json,
}

impl Screen {
    pub fn new(json: bool) -> Screen {
        if json {
            return Screen::Json;
        }
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            return Screen::Terminal(Terminal::new());
        }
        Screen::Plain { is_in_words: false }
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Screen::Terminal(_))
    }

    /// Prints a note about the chat.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let text = format!("· {}", escape::text(text));
        match self {
            Screen::Terminal(terminal) => terminal.line(&text, Style::dim),
            Screen::Plain { .. } => {
                self.end_words()?;
                print_stderr(&text);
                Ok(())
            }
            Screen::Json => Ok(()),
        }
    }

    /// Prints a line of the chat; `text` is already escaped.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.painted(text, |_, row| row.to_owned())
    }

    /// Prints a line of the chat in color; `text` is already escaped.
    pub fn painted(&mut self, text: &str, paint: fn(Style, &str) -> String) -> io::Result<()> {
        match self {
            Screen::Terminal(terminal) => terminal.line(text, paint),
            Screen::Plain { .. } => {
                self.end_words()?;
                put(&format!("{text}\n"))
            }
            Screen::Json => Ok(()),
        }
    }

    /// Prints the next piece of streamed text.
    pub fn words(&mut self, words: &str) -> io::Result<()> {
        match self {
            Screen::Terminal(terminal) => terminal.words(words),
            Screen::Plain { is_in_words } => {
                let mut text = String::new();
                for (at, line) in words.split('\n').enumerate() {
                    if at > 0 {
                        text.push('\n');
                        *is_in_words = false;
                    }
                    if !line.is_empty() {
                        text.push_str(if *is_in_words { "" } else { INDENT });
                        text.push_str(&escape::text(line));
                        *is_in_words = true;
                    }
                }
                put(&text)
            }
            Screen::Json => Ok(()),
        }
    }

    /// Ends the streamed text.
    pub fn end_words(&mut self) -> io::Result<()> {
        match self {
            Screen::Terminal(terminal) => terminal.end_words(),
            Screen::Plain { is_in_words } => {
                let ends = std::mem::take(is_in_words);
                if ends { put("\n") } else { Ok(()) }
            }
            Screen::Json => Ok(()),
        }
    }

    /// Prints a complete text.
    pub fn complete_text(&mut self, text: &str) -> io::Result<()> {
        self.end_words()?;
        self.words(text)?;
        self.end_words()
    }

    /// Prints the bytes that a decision covers. Drops no blanks at row ends.
    pub fn exact(&mut self, text: &str) -> io::Result<()> {
        self.end_words()?;
        match self {
            Screen::Terminal(terminal) => terminal.exact(text),
            _ => self.complete_text(text),
        }
    }

    /// Prints a JSON document if the screen is JSON.
    pub fn document(&mut self, document: &Value) -> anyhow::Result<()> {
        if matches!(self, Screen::Json) {
            put(&format!("{}\n", json_line(document)?))?;
        }
        Ok(())
    }

    pub fn prompt(&mut self, prompt: &'static str) -> io::Result<()> {
        match self {
            Screen::Terminal(terminal) if terminal.prompt != prompt => {
                terminal.prompt = prompt;
                terminal.draw("")
            }
            _ => Ok(()),
        }
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A terminal: finished rows scroll up; below them are the unfinished row of streamed text and the input.
pub struct Terminal {
    pub editor: Editor,
    prompt: &'static str,
    style: Style,
    /// Unfinished row without its indent, and whether text is being streamed.
    row: String,
    is_in_words: bool,
    /// Number of drawn rows above the cursor's row.
    rows_above: usize,
}

impl Terminal {
    fn new() -> Terminal {
        Terminal {
            editor: Editor::default(),
            prompt: "",
            style: Style::stdout(),
            row: String::new(),
            is_in_words: false,
            rows_above: 0,
        }
    }

    fn width() -> usize {
        crate::output::width().unwrap_or(80).max(20)
    }

    /// Prints a line of the chat. Continuation rows are indented, so that they do not look like another line.
    fn line(&mut self, text: &str, paint: fn(Style, &str) -> String) -> io::Result<()> {
        let mut rows = self.take_row();
        let (mut rest, mut indent) = (text.to_owned(), "");
        while let Some(row) = full_row(&mut rest, Terminal::width() - indent.len() - 1, RowCut::BetweenWords) {
            rows.push_str(&format!("{indent}{}\n", paint(self.style, &row)));
            indent = INDENT;
        }
        self.draw(&format!("{rows}{indent}{}\n", paint(self.style, &rest)))
    }

    fn exact(&mut self, text: &str) -> io::Result<()> {
        let (mut rows, mut rest) = (String::new(), escape::text(text).into_owned());
        while let Some(row) = full_row(&mut rest, Terminal::width() - INDENT.len() - 1, RowCut::Anywhere) {
            rows.push_str(&format!("{INDENT}{row}\n"));
        }
        self.draw(&format!("{rows}{INDENT}{rest}\n"))
    }

    fn words(&mut self, words: &str) -> io::Result<()> {
        let mut rows = String::new();
        for (at, line) in words.split('\n').enumerate() {
            if at > 0 {
                rows.push_str(&self.take_row());
            }
            self.is_in_words = true;
            self.row.push_str(&escape::text(line));
            while let Some(full) = full_row(&mut self.row, Terminal::width() - INDENT.len() - 1, RowCut::BetweenWords) {
                rows.push_str(&format!("{INDENT}{full}\n"));
            }
        }
        self.draw(&rows)
    }

    fn end_words(&mut self) -> io::Result<()> {
        let rows = if self.row.is_empty() { String::new() } else { self.take_row() };
        self.is_in_words = false;
        self.row.clear();
        if rows.is_empty() { Ok(()) } else { self.draw(&rows) }
    }

    /// Takes the unfinished row as a finished one.
    fn take_row(&mut self) -> String {
        if !std::mem::take(&mut self.is_in_words) {
            return String::new();
        }
        let row = std::mem::take(&mut self.row);
        if row.is_empty() { "\n".to_owned() } else { format!("{INDENT}{row}\n") }
    }

    /// Redraws the input line after key presses.
    pub fn typed(&mut self) -> io::Result<()> {
        self.draw("")
    }

    /// Erases everything below the finished rows.
    pub fn close(&mut self) -> io::Result<()> {
        self.end_words()?;
        put(&self.erase())
    }

    fn erase(&mut self) -> String {
        let up = std::mem::take(&mut self.rows_above);
        let up = if up > 0 { format!("\u{1b}[{up}A") } else { String::new() };
        format!("\r{up}\u{1b}[J")
    }

    /// Inserts `rows` above the unfinished part and redraws that part.
    fn draw(&mut self, rows: &str) -> io::Result<()> {
        let mut out = self.erase();
        out.push_str(rows);
        if !self.row.is_empty() {
            out.push_str(&format!("{INDENT}{}\n", self.row));
            self.rows_above = 1;
        }
        let (text, cursor) = self.editor.line();
        let input = InputRows::new(text, cursor, Terminal::width() - self.prompt.len() - 1);
        for (number, row) in input.rows.iter().enumerate() {
            let start = if number == 0 { self.style.cyan(self.prompt) } else { format!("\n{}", " ".repeat(self.prompt.len())) };
            out.push_str(&format!("{start}{}", escape::text(row)));
        }
        out.push('\r');
        let (below, column) = (input.rows.len() - 1 - input.cursor_row, self.prompt.len() + input.column);
        for (count, direction) in [(below, 'A'), (column, 'C')] {
            if count > 0 {
                out.push_str(&format!("\u{1b}[{count}{direction}"));
            }
        }
        self.rows_above += input.cursor_row;
        put(&out)
    }
}

/// Positions at which a row may be cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowCut {
    /// At a blank if possible; the blanks at the cut are dropped.
    BetweenWords,
    Anywhere,
}

/// Cuts a full row off the start of `row` if that is wider than `width`.
fn full_row(row: &mut String, width: usize, cut: RowCut) -> Option<String> {
    if row.width() <= width {
        return None;
    }
    let (mut used, mut end, mut blank) = (0, 0, None);
    for (at, c) in row.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        end = at + c.len_utf8();
        if c == ' ' {
            blank = Some(at);
        }
    }
    if cut == RowCut::Anywhere {
        let rest = row.split_off(end);
        return Some(std::mem::replace(row, rest));
    }
    let is_between = row[end..].starts_with(' ');
    let at = if is_between { end } else { blank.filter(|at| *at > 0).unwrap_or(end) };
    let rest = row.split_off(at);
    let full = std::mem::replace(row, rest.trim_start_matches(' ').to_owned());
    Some(full)
}

/// Maximum number of rows of the input that are drawn.
const INPUT_ROWS_MAX: usize = 8;

/// The drawn rows of the input, one for each line around the cursor.
struct InputRows {
    rows: Vec<String>,
    cursor_row: usize,
    column: usize,
}

impl InputRows {
    fn new(text: &[char], cursor: usize, width: usize) -> InputRows {
        let number = text[..cursor].iter().filter(|c| **c == '\n').count();
        let start = text[..cursor].iter().rposition(|c| *c == '\n').map_or(0, |at| at + 1);
        let first = (number + 1).saturating_sub(INPUT_ROWS_MAX);
        let lines = text.split(|c| *c == '\n').skip(first).take(INPUT_ROWS_MAX);
        let (cursor_row, mut column) = (number - first, 0);
        let row = |(at, line): (usize, &[char])| {
            let in_line = if at == cursor_row { cursor - start } else { 0 };
            let (shown, cursor_column) = window(line, in_line, width);
            column = if at == cursor_row { cursor_column } else { column };
            shown
        };
        let rows = lines.enumerate().map(row).collect();
        InputRows { rows, cursor_row, column }
    }
}

/// Returns the part of the line around the cursor that fits, and the cursor's column in it.
fn window(line: &[char], cursor: usize, width: usize) -> (String, usize) {
    let columns = |part: &[char]| part.iter().map(|c| c.width().unwrap_or(0)).sum::<usize>();
    let mut from = 0;
    while columns(&line[from..cursor]) > width {
        from += 1;
    }
    let mut to = line.len();
    while columns(&line[from..to]) > width {
        to -= 1;
    }
    (line[from..to].iter().collect(), columns(&line[from..cursor]))
}

#[cfg(test)]
mod tests;
