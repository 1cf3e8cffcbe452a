//! Named points at which a crash test may kill the process.
//!
//! Owns the list of points and the check at each. Builds without debug assertions, and so every release, contain none of it: the
//! environment is not read and a point costs nothing. In other builds an unarmed point costs one relaxed load.
//! Must only kill or count: a failpoint that changes behavior would test another program.
//!
//! `ONWARD_FAILPOINT=before_commit:3` kills the process (a real SIGKILL: nothing is flushed, no destructor runs) at the third hit
//! of `before_commit`. `ONWARD_FAILPOINT_LOG=path` appends the name of each point that is hit, so that a test can prove coverage.

/// All points, in the order in which a store reaches them.
pub const FAILPOINTS: &[&str] = &[
    "create_before_rename",
    "create_after_rename",
    "open_before_boot",
    "open_after_boot",
    "before_batch",
    "after_operation",
    "before_commit",
    "after_commit",
    "before_reply",
    "after_reply",
    "before_checkpoint",
    "after_checkpoint",
];

/// Reads the environment. Called at each open; a plan that is armed continues.
pub(crate) fn arm() {
    #[cfg(debug_assertions)]
    armed::arm();
}

/// Passes the point `name`, or kills the process.
#[inline]
pub(crate) fn hit(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::hit(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod armed {
    use std::collections::HashMap;
    use std::io::Write;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::FAILPOINTS;

    static ACTIVE: AtomicBool = AtomicBool::new(false);
    static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

    struct Plan {
        /// The point to die at, and the number of the hit at which to die.
        kill: Option<(String, u64)>,
        log: Option<std::fs::File>,
        hits: HashMap<&'static str, u64>,
    }

    pub fn arm() {
        let kill = std::env::var("ONWARD_FAILPOINT").ok().and_then(|text| {
            let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
            FAILPOINTS.contains(&name).then(|| (name.to_owned(), count.parse().unwrap_or(1)))
        });
        let log = std::env::var_os("ONWARD_FAILPOINT_LOG")
            .and_then(|path| std::fs::OpenOptions::new().create(true).append(true).open(path).ok());
        if kill.is_none() && log.is_none() {
            return;
        }
        let mut plan = PLAN.lock().unwrap_or_else(|poison| poison.into_inner());
        if plan.is_none() {
            *plan = Some(Plan { kill, log, hits: HashMap::new() });
            ACTIVE.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub fn hit(name: &'static str) {
        if ACTIVE.load(Ordering::Relaxed) {
            hit_slowly(name);
        }
    }

    #[cold]
    fn hit_slowly(name: &'static str) {
        assert!(FAILPOINTS.contains(&name), "{name} is not in FAILPOINTS");
        let mut guard = PLAN.lock().unwrap_or_else(|poison| poison.into_inner());
        let Some(plan) = guard.as_mut() else { return };
        let count = plan.hits.entry(name).or_insert(0);
        *count += 1;
        if let Some(log) = plan.log.as_mut().filter(|_| *count == 1) {
            let _ = writeln!(log, "{name}");
        }
        if plan.kill.as_ref().is_some_and(|(point, at)| point == name && at == count) {
            #[expect(unsafe_code, reason = "a process can only kill itself by `kill`")]
            // SAFETY: `kill` on our own process id has no memory effects; the process ends in this call.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL)
            };
        }
    }
}
