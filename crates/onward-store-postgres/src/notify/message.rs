//! The payload of a notification: what changed, within its size limit.
//!
//! A notification may be lost and only names what to read. If not everything fits, it is marked as incomplete.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Namespace, RunId, RunKey, Timestamp};
use onward_store::Change;

/// Below the limit of PostgreSQL, 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Notice {
    pub due: Option<Timestamp>,
    pub has_deliveries: bool,
    /// Namespaces in which a run or a task waits to be claimed.
    pub work: BTreeSet<Namespace>,
    /// Runs that have grown, and whether they ended.
    pub grown: BTreeMap<RunKey, bool>,
    /// Cluster broadcasts, by number.
    pub broadcasts: BTreeSet<i64>,
    /// Something is left out.
    pub is_cut: bool,
}

impl Notice {
    pub fn is_empty(&self) -> bool {
        *self == Notice::default()
    }

    pub fn add(&mut self, changes: &[Change], due: Option<Timestamp>) {
        self.due = [self.due, due].into_iter().flatten().min();
        for change in changes {
            match change {
                Change::Appended { head, record } => *self.grown.entry(head.key.clone()).or_default() |= record.ends_log(),
                Change::RunPending { head } => drop(self.work.insert(head.key.namespace.clone())),
                Change::TaskQueued { task } => drop(self.work.insert(task.id.run.namespace.clone())),
                Change::DueAt(at) => self.due = Some(self.due.map_or(*at, |due| due.min(*at))),
                Change::OutboxGrew => self.has_deliveries = true,
                // Changes of other processes are not passed on.
                Change::HeldBack { .. }
                | Change::Elsewhere { .. }
                | Change::WorkElsewhere { .. }
                | Change::Broadcast { .. }
                | Change::Missed => {}
            }
        }
    }

    /// Encodes the payload, the most important changes first.
    pub fn payload(&self, server: &str) -> String {
        let mut text = server.to_owned();
        let mut is_cut = self.is_cut;
        let mut add_line = |line: String| match text.len() + line.len() < PAYLOAD_BYTES_MAX {
            true => text.extend(["\n", &line]),
            false => is_cut = true,
        };
        self.due.iter().for_each(|due| add_line(format!("d{}", due.0)));
        self.broadcasts.iter().for_each(|number| add_line(format!("l{number}")));
        self.has_deliveries.then(|| add_line("o".to_owned()));
        self.work.iter().for_each(|namespace| add_line(format!("w{}", namespace.as_str())));
        for (run, ends) in &self.grown {
            // Neither part of a key contains a control character.
            let letter = if *ends { 'e' } else { 'g' };
            add_line(format!("{letter}{}\t{}", run.namespace.as_str(), run.id.as_str()));
        }
        if is_cut {
            text.push_str("\nx");
        }
        text
    }
}

/// Decodes a payload: the server that sent it, and what changed. Unknown or invalid lines are skipped.
pub(crate) fn parse(payload: &str) -> Option<(String, Notice)> {
    let mut lines = payload.split('\n');
    let server = lines.next()?.to_owned();
    let mut notice = Notice::default();
    for line in lines {
        let (Some(letter), Some(rest)) = (line.get(..1), line.get(1..)) else { continue };
        match letter {
            "d" => notice.due = rest.parse().ok().map(Timestamp),
            "l" => notice.broadcasts.extend(rest.parse::<i64>()),
            "o" => notice.has_deliveries = true,
            "w" => notice.work.extend(Namespace::new(rest)),
            "e" | "g" => notice.grown.extend(parse_key(rest).map(|run| (run, letter == "e"))),
            "x" => notice.is_cut = true,
            _ => {}
        }
    }
    Some((server, notice))
}

fn parse_key(text: &str) -> Option<RunKey> {
    let (namespace, id) = text.split_once('\t')?;
    Some(RunKey::new(Namespace::new(namespace).ok()?, RunId::new(id).ok()?))
}

#[cfg(test)]
mod tests;
