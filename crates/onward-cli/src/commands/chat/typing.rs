//! What is typed: keys of a terminal, or lines of whatever stdin is.

use std::io::{self, BufRead};

use anyhow::Result;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::screen::Screen;

/// What comes from stdin.
pub enum Input {
    /// Of a terminal.
    Keys(Vec<u8>),
    Line(String),
    End,
}

/// Reads stdin on a thread of its own: a read cannot be given up, and must hold up nobody.
pub fn begin(screen: &Screen) -> mpsc::UnboundedReceiver<Input> {
    let (tell, input) = mpsc::unbounded_channel();
    let is_terminal = screen.is_terminal();
    std::thread::spawn(move || {
        while let Ok(input) = if is_terminal { read_keys() } else { read_line() } {
            let is_end = matches!(input, Input::End);
            if tell.send(input).is_err() || is_end {
                return;
            }
        }
        drop(tell.send(Input::End));
    });
    input
}

fn read_keys() -> io::Result<Input> {
    let mut bytes = [0; 1024];
    loop {
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => return Ok(Input::End),
            Ok(count) => return Ok(Input::Keys(bytes[..count].to_vec())),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_line() -> io::Result<Input> {
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line)?;
    Ok(if count == 0 { Input::End } else { Input::Line(line.trim_end_matches(['\n', '\r']).to_owned()) })
}

/// Keys come one by one and are not shown by themselves, until this is dropped. Ctrl-C stays a signal.
pub struct Raw(Termios);

impl Raw {
    pub fn enter(screen: &Screen) -> Result<Option<Raw>> {
        if !screen.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(io::Error::from)?;
        Ok(Some(Raw(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0); // a terminal that is gone needs no mode
    }
}
