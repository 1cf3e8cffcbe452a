//! How a refusal travels.
//!
//! The same on every door: a stable code with a page in `docs/errors/`, a sentence, a hint, and what the caller should do.

use onward_core::{message, numbered};

message! {
    /// Why something was not done.
    pub struct Problem {
        /// Stable; never reused, never renamed.
        1 => code: String,
        2 => message: String,
        3 => hint: Option<String>,
        4 => advice: Advice,
    }
}

numbered! {
    /// What a caller should do about a problem.
    pub enum Advice {
        /// Asking again changes nothing.
        0 => TellCaller,
        /// The lease is lost: drop the run's memory and stop working on it.
        1 => StopRun,
        /// The same call may succeed later.
        2 => Retry,
        /// This run's data is damaged; the others go on.
        3 => IsolateRun,
        /// The server writes nothing more until somebody looks after it.
        4 => StopProcess,
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
