//! The terminal of `onward replay`: its keys, raw mode and the alternate screen, restored at the end.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::screen::{Paint, draw};
use super::timeline::Timeline;
use crate::output::Style;

/// Polling interval of the window size.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Events per PgDn.
const FAR: usize = 10;

pub fn show(timeline: &Timeline, from: u64) -> Result<()> {
    let _raw = FullScreen::enter()?;
    let mut at = usize::try_from(from).unwrap_or(usize::MAX).min(timeline.last());
    let mut drawn = None;
    loop {
        let size = size();
        if drawn != Some((at, size)) {
            paint(timeline, at, size)?;
            drawn = Some((at, size));
        }
        for key in read_keys()? {
            at = match key {
                ReplayKey::Quit => return Ok(()),
                ReplayKey::Next => at + 1,
                ReplayKey::Back => at.saturating_sub(1),
                ReplayKey::NextRecord => timeline.next_record(at),
                ReplayKey::PreviousRecord => timeline.previous_record(at),
                ReplayKey::Far => at + FAR,
                ReplayKey::FarBack => at.saturating_sub(FAR),
                ReplayKey::First => 0,
                ReplayKey::Last => timeline.last(),
            }
            .min(timeline.last());
        }
    }
}

/// Waits for key presses, at most for `POLL_INTERVAL`.
fn read_keys() -> Result<Vec<ReplayKey>> {
    let stdin = io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    let while_ = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    match poll(&mut waiting, Some(&while_)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    let mut bytes = [0; 64];
    let count = rustix::io::read(&stdin, &mut bytes).map_err(io::Error::from)?;
    // End of input: the terminal is gone.
    Ok(if count == 0 { vec![ReplayKey::Quit] } else { decode(&bytes[..count]) })
}

fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

fn paint(timeline: &Timeline, at: usize, (width, height): (usize, usize)) -> io::Result<()> {
    let style = Style::stdout();
    let mut out = String::from("\u{1b}[H");
    for (number, row) in draw(timeline, at, width, height).iter().take(height).enumerate() {
        out.push_str(if number == 0 { "" } else { "\r\n" });
        for part in row {
            out.push_str(&match part.paint {
                Paint::Plain => part.text.clone(),
                Paint::Title => style.bold(&part.text),
                Paint::Current => style.reverse(&part.text),
                Paint::Dim => style.dim(&part.text),
                Paint::Input => style.cyan(&part.text),
            });
        }
        out.push_str("\u{1b}[K");
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// Raw mode and the alternate screen; restored on drop.
struct FullScreen(Termios);

impl FullScreen {
    fn enter() -> Result<FullScreen> {
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map_err(io::Error::from)?;
        let entered = FullScreen(before);
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(entered)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        drop(io::stdout().write_all(b"\x1b[?25h\x1b[?1049l"));
        drop(io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0); // fails only if the terminal is gone
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplayKey {
    Next,
    Back,
    NextRecord,
    PreviousRecord,
    Far,
    FarBack,
    First,
    Last,
    Quit,
}

/// Decodes the keys of one read. Skips unknown escape sequences.
fn decode(mut bytes: &[u8]) -> Vec<ReplayKey> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        let key = match first {
            b'l' | b' ' | b'\r' | b'\n' => Some(ReplayKey::Next),
            b'h' | b'b' | 0x7f => Some(ReplayKey::Back),
            b'j' | b'n' => Some(ReplayKey::NextRecord),
            b'k' | b'p' => Some(ReplayKey::PreviousRecord),
            b'g' => Some(ReplayKey::First),
            b'G' => Some(ReplayKey::Last),
            b'q' | 0x03 | 0x04 => Some(ReplayKey::Quit),
            0x1b => sequence(&mut bytes),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// Decodes the sequence after an escape; a lone escape quits.
fn sequence(bytes: &mut &[u8]) -> Option<ReplayKey> {
    let [b'[' | b'O', rest @ ..] = *bytes else {
        return bytes.is_empty().then_some(ReplayKey::Quit);
    };
    let length = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
    let (sequence, rest) = rest.split_at(length);
    *bytes = rest;
    Some(match sequence {
        b"C" => ReplayKey::Next,
        b"D" => ReplayKey::Back,
        b"B" => ReplayKey::NextRecord,
        b"A" => ReplayKey::PreviousRecord,
        b"6~" => ReplayKey::Far,
        b"5~" => ReplayKey::FarBack,
        b"H" | b"1~" | b"7~" => ReplayKey::First,
        b"F" | b"4~" | b"8~" => ReplayKey::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
