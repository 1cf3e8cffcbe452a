//! Prints verdicts as text: counts by kind and version, and every run that is not safe.

use std::collections::BTreeMap;

use anyhow::Result;
use onward::check::{CheckResult, Verdict};

use crate::commands::run::format_pause;
use crate::output::{Cell, Style, TextTable, print};

#[derive(Default)]
struct Count {
    safe: u64,
    pauses: u64,
    unreadable: u64,
    no_version: u64,
    no_code: u64,
}

pub fn tell(verdicts: &[Verdict]) -> Result<()> {
    if verdicts.is_empty() {
        return Ok(print("no runs to check\n")?);
    }
    let mut counts: BTreeMap<(&str, &str), Count> = BTreeMap::new();
    for verdict in verdicts {
        let version = verdict.version.as_ref().map_or("", |version| version.as_str());
        let count = counts.entry((verdict.kind.as_str(), version)).or_default();
        match &verdict.found {
            CheckResult::Safe => count.safe += 1,
            CheckResult::Pauses(_) => count.pauses += 1,
            CheckResult::Unreadable(_) => count.unreadable += 1,
            CheckResult::NoVersion => count.no_version += 1,
            CheckResult::NoCode => count.no_code += 1,
        }
    }
    let mut table = TextTable::new(&["KIND", "VERSION", "SAFE", "PAUSES", "UNREADABLE", "NO VERSION", "NO CODE"]);
    for ((kind, version), count) in &counts {
        let painted = |count: u64, paint: fn(Style, &str) -> String| match count {
            0 => Cell::new("0"),
            some => Cell::new(some.to_string()).paint(paint),
        };
        table.row(vec![
            (*kind).into(),
            (*version).into(),
            painted(count.safe, Style::green),
            painted(count.pauses, Style::red),
            painted(count.unreadable, Style::red),
            painted(count.no_version, Style::red),
            painted(count.no_code, Style::yellow),
        ]);
    }
    print(&table.take())?;
    for Verdict { run, kind, found, .. } in verdicts {
        match found {
            CheckResult::Pauses(pause) => print(&format!("\nrun {} ({kind}) would pause\n{}", run.id, format_pause(pause)))?,
            CheckResult::Unreadable(why) => print(&format!("\nrun {} ({kind}) cannot be read by the program: {why}\n", run.id))?,
            CheckResult::NoVersion => {
                print(&format!("\nrun {} ({kind}) is pinned to a version that the program has no code for\n", run.id))?
            }
            CheckResult::Safe | CheckResult::NoCode => {}
        }
    }
    Ok(())
}
