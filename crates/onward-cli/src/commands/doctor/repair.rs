//! Repairing a directory: what was kept, what is lost, and where the damaged files are.

use std::path::Path;

use onward_store_embedded::EmbeddedStore;

use super::finding::Findings;
use crate::directory::shell_path;
use crate::output::count;

/// How many losses are told one by one.
const TOLD_MAX: usize = 1_000;

pub fn repair(path: &Path, findings: &mut Findings) {
    let repaired = match EmbeddedStore::repair(path) {
        Ok(repaired) => repaired,
        Err(error) => return findings.fail_with("repair", &error.into()),
    };
    let kept = format!("{} of {}", count(repaired.events, "event"), count(repaired.runs, "run"));
    let Some(aside) = &repaired.aside else {
        return findings.ok("repair", format!("nothing is damaged: {kept}"));
    };
    findings.ok("repair", format!("a new database has {kept}; the damaged files are in {}", shell_path(aside)));
    if let Some(damage) = &repaired.log_damage {
        let advice = "writes that were acknowledged last may be missing although no log says so; a backup may have them";
        findings.fail("log", damage.to_string(), advice);
    }
    if repaired.damaged_pages + repaired.damaged_rows > 0 {
        let (pages, rows) = (count(repaired.damaged_pages, "damaged page"), count(repaired.damaged_rows, "row"));
        findings.warn("pages", format!("{pages}, {rows} without their checksum"), "check the disk: damage seldom comes alone");
    }
    if repaired.lost.is_empty() {
        return findings.ok("lost", "no log of a run has a gap");
    }
    for lost in repaired.lost.iter().take(TOLD_MAX) {
        findings.fail(
            "lost",
            lost.to_string(),
            "a backup may have it; `onward run terminate` and `onward run delete` give the run up",
        );
    }
    if repaired.lost.len() > TOLD_MAX {
        findings.fail("lost", format!("{} more", repaired.lost.len() - TOLD_MAX), "`onward doctor` reads every log");
    }
}
