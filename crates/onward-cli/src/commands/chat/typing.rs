//! Standard input: keys of a terminal, or lines otherwise.

use std::io::{self, BufRead, Write};

use anyhow::Result;
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::screen::Screen;

/// Input from stdin.
pub enum TerminalInput {
    /// Bytes from a terminal.
    Keys(Vec<u8>),
    /// A message of one or more lines.
    Message(String),
    End,
}

/// Reads stdin on its own thread, because a blocking read cannot be canceled and must not delay the exit.
pub fn begin(screen: &Screen) -> mpsc::UnboundedReceiver<TerminalInput> {
    let (sender, input) = mpsc::unbounded_channel();
    let is_terminal = screen.is_terminal();
    std::thread::spawn(move || {
        while let Ok(input) = if is_terminal { read_keys() } else { read_message() } {
            let is_end = matches!(input, TerminalInput::End);
            if sender.send(input).is_err() || is_end {
                return;
            }
        }
        drop(sender.send(TerminalInput::End));
    });
    input
}

fn read_keys() -> io::Result<TerminalInput> {
    let mut bytes = [0; 1024];
    loop {
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => return Ok(TerminalInput::End),
            Ok(count) => return Ok(TerminalInput::Keys(bytes[..count].to_vec())),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads a line. A backslash at its end adds the next line to the message.
fn read_message() -> io::Result<TerminalInput> {
    let mut message = String::new();
    loop {
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(if message.is_empty() { TerminalInput::End } else { TerminalInput::Message(message) });
        }
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(line) => message.push_str(&format!("{line}\n")),
            None => return Ok(TerminalInput::Message(message + line)),
        }
    }
}

/// Enables and disables the bracketed paste mode of the terminal.
const BRACKETED_PASTE: &[u8] = b"\x1b[?2004h";
const PLAIN_PASTE: &[u8] = b"\x1b[?2004l";

/// Terminal mode without line buffering and echo, with marked pasted text; restored on drop. Ctrl-C still raises a signal.
pub struct RawMode(Termios);

impl RawMode {
    pub fn enter(screen: &Screen) -> Result<Option<RawMode>> {
        if !screen.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.input_modes.remove(InputModes::ICRNL); // it would turn a pasted CRLF into two line ends
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(io::Error::from)?;
        let mode = RawMode(before);
        io::stdout().write_all(BRACKETED_PASTE)?;
        Ok(Some(mode))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        drop(io::stdout().write_all(PLAIN_PASTE).and_then(|()| io::stdout().flush()));
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0); // fails only if the terminal is gone
    }
}
