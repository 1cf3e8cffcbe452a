//! Code in another language as a future, so that middlewares surround it like a function in Rust.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_core::Payload;

use crate::Result;
use crate::host::cell::RunCell;
use crate::host::code::StartFuture;

/// The stage of the code of a shell.
#[derive(Default)]
pub(crate) enum ShellRun {
    #[default]
    NotYet,
    /// The shell is to start the code with this input.
    Wanted(Payload),
    Running,
    Ended(Result<Payload>),
}

/// Returns the function that requests the start of the code and waits for its end.
pub(crate) fn shell_future() -> StartFuture {
    Arc::new(|ctx, input| Ok(Box::pin(ShellFuture { cell: ctx.cell, input: Some(input), is_over: false })))
}

struct ShellFuture {
    cell: Arc<RunCell>,
    input: Option<Payload>,
    is_over: bool,
}

impl Future for ShellFuture {
    type Output = Result<Payload>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<Payload>> {
        let input = self.input.take();
        let mut state = self.cell.lock();
        if let Some(input) = input {
            state.shell_run = ShellRun::Wanted(input);
            return Poll::Pending;
        }
        match std::mem::take(&mut state.shell_run) {
            ShellRun::Ended(result) => {
                drop(state);
                self.is_over = true;
                Poll::Ready(result)
            }
            other => {
                state.shell_run = other;
                Poll::Pending
            }
        }
    }
}

impl Drop for ShellFuture {
    fn drop(&mut self) {
        if self.input.is_none() && !self.is_over {
            self.cell.lock().engine.misuse("a middleware has dropped the code of the run: await it to its end");
        }
    }
}
