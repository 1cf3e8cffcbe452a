//! An async runtime for steps that are not scripted.
//!
//! It has its own thread, so that a script works in a plain test and in an async one.

use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::oneshot;

/// Longest wait between two polls, for steps that do not wake their waker.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(super) struct Background {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub fn start() -> Background {
        let (stop, stopped) = oneshot::channel();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let build = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = build.expect("a test can have an async runtime");
            drop(sender.send(runtime.handle().clone()));
            drop(runtime.block_on(stopped));
        });
        let handle = receiver.recv().expect("the thread sends the handle of its runtime");
        Background { handle, stop: Some(stop), thread: Some(thread) }
    }

    pub fn handle(&self) -> tokio::runtime::Handle {
        self.handle.clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that ends [`wait`] on the calling thread.
pub(super) fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

/// Waits for a step to make progress.
pub(super) fn wait() {
    std::thread::park_timeout(LOOK_AGAIN);
}
