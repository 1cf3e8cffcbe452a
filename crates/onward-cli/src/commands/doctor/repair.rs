//! Repairs a directory and reports kept data, losses and the location of the damaged files.

use std::path::Path;

use onward_store_embedded::EmbeddedStore;

use super::finding::Findings;
use crate::directory::shell_path;
use crate::output::count;

/// Maximum number of losses that are listed.
const LISTED_MAX: usize = 1_000;

pub fn repair(path: &Path, findings: &mut Findings) {
    let repaired = match EmbeddedStore::repair(path) {
        Ok(repaired) => repaired,
        Err(error) => return findings.fail_with("repair", &error.into()),
    };
    let kept = format!("{} of {}", count(repaired.events, "event"), count(repaired.runs, "run"));
    let Some(aside) = &repaired.aside else {
        return findings.ok("repair", format!("nothing is damaged: {kept}"));
    };
    findings.ok("repair", format!("the new database has {kept}; the damaged files are in {}", shell_path(aside)));
    if let Some(damage) = repaired.log_damage.as_ref().filter(|_| repaired.is_log_restored) {
        findings.ok("log", format!("{damage}; every synced write was restored"));
    } else if let Some(damage) = &repaired.log_damage {
        let advice = "look for the latest acknowledged writes in a backup: they may be missing without a gap in a log";
        findings.fail("log", damage.to_string(), advice);
    }
    if repaired.damaged_pages + repaired.damaged_rows > 0 {
        let (pages, rows) = (count(repaired.damaged_pages, "damaged page"), count(repaired.damaged_rows, "row"));
        findings.warn("pages", format!("{pages}, {rows} with a wrong checksum"), "check the disk for more damage");
    }
    if repaired.lost.is_empty() {
        return findings.ok("lost", "no log has a gap");
    }
    for lost in repaired.lost.iter().take(LISTED_MAX) {
        findings.fail(
            "lost",
            lost.to_string(),
            "restore it from a backup, or give the run up with `onward run terminate` and `onward run delete`",
        );
    }
    if repaired.lost.len() > LISTED_MAX {
        findings.fail("lost", format!("{} more", repaired.lost.len() - LISTED_MAX), "run `onward doctor` to read every log");
    }
}
