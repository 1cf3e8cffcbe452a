//! Time limits for requests on any executor, and a thread for background probes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// Time limits for databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time that an operation on all databases waits for a slow one, if that one can complete on its own.
    pub late: Duration,
    /// Time after which a slow database is probed, and limit for the probe.
    pub answer_max: Duration,
    /// Pause between probes of a database that is down.
    pub probe_every: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { late: Duration::from_millis(250), answer_max: Duration::from_secs(2), probe_every: Duration::from_secs(1) }
    }
}

pub struct Time {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Time {
    pub fn start() -> Time {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime without a network needs nothing that could be missing");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let work = move || drop(runtime.block_on(stopped));
        let thread = std::thread::Builder::new().name("onward-spread".to_owned()).spawn(work);
        let thread = thread.expect("a process that can start no thread can do nothing");
        Time { handle, stop: Some(stop), thread: Some(thread) }
    }

    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }

    fn sleep(&self, span: Duration) -> Pin<Box<Sleep>> {
        let _its_clock = self.handle.enter();
        Box::pin(tokio::time::sleep(span))
    }

    /// Runs `work` for at most `span`; returns `None` without dropping it when the time is over.
    pub async fn limit<T>(&self, span: Duration, mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
        let mut sleep = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            // Most requests end at once and need no timer.
            let sleep = sleep.get_or_insert_with(|| self.sleep(span));
            sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

impl Drop for Time {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
