//! The verdicts for a person: how many of each kind are safe, and every run that is not.

use std::collections::BTreeMap;

use anyhow::Result;
use onward::check::{Found, Verdict};

use crate::commands::run::tell_pause;
use crate::output::{Cell, Style, Table, print};

#[derive(Default)]
struct Count {
    safe: u64,
    pauses: u64,
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
            Found::Safe => count.safe += 1,
            Found::Pauses(_) => count.pauses += 1,
            Found::NoCode => count.no_code += 1,
        }
    }
    let mut table = Table::new(&["KIND", "VERSION", "SAFE", "DIVERGES", "NO CODE"]);
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
            painted(count.no_code, Style::yellow),
        ]);
    }
    print(&table.take())?;
    for verdict in verdicts {
        if let Found::Pauses(pause) = &verdict.found {
            print(&format!("\nrun {} ({}) would pause\n{}", verdict.run.id, verdict.kind, tell_pause(pause)))?;
        }
    }
    Ok(())
}
