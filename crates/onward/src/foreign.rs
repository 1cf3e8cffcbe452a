//! Words for what workflow code must not await.

/// Who it was, read from a backtrace, and what to use instead.
pub(crate) fn explain(trace: &str) -> (String, &'static str) {
    let frames: Vec<&str> = trace
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("at "))
        .filter_map(|line| line.split_once(": ").map(|(_, frame)| frame))
        .filter(|frame| !is_ours(frame))
        .collect();
    let who = frames.iter().take(3).copied().collect::<Vec<_>>().join(", called by ");
    let who = if who.is_empty() { "a foreign future".to_owned() } else { who };
    let instead = INSTEAD.iter().find(|(part, _)| trace.contains(part)).map_or(ANYTHING, |(_, instead)| instead);
    (who, instead)
}

/// What a panic says when tokio is used without its runtime, which workflow code never has.
pub(crate) fn is_tokio_panic(message: &str) -> bool {
    message.contains("there is no reactor running") || message.contains("no Tokio runtime") || message.contains("Tokio 1.x runtime")
}

pub(crate) const TOKIO: &str = "workflow code used tokio directly (a timer, a socket or a spawn), which cannot be replayed; \
    use `ctx.sleep` or `ctx.timeout` for time, and put everything else inside `ctx.step`";

const ANYTHING: &str = "await only what `ctx` returns, and do everything else inside `ctx.step`";

const INSTEAD: &[(&str, &str)] = &[
    ("tokio::time", "use `ctx.sleep` or `ctx.timeout`"),
    ("tokio::sync::mpsc", "use `ctx.signal(..)` to receive messages"),
    ("tokio::sync::oneshot", "use `ctx.promise(..)` for an answer from outside"),
    ("tokio::sync::watch", "use `ctx.signal(..)` to receive messages"),
    ("tokio::sync::broadcast", "use `ctx.signal(..)` to receive messages"),
    ("JoinHandle", "use `ctx.step` for work in this process and `join!` to run steps together"),
    ("yield_now", "leave it out: workflow code yields at every `await` of a `ctx` call"),
    ("FuturesUnordered", "use `onward::join_all` or `onward::select!`"),
    ("join_all", "use `onward::join_all`"),
    ("tokio::net", "do it inside `ctx.step`"),
    ("hyper", "do it inside `ctx.step`"),
    ("reqwest", "do it inside `ctx.step`"),
];

fn is_ours(frame: &str) -> bool {
    const OURS: &[&str] = &[
        "onward::wake", "onward::cell", "onward::code", "onward::foreign", "backtrace", "core::", "std::", "alloc::", "rust_begin",
        "__rust", "AtomicWaker", "<alloc", "<core", "<std", "clone_waker", "wake_by_ref", "onward_core",
    ];
    OURS.iter().any(|part| frame.starts_with(part) || (part.len() > 8 && frame.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_foreign_frames_are_named_with_what_to_use_instead() {
        let trace = "   0: onward::cell::RunCell::foreign_await\n             at src/cell.rs:1\n   1: core::task::wake::Waker::clone\n   \
                     2: tokio::time::sleep::Sleep::poll\n   3: my_app::fulfil::{{closure}}\n";
        let (who, instead) = explain(trace);
        assert_eq!(who, "tokio::time::sleep::Sleep::poll, called by my_app::fulfil::{{closure}}");
        assert_eq!(instead, "use `ctx.sleep` or `ctx.timeout`");
    }
}
