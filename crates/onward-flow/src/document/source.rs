//! The text of a document: what the parser reads, and positions in it.

use saphyr_parser::ScalarStyle;

use super::problem::{Problem, Problems, Severity};
use super::yaml::{BYTES_MAX, Kind, SourcePosition, YamlNode};

/// Maximum bytes of a line in which positions inside of scalars are searched; in a longer one they are those of the scalars.
const LINE_MAX: usize = 10_000;

/// The text of a document, prepared for the parser of YAML.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    text: String,
    /// Where lines begin, in bytes.
    lines: Vec<usize>,
    /// Places (line and column, from 0, behind it) where the text is two characters shorter than the document.
    shifts: Vec<(usize, usize)>,
}

impl Source {
    /// Prepares a text; `None`, with a problem, if it is too large or has characters that no document may have.
    pub fn new(text: &str, problems: &mut Problems) -> Option<Source> {
        let start = SourcePosition { line: 1, column: 1 };
        if text.len() > BYTES_MAX {
            let message = format!("the document has {} bytes, more than {BYTES_MAX}", text.len());
            problems.add(Problem::new(Severity::Error, "too_large", start, "", message));
            return None;
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let mut source = Source { lines: line_starts(&text), text, shifts: Vec::new() };
        let is_forbidden = |c: char| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || c == '\u{7f}';
        if let Some(at) = source.text.find(is_forbidden) {
            let code = source.text[at..].chars().next().map_or(0, u32::from);
            let message = format!("the document has the control character U+{code:04X}");
            let problem = Problem::new(Severity::Error, "control_character", source.position_of(at), "", message);
            problems.add(problem.hint("write it as an escape in a quoted text: \"\\x00\""));
            return None;
        }
        if source.text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(&source.text).is_ok() {
            source.accept_json();
        }
        Some(source)
    }

    /// Changes what JSON allows and the parser does not: tabs between tokens, and characters as pairs of escapes.
    fn accept_json(&mut self) {
        let (mut text, mut rest) = (String::with_capacity(self.text.len()), self.text.as_str());
        let (mut line, mut column, mut in_text) = (0, 0, false);
        while let Some(c) = rest.chars().next() {
            let mut length = c.len_utf8();
            match c {
                '\\' if in_text => match surrogate_pair(rest) {
                    Some(pair) => {
                        text.push_str(&format!("\\U{:08X}", u32::from(pair)));
                        length = 12;
                        column += 9;
                        self.shifts.push((line, column + 1));
                    }
                    None => {
                        length += rest[1..].chars().next().map_or(0, char::len_utf8);
                        text.push_str(&rest[..length]);
                        column += 1;
                    }
                },
                '\t' if !in_text => text.push(' '),
                _ => text.push(c),
            }
            in_text ^= c == '"';
            column += 1;
            if c == '\n' {
                (line, column) = (line + 1, 0);
            }
            rest = &rest[length..];
        }
        self.lines = line_starts(&text);
        self.text = text;
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a line, counted from 1, without its end.
    pub fn line(&self, line: usize) -> &str {
        let start = self.lines.get(line.wrapping_sub(1)).copied().unwrap_or(self.text.len());
        let end = self.lines.get(line).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// Returns the position of a line, counted from 1, and a column, counted from 0, of the text.
    pub fn position(&self, line: usize, column: usize) -> SourcePosition {
        let first = self.shifts.partition_point(|(at, _)| at + 1 < line);
        let end = self.shifts.partition_point(|(at, from)| (at + 1, *from) <= (line, column));
        SourcePosition { line, column: column + 1 + 2 * (end - first) }
    }

    /// Returns the position of a byte.
    fn position_of(&self, byte: usize) -> SourcePosition {
        let line = self.lines.partition_point(|start| *start <= byte).max(1);
        let column = self.text[self.lines[line - 1]..byte].chars().count();
        self.position(line, column)
    }

    /// Returns the byte of a position.
    fn byte_of(&self, at: SourcePosition) -> usize {
        let start = self.lines.get(at.line - 1).copied().unwrap_or(self.text.len());
        let line = self.line(at.line);
        let shifted = |(column, _): &(usize, (usize, char))| self.position(at.line, *column).column < at.column;
        let skipped = line.char_indices().enumerate().take_while(shifted).last();
        start + skipped.map_or(0, |(_, (byte, c))| byte + c.len_utf8())
    }

    /// Returns the position of a byte of the text of a scalar.
    ///
    /// Text and scalar are the same but for white space, indentation and escapes: the characters before it are counted in both.
    pub fn inside(&self, node: &YamlNode, offset: usize) -> SourcePosition {
        let Kind::Scalar { style, .. } = node.kind else { return node.at };
        let Some(text) = node.as_text() else { return node.at };
        let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = text[..offset].chars().filter(|c| !c.is_whitespace()).count();
        // White space is behind the character before it.
        let is_white = text[offset..].chars().next().is_none_or(char::is_whitespace);
        let wanted = if is_white { before.saturating_sub(1) } else { before };
        if self.line(node.at.line).len() > LINE_MAX {
            return node.at;
        }
        let start = self.byte_of(node.at);
        let mut rest = &self.text[start..];
        if matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted) {
            rest = rest.get(1..).unwrap_or("");
        }
        let mut seen = 0;
        while !rest.is_empty() {
            let (length, counts) = unit(rest, style);
            if counts {
                if seen == wanted {
                    let byte = self.text.len() - rest.len();
                    return self.position_of(if is_white && before > 0 { byte + length } else { byte });
                }
                seen += 1;
            }
            rest = &rest[length..];
        }
        node.at
    }
}

/// Returns the length of the first character of a scalar as it is written, and whether it is more than white space.
fn unit(rest: &str, style: ScalarStyle) -> (usize, bool) {
    let first = rest.chars().next().unwrap_or(' ');
    match (style, first) {
        (ScalarStyle::SingleQuoted, '\'') if rest.starts_with("''") => (2, true),
        (ScalarStyle::DoubleQuoted, '\\') => {
            let escaped = rest[1..].chars().next().unwrap_or(' ');
            let digits = match escaped {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            let length = (1 + escaped.len_utf8() + digits).min(rest.len());
            let code = rest.get(2..length).filter(|_| digits > 0).and_then(|code| u32::from_str_radix(code, 16).ok());
            let is_white = match code {
                Some(code) => char::from_u32(code).is_some_and(char::is_whitespace),
                None => matches!(escaped, 'n' | 'r' | 't' | 'v' | 'f' | 'N' | '_' | 'L' | 'P' | ' ' | '\t' | '\n' | '\r'),
            };
            let end = (length..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            (end, !is_white)
        }
        (_, c) => (c.len_utf8(), !c.is_whitespace()),
    }
}

/// Returns where lines begin. A line ends with a line feed, a carriage return, or both.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = (0..bytes.len()).filter(|at| bytes[*at] == b'\n' || (bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n')));
    std::iter::once(0).chain(ends.map(|at| at + 1)).collect()
}

/// Returns the character that two escapes at the start of a text are.
fn surrogate_pair(text: &str) -> Option<char> {
    let half = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let units = [half(text)?, half(text.get(6..)?)?];
    let mut characters = char::decode_utf16(units);
    match (characters.next(), characters.next()) {
        (Some(Ok(c)), None) => Some(c),
        _ => None,
    }
}
