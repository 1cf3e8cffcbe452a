//! The payload of a notification: what changed, within its size limit.
//!
//! A notification may be lost and only names where to look. If not everything fits, it says that something is left out.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Namespace, RunId, RunKey, Timestamp};
use onward_store::durable::StoredChange;

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

#[derive(Debug, PartialEq)]
pub(crate) struct Notification {
    pub server: String,
    pub words: Words,
}

impl Words {
    pub fn is_empty(&self) -> bool {
        *self == Words::default()
    }

    pub fn add(&mut self, changes: &[StoredChange], due: Option<Timestamp>) {
        self.due = [self.due, due].into_iter().flatten().min();
        for change in changes {
            match change {
                StoredChange::Appended { head, record } => *self.grown.entry(head.key.clone()).or_default() |= record.ends_log(),
                StoredChange::RunPending { head } => drop(self.work.insert(head.key.namespace.clone())),
                StoredChange::TaskQueued { task } => drop(self.work.insert(task.id.run.namespace.clone())),
                StoredChange::DueAt(at) => self.due = Some(self.due.map_or(*at, |due| due.min(*at))),
                StoredChange::OutboxGrew => self.has_deliveries = true,
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

/// Decodes a payload; unknown or invalid lines are skipped.
pub(crate) fn parse(payload: &str) -> Option<Notification> {
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
    Some(Notification { server, words })
}

fn parse_key(text: &str) -> Option<RunKey> {
    let (namespace, id) = text.split_once('\t')?;
    Some(RunKey::new(Namespace::new(namespace).ok()?, RunId::new(id).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> RunKey {
        RunKey::new(Namespace::default(), RunId::new(id).expect("a good id"))
    }

    /// Any session of the database may notify (S35).
    #[test]
    fn mutated_notifications_never_panic_and_read_back() {
        let sample = "me\nd7\nl3\nl4\no\nwdefault\nedefault\ta b\ngdefault\tc/d";
        onward_testkit::mutate("notifications", &[sample.as_bytes().to_vec()], |bytes| {
            let Some(heard) = std::str::from_utf8(bytes).ok().and_then(parse) else { return false };
            let again = heard.words.payload(&heard.server);
            assert_eq!(parse(&again), Some(heard), "{}", bytes.escape_ascii());
            true
        });
    }

    #[test]
    fn what_is_said_is_heard_and_nonsense_is_passed_over() {
        let words = Words {
            due: Some(Timestamp(7)),
            has_deliveries: true,
            work: BTreeSet::from([Namespace::default()]),
            grown: BTreeMap::from([(run("a b"), true), (run("c/d"), false)]),
            broadcasts: BTreeSet::from([3, 4]),
            is_cut: false,
        };
        let heard = parse(&words.payload("me")).expect("it has a server");
        assert_eq!(heard, Notification { server: "me".to_owned(), words });
        assert_eq!(parse("me\n?\ng\n\u{e9}\nea\nd-1\nl").map(|heard| heard.words), Some(Words::default()));
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_that_is_said() {
        let words =
            Words { grown: (0..1_000).map(|number| (run(&format!("run-{number}")), false)).collect(), ..Words::default() };
        let payload = words.payload("me");
        assert!(payload.len() < 8_000);
        let heard = parse(&payload).expect("it has a server").words;
        assert!(heard.grown.len() > 300 && heard.is_cut);
    }
}
