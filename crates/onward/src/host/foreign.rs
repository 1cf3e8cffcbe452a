//! Explanations of awaits that workflow code must not make.

/// Returns the name of the foreign future, from a backtrace, and what to use instead.
pub(crate) fn explain(trace: &str) -> (String, &'static str) {
    let frames = foreign_frames(trace);
    // The outermost frames are the most useful: the foreign future and the function that awaits it.
    let mut named: Vec<&str> =
        frames.iter().map(|frame| frame.name).filter(|name| name.contains("::") && !name.starts_with('{')).collect();
    named.dedup(); // a function and its closures
    let who = named[named.len().saturating_sub(2)..].join(", called by ");
    let who = if who.is_empty() { "a foreign future".to_owned() } else { who };
    let location = frames.last().and_then(|frame| frame.location).map(|location| format!(", at {location}")).unwrap_or_default();
    let instead = INSTEAD.iter().find(|(part, _)| trace.contains(part)).map_or(ANYTHING, |(_, instead)| instead);
    (format!("{who}{location}"), instead)
}

struct StackFrame<'a> {
    name: &'a str,
    location: Option<&'a str>,
}

/// Returns the frames between the waker and the poll of the code, innermost first.
fn foreign_frames(trace: &str) -> Vec<StackFrame<'_>> {
    let mut frames: Vec<StackFrame<'_>> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(location) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                frame.location.get_or_insert(location);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            if name.contains("poll_future") || name.starts_with("onward::host::code") {
                break;
            }
            frames.push(StackFrame { name: name.trim_end_matches("::{{closure}}"), location: None });
        }
    }
    frames.retain(|frame| !is_ours(frame));
    frames
}

/// Returns whether a panic message is tokio's complaint about a missing runtime; workflow code never has one.
pub(crate) fn is_tokio_panic(message: &str) -> bool {
    message.contains("there is no reactor running")
        || message.contains("no Tokio runtime")
        || message.contains("Tokio 1.x runtime")
}

/// Returns the message for such a panic. The stack is gone when it is caught, so `location` describes the neighboring calls.
pub(crate) fn tokio_without_runtime(location: &str) -> String {
    format!(
        "workflow code used tokio directly (a timer, a socket or a spawn), which cannot be replayed, {location}; \
         use `ctx.sleep` or `ctx.timeout` for time, and put everything else inside `ctx.step`"
    )
}

const ANYTHING: &str = "await only what `ctx` returns, and do everything else inside `ctx.step`";

const INSTEAD: &[(&str, &str)] = &[
    ("tokio::time", "use `ctx.sleep` or `ctx.timeout`"),
    ("tokio::sync::mpsc", "use `ctx.signal(..)` to receive messages"),
    ("tokio::sync::oneshot", "use `ctx.promise(..)` for an answer from outside"),
    ("tokio::sync::watch", "use `ctx.signal(..)` to receive messages"),
    ("tokio::sync::broadcast", "use `ctx.signal(..)` to receive messages"),
    ("tokio::sync::notify", "use `ctx.signal(..)` to be notified"),
    ("JoinHandle", "use `ctx.step` for work in this process and `join!` to run steps together"),
    ("yield_now", "leave it out: workflow code yields at every `await` of a `ctx` call"),
    ("FuturesUnordered", "use `onward::join_all` or `onward::select!`"),
    ("join_all", "use `onward::join_all`"),
    ("tokio::net", "do it inside `ctx.step`"),
    ("hyper", "do it inside `ctx.step`"),
    ("reqwest", "do it inside `ctx.step`"),
];

fn is_ours(frame: &StackFrame<'_>) -> bool {
    const OURS: &[&str] = &[
        "onward::host",
        "onward::middleware",
        "foreign_await",
        "backtrace",
        "core::",
        "std::",
        "alloc::",
        "rust_begin",
        "__rust",
        "AtomicWaker",
        "<alloc",
        "<core",
        "<std",
        "<&core",
        "clone_waker",
        "wake_by_ref",
        "onward_core",
        "do_call<",
        "catch_unwind",
        "onward::registry",
    ];
    let name = |part: &&str| frame.name.starts_with(*part) || (part.len() > 8 && frame.name.contains(*part));
    let is_in = |location: &str| ["src/registry/mod.rs:", "src/host/code.rs:"].iter().any(|file| location.contains(file));
    OURS.iter().any(name) || frame.location.is_some_and(is_in)
}

#[cfg(test)]
mod tests;
