//! This machine: what a server would meet here.

use rustix::process::{Resource, getrlimit};

use super::finding::Findings;

/// Each connection is an open file; a server of many clients needs thousands.
const FILES_WANTED: u64 = 8_192;

pub fn check(findings: &mut Findings) {
    findings.ok("program", format!("onward {}", env!("CARGO_PKG_VERSION")));
    let limit = getrlimit(Resource::Nofile);
    // A server raises the limit for itself as far as it is let.
    match limit.maximum {
        Some(maximum) if maximum < FILES_WANTED => findings.warn(
            "open files",
            format!("at most {maximum}: a server can have about as many connections"),
            "raise the hard limit: LimitNOFILE= in a systemd unit, `nofile` in /etc/security/limits.conf",
        ),
        Some(maximum) => findings.ok("open files", format!("a server may have {maximum}")),
        None => findings.ok("open files", "no limit"),
    }
}
