//! The payload of a notification: what changed, within its size limit.
//!
//! A notification may be lost and only names where to look. If not everything fits, it says that something is left out.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Namespace, RunId, RunKey, Timestamp};
use onward_store::Change;

/// Below the limit of PostgreSQL, 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Words {
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

impl Words {
    pub fn is_empty(&self) -> bool {
        *self == Words::default()
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
                Change::Elsewhere { .. } | Change::WorkElsewhere { .. } | Change::Broadcast { .. } | Change::Missed => {}
            }
        }
    }

    /// Encodes the payload, the most important changes first.
    pub fn payload(&self, server: &str) -> String {
        let mut text = server.to_owned();
        let mut is_cut = self.is_cut;
        let mut say = |line: String| match text.len() + line.len() < PAYLOAD_BYTES_MAX {
            true => text.extend(["\n", &line]),
            false => is_cut = true,
        };
        self.due.iter().for_each(|due| say(format!("d{}", due.0)));
        self.broadcasts.iter().for_each(|number| say(format!("l{number}")));
        self.has_deliveries.then(|| say("o".to_owned()));
        self.work.iter().for_each(|namespace| say(format!("w{}", namespace.as_str())));
        for (run, ends) in &self.grown {
            // Neither part of a key contains a control character.
            let letter = if *ends { 'e' } else { 'g' };
            say(format!("{letter}{}\t{}", run.namespace.as_str(), run.id.as_str()));
        }
        if is_cut {
            text.push_str("\nx");
        }
        text
    }
}

/// Decodes a payload: the server that sent it, and what changed. Unknown or invalid lines are skipped.
pub(crate) fn parse(payload: &str) -> Option<(String, Words)> {
    let mut lines = payload.split('\n');
    let server = lines.next()?.to_owned();
    let mut words = Words::default();
    for line in lines {
        let (Some(letter), Some(rest)) = (line.get(..1), line.get(1..)) else { continue };
        match letter {
            "d" => words.due = rest.parse().ok().map(Timestamp),
            "l" => words.broadcasts.extend(rest.parse::<i64>()),
            "o" => words.has_deliveries = true,
            "w" => words.work.extend(Namespace::new(rest)),
            "e" | "g" => words.grown.extend(parse_key(rest).map(|run| (run, letter == "e"))),
            "x" => words.is_cut = true,
            _ => {}
        }
    }
    Some((server, words))
}

fn parse_key(text: &str) -> Option<RunKey> {
    let (namespace, id) = text.split_once('\t')?;
    Some(RunKey::new(Namespace::new(namespace).ok()?, RunId::new(id).ok()?))
}

#[cfg(test)]
mod tests;
