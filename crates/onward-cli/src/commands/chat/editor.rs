//! The editor of the input: keyboard bytes in, messages out. Does no I/O.
//!
//! Enter completes a message. Alt-Enter, a backslash before Enter, and line ends in pasted text add a line to it. Terminals mark
//! pasted text with escape sequences ("bracketed paste").

/// Result of keyboard input.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A message of one or more lines.
    Message(String),
    /// End of input (Ctrl-D).
    End,
}

#[derive(Debug, Default)]
pub struct Editor {
    line: Vec<char>,
    cursor: usize,
    /// Start of an incomplete character or escape sequence.
    rest: Vec<u8>,
    /// History, and the index of the entry that is shown.
    earlier: Vec<String>,
    shown: Option<usize>,
    /// Between the start and the end of pasted text.
    is_pasting: bool,
}

/// Sequences after an escape that surround pasted text.
const PASTE_START: &[u8] = b"[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

impl Editor {
    /// Processes keyboard bytes and returns the completed messages.
    pub fn handle_keys(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let (mut typed, mut rest) = (Vec::new(), all.as_slice());
        while let Some((&first, behind)) = rest.split_first() {
            let taken = match first {
                // The end of the paste may be cut off at the end of the bytes.
                0x1b if self.is_pasting && rest.len() < PASTE_END.len() && PASTE_END.starts_with(rest) => break,
                // The line feed of a pasted CRLF may follow in the next bytes.
                b'\r' if self.is_pasting && behind.is_empty() => break,
                b'\r' if self.is_pasting && behind.first() == Some(&b'\n') => 1,
                b'\r' | b'\n' if self.is_pasting => {
                    self.insert('\n');
                    1
                }
                b'\t' if self.is_pasting => {
                    (0..4).for_each(|_| self.insert(' '));
                    1
                }
                0x1b => match sequence(rest) {
                    Some((sequence, taken)) => {
                        if !self.is_pasting || sequence == &PASTE_END[1..] {
                            self.move_by(sequence);
                        }
                        taken
                    }
                    None => break,
                },
                0x20..=0x7e => {
                    self.insert(char::from(first));
                    1
                }
                0x80.. => match character(rest) {
                    Some((c, taken)) => {
                        c.into_iter().for_each(|c| self.insert(c));
                        taken
                    }
                    None => break,
                },
                _ if self.is_pasting => 1,
                _ => {
                    typed.extend(self.control(first));
                    1
                }
            };
            rest = if taken == 1 { behind } else { &rest[taken..] };
        }
        self.rest = rest.to_vec();
        typed
    }

    /// Returns the text and the cursor position in it.
    pub fn line(&self) -> (&[char], usize) {
        (&self.line, self.cursor)
    }

    fn insert(&mut self, c: char) {
        self.line.insert(self.cursor, c);
        self.cursor += 1;
    }

    fn control(&mut self, byte: u8) -> Option<Typed> {
        match byte {
            b'\r' | b'\n' if self.cursor == self.line.len() && self.line.last() == Some(&'\\') => {
                self.line.pop();
                self.cursor = self.line.len();
                self.insert('\n');
            }
            b'\r' | b'\n' => {
                let line: String = std::mem::take(&mut self.line).into_iter().collect();
                (self.cursor, self.shown) = (0, None);
                if !line.is_empty() && self.earlier.last() != Some(&line) {
                    self.earlier.push(line.clone());
                }
                return Some(Typed::Message(line));
            }
            0x04 if self.line.is_empty() => return Some(Typed::End), // Ctrl-D
            0x7f | 0x08 if self.cursor > 0 => {
                self.cursor -= 1;
                self.line.remove(self.cursor);
            }
            0x01 => self.cursor = 0,                 // Ctrl-A
            0x05 => self.cursor = self.line.len(),   // Ctrl-E
            0x0b => self.line.truncate(self.cursor), // Ctrl-K
            0x15 => self.cut(0),                     // Ctrl-U
            0x17 => self.cut(self.word_before()),    // Ctrl-W
            _ => {}
        }
        None
    }

    /// Deletes the text between `from` and the cursor.
    fn cut(&mut self, from: usize) {
        self.line.drain(from..self.cursor);
        self.cursor = from;
    }

    fn word_before(&self) -> usize {
        let before = &self.line[..self.cursor];
        let end = before.iter().rposition(|c| *c != ' ').map_or(0, |at| at + 1);
        before[..end].iter().rposition(|c| *c == ' ').map_or(0, |at| at + 1)
    }

    fn move_by(&mut self, sequence: &[u8]) {
        match sequence {
            b"[C" | b"OC" => self.cursor = (self.cursor + 1).min(self.line.len()),
            b"[D" | b"OD" => self.cursor = self.cursor.saturating_sub(1),
            b"[H" | b"OH" | b"[1~" | b"[7~" => self.cursor = 0,
            b"[F" | b"OF" | b"[4~" | b"[8~" => self.cursor = self.line.len(),
            b"[3~" if self.cursor < self.line.len() => drop(self.line.remove(self.cursor)),
            b"[A" | b"OA" => self.show(self.shown.unwrap_or(self.earlier.len()).checked_sub(1)),
            b"[B" | b"OB" => self.show(self.shown.map(|at| at + 1)),
            b"\r" | b"\n" => self.insert('\n'), // Alt-Enter
            PASTE_START => self.is_pasting = true,
            b"[201~" => self.is_pasting = false,
            _ => {}
        }
    }

    /// Shows a history entry. After the last one comes an empty line.
    fn show(&mut self, at: Option<usize>) {
        let Some(at) = at else { return };
        self.line = self.earlier.get(at).map(|line| line.chars().collect()).unwrap_or_default();
        self.cursor = self.line.len();
        self.shown = Some(at).filter(|at| *at < self.earlier.len());
    }
}

/// Returns the sequence after an escape and its total length, or `None` if it is incomplete. A lone escape is ignored.
fn sequence(bytes: &[u8]) -> Option<(&[u8], usize)> {
    match bytes.get(1) {
        None => Some((&[], 1)),
        Some(b'[') => {
            let end = bytes.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte))? + 3;
            Some((&bytes[1..end], end))
        }
        Some(b'O') => bytes.get(2).map(|_| (&bytes[1..3], 3)),
        Some(b'\r' | b'\n') => Some((&bytes[1..2], 2)),
        Some(_) => Some((&[], 2)),
    }
}

/// Returns the first character and its length; invalid bytes give no character. `None` if it is incomplete.
fn character(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let head = &bytes[..bytes.len().min(4)];
    match std::str::from_utf8(head) {
        Ok(text) => text.chars().next().map(|c| (Some(c), c.len_utf8())),
        Err(error) if error.valid_up_to() > 0 => {
            let c = String::from_utf8_lossy(&head[..error.valid_up_to()]).chars().next()?;
            Some((Some(c), c.len_utf8()))
        }
        Err(error) => error.error_len().map(|length| (None, length)),
    }
}

#[cfg(test)]
mod tests;
