//! An MCP server as a child process, connected through pipes.
//!
//! Invariants:
//! - MC1: a message above the size limit is not buffered and ends the connection, because the start of the next one is unknown.
//! - MC3: a program gets only a few common variables of this process and those that its settings name, because other variables
//!   may contain keys.
//! - MC4: stderr of a program is logged line by line under its name, with control characters escaped, so that it cannot be
//!   mistaken for our own output.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::error::{ToolCause, ToolError};
use crate::server::Transport;

/// A child process and all its descendants; dropping it ends all of them.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    group: Option<Pid>,
}

impl Program {
    /// Starts the program of a transport. Its stderr goes to our log under its name (MC4).
    pub fn start(transport: &Transport, name: Option<&str>) -> Result<(Program, ChildStdout, ChildStdin), ToolError> {
        let Transport::Program { command, arguments, environment, inherits, folder } = transport else {
            unreachable!("only programs are started")
        };
        let unreachable = |why: String| ToolError::new(ToolCause::Unreachable, format!("`{command}`: {why}"), false);
        let mut program = Command::new(command);
        // MC3
        program.env_clear();
        program.envs(Transport::USUAL_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        for name in inherits {
            let value =
                std::env::var_os(name).ok_or_else(|| unreachable(format!("the environment variable {name} is not set")))?;
            program.env(name, value);
        }
        program
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        program.process_group(0); // `npx` and the like start the server as a child process
        if let Some(folder) = folder {
            program.current_dir(folder);
        }
        let mut child = program.spawn().map_err(|error| unreachable(error.to_string()))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(complaints) = child.stderr.take() {
            tokio::spawn(pass_on(name.unwrap_or(command).to_owned(), complaints));
        }
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (output, input) = pipes.ok_or_else(|| unreachable("it has no pipes".into()))?;
        Ok((Program { child, group }, output, input))
    }
}

/// Maximum length of a line; longer ones are split.
const LINE_MAX: u64 = 4 * 1024;

/// Logs the stderr of a program until it ends (MC4).
async fn pass_on(program: String, complaints: ChildStderr) {
    let mut complaints = BufReader::new(complaints);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut complaints).take(LINE_MAX).read_until(b'\n', &mut line).await {
        let text = printable(&line);
        if tracing::dispatcher::has_been_set() {
            tracing::info!(program, "stderr of an MCP server: {text}");
        } else if !text.is_empty() {
            eprintln!("{}: {text}", printable(program.as_bytes()));
        }
        line.clear();
    }
}

/// Returns the text of a line with control characters escaped.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let escaped = text.trim_end().chars().map(|char| match char {
        '\t' => " ".to_owned(),
        char if char.is_control() => char.escape_debug().to_string(),
        char => char.to_string(),
    });
    escaped.collect()
}

impl Drop for Program {
    fn drop(&mut self) {
        // The number of a process that was waited for may have been reused.
        if let Some(group) = self.group.filter(|_| self.child.id().is_some()) {
            kill_process_group(group, Signal::KILL).ok(); // all of them may have ended
        }
    }
}

pin_project! {
    /// A reader that passes lines on until one is too long, then ends (MC1).
    pub(crate) struct Lines<R> {
        #[pin]
        inner: R,
        held: usize,
        bytes_max: usize,
        too_long: Arc<AtomicBool>,
    }
}

impl<R> Lines<R> {
    pub fn new(inner: R, bytes_max: usize, too_long: Arc<AtomicBool>) -> Lines<R> {
        Lines { inner, held: 0, bytes_max, too_long }
    }
}

impl<R: AsyncRead> AsyncRead for Lines<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        if this.too_long.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        std::task::ready!(this.inner.poll_read(cx, buffer))?;
        let new = &buffer.filled()[before..];
        let longest = match new.iter().position(|byte| *byte == b'\n') {
            Some(end) => *this.held + end,
            None => *this.held + new.len(),
        };
        *this.held = new.iter().rposition(|byte| *byte == b'\n').map_or(longest, |end| new.len() - end - 1);
        if longest > *this.bytes_max {
            this.too_long.store(true, Ordering::Relaxed);
            buffer.set_filled(before);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
