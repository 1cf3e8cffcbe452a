//! Checks of this machine: limits that a server would have here.

use rustix::process::{Resource, getrlimit};

use super::finding::Findings;

/// Recommended limit of open files: each connection is one.
const FILES_WANTED: u64 = 8_192;

pub fn check(findings: &mut Findings) {
    findings.ok("program", format!("onward {}", env!("CARGO_PKG_VERSION")));
    let limit = getrlimit(Resource::Nofile);
    // A server raises its soft limit, at most to the hard limit.
    match limit.maximum {
        Some(maximum) if maximum < FILES_WANTED => findings.warn(
            "open files",
            format!("limit {maximum}: a server can have about as many connections"),
            "raise the hard limit: LimitNOFILE= in a systemd unit, `nofile` in /etc/security/limits.conf",
        ),
        Some(maximum) => findings.ok("open files", format!("limit {maximum}")),
        None => findings.ok("open files", "no limit"),
    }
}
