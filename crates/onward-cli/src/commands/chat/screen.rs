//! Where the chat is shown: a terminal with a line to type into, plain lines, or JSON.
//!
//! Lines of ours begin in the first column, and what models, tools and people said stands behind two blanks, so that nothing that somebody
//! said can look like a line of ours. Must never let a character through that moves the cursor.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::editor::Editor;
use crate::output::{Style, escape, json_line, say};

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

    /// A line about the chat.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let text = format!("· {}", escape::text(text));
        match self {
            Screen::Terminal(terminal) => terminal.line(&text, Style::dim),
            Screen::Plain { .. } => {
                self.end_words()?;
                say(&text);
                Ok(())
            }
            Screen::Json => Ok(()),
        }
    }

    /// A line of the chat itself; `text` is harmless.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.painted(text, |_, row| row.to_owned())
    }

    /// The same in color.
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

    /// Words of somebody, as they come.
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

    /// The words are at their end.
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

    /// Words that are there as a whole.
    pub fn said(&mut self, text: &str) -> io::Result<()> {
        self.end_words()?;
        self.words(text)?;
        self.end_words()
    }

    /// Bytes that somebody agrees to: none is left out where a row ends.
    pub fn exact(&mut self, text: &str) -> io::Result<()> {
        self.end_words()?;
        match self {
            Screen::Terminal(terminal) => terminal.exact(text),
            _ => self.said(text),
        }
    }

    /// A document for programs.
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

/// Rows that are final scroll up; below them are the row of words that is not full yet, and the line that is typed.
pub struct Terminal {
    pub editor: Editor,
    prompt: &'static str,
    style: Style,
    /// The row that is not full, without its indent, and whether words are under way.
    row: String,
    is_in_words: bool,
    /// What is drawn at this moment: how many rows are above the cursor's.
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

    /// A line of ours. Where it is too long it goes on behind two blanks: the rest of it must not look like another one.
    fn line(&mut self, text: &str, paint: fn(Style, &str) -> String) -> io::Result<()> {
        let mut rows = self.take_row();
        let (mut rest, mut indent) = (text.to_owned(), "");
        while let Some(row) = full_row(&mut rest, Terminal::width() - indent.len() - 1, Cut::BetweenWords) {
            rows.push_str(&format!("{indent}{}\n", paint(self.style, &row)));
            indent = INDENT;
        }
        self.draw(&format!("{rows}{indent}{}\n", paint(self.style, &rest)))
    }

    fn exact(&mut self, text: &str) -> io::Result<()> {
        let (mut rows, mut rest) = (String::new(), escape::text(text).into_owned());
        while let Some(row) = full_row(&mut rest, Terminal::width() - INDENT.len() - 1, Cut::Anywhere) {
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
            while let Some(full) = full_row(&mut self.row, Terminal::width() - INDENT.len() - 1, Cut::BetweenWords) {
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

    /// The row that is not full, as if it were.
    fn take_row(&mut self) -> String {
        if !std::mem::take(&mut self.is_in_words) {
            return String::new();
        }
        let row = std::mem::take(&mut self.row);
        if row.is_empty() { "\n".to_owned() } else { format!("{INDENT}{row}\n") }
    }

    /// Keys were pressed: shows the line as it is now.
    pub fn typed(&mut self) -> io::Result<()> {
        self.draw("")
    }

    /// Everything below what is final goes, for whoever leaves.
    pub fn close(&mut self) -> io::Result<()> {
        self.end_words()?;
        put(&self.erase())
    }

    fn erase(&mut self) -> String {
        let up = std::mem::take(&mut self.rows_above);
        let up = if up > 0 { format!("\u{1b}[{up}A") } else { String::new() };
        format!("\r{up}\u{1b}[J")
    }

    /// Puts `rows` above what is not final, and draws that anew.
    fn draw(&mut self, rows: &str) -> io::Result<()> {
        let mut out = self.erase();
        out.push_str(rows);
        if !self.row.is_empty() {
            out.push_str(&format!("{INDENT}{}\n", self.row));
            self.rows_above = 1;
        }
        let (line, cursor) = self.editor.line();
        let (shown, column) = window(line, cursor, Terminal::width() - self.prompt.len() - 1);
        out.push_str(&format!("{}{}\r", self.style.cyan(self.prompt), escape::text(&shown)));
        if self.prompt.len() + column > 0 {
            out.push_str(&format!("\u{1b}[{}C", self.prompt.len() + column));
        }
        put(&out)
    }
}

/// Where a row may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// If that is possible; the blanks there are left out.
    BetweenWords,
    Anywhere,
}

/// Takes a row from the beginning of `row` if it is wider than `width`.
fn full_row(row: &mut String, width: usize, cut: Cut) -> Option<String> {
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
    if cut == Cut::Anywhere {
        let rest = row.split_off(end);
        return Some(std::mem::replace(row, rest));
    }
    let is_between = row[end..].starts_with(' ');
    let at = if is_between { end } else { blank.filter(|at| *at > 0).unwrap_or(end) };
    let rest = row.split_off(at);
    let full = std::mem::replace(row, rest.trim_start_matches(' ').to_owned());
    Some(full)
}

/// The part of a line around the cursor that fits, and the cursor's column in it.
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
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_between_words_where_that_is_possible() {
        let cut = |text: &str, width: usize, cut: Cut| {
            let (mut row, mut rows) = (text.to_owned(), Vec::new());
            while let Some(full) = full_row(&mut row, width, cut) {
                rows.push(full);
            }
            rows.push(row);
            rows
        };
        let rows = |text: &str, width: usize| cut(text, width, Cut::BetweenWords);
        assert_eq!(cut("a  b   c", 3, Cut::Anywhere), ["a  ", "b  ", " c"], "to the byte");
        assert_eq!(rows("one two three", 7), ["one two", "three"]);
        assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("漢字漢字", 5), ["漢字", "漢字"], "each is two columns wide");
    }

    #[test]
    fn the_cursor_stays_in_sight() {
        let line: Vec<char> = "abcdefgh".chars().collect();
        assert_eq!(window(&line, 0, 4), ("abcd".to_owned(), 0));
        assert_eq!(window(&line, 8, 4), ("efgh".to_owned(), 4));
        assert_eq!(window(&line, 5, 4), ("bcde".to_owned(), 4));
    }
}
