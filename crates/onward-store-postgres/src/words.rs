//! The words on the channel: which runs changed, and how, in the few kilobytes that a notification takes.
//!
//! What does not fit is left out: a hint may be lost, and says only where to look.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Index, Namespace, RunId, RunKey, Timestamp};
use onward_store::kept::News;

/// A notification has room for 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Words {
    pub due: Option<Timestamp>,
    pub has_deliveries: bool,
    pub pending: BTreeSet<RunKey>,
    /// Runs with tasks that may be claimed.
    pub queued: BTreeSet<RunKey>,
    /// From where on.
    pub appended: BTreeMap<RunKey, (u32, Index)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    pub server: String,
    pub words: Words,
}

impl Words {
    pub fn is_empty(&self) -> bool {
        *self == Words::default()
    }

    pub fn add(&mut self, news: &[News], due: Option<Timestamp>) {
        self.due = [self.due, due].into_iter().flatten().min();
        for item in news {
            match item {
                News::Appended { head, record } => {
                    let since = self.appended.entry(head.key.clone()).or_insert((head.generation, record.index));
                    if since.0 != head.generation {
                        *since = (head.generation, record.index);
                    }
                }
                News::RunPending { head } => drop(self.pending.insert(head.key.clone())),
                News::TaskQueued { task } => drop(self.queued.insert(task.id.run.clone())),
                News::DueAt(at) => self.due = Some(self.due.map_or(*at, |due| due.min(*at))),
                News::DeliveryAdded => self.has_deliveries = true,
            }
        }
    }

    /// The most useful words first.
    pub fn payload(&self, server: &str) -> String {
        let mut text = server.to_owned();
        let mut say = |line: String| {
            if text.len() + line.len() < PAYLOAD_BYTES_MAX {
                text.push('\n');
                text.push_str(&line);
            }
        };
        self.due.iter().for_each(|due| say(format!("d{}", due.0)));
        self.has_deliveries.then(|| say("o".to_owned()));
        self.pending.iter().for_each(|run| say(format!("p{}", name(run))));
        self.queued.iter().for_each(|run| say(format!("t{}", name(run))));
        for (run, (generation, index)) in &self.appended {
            say(format!("a{generation}\t{}\t{}", index.0, name(run)));
        }
        text
    }
}

/// Neither part can have a control character in it.
fn name(run: &RunKey) -> String {
    format!("{}\t{}", run.namespace.as_str(), run.id.as_str())
}

fn parse_name(text: &str) -> Option<RunKey> {
    let (namespace, id) = text.split_once('\t')?;
    Some(RunKey::new(Namespace::new(namespace).ok()?, RunId::new(id).ok()?))
}

/// What cannot be read, from whomever, is passed over.
pub(crate) fn parse(payload: &str) -> Option<Heard> {
    let mut lines = payload.split('\n');
    let server = lines.next()?.to_owned();
    let mut words = Words::default();
    for line in lines {
        let (Some(letter), Some(rest)) = (line.get(..1), line.get(1..)) else { continue };
        match letter {
            "d" => words.due = rest.parse().ok().map(Timestamp),
            "o" => words.has_deliveries = true,
            "p" => words.pending.extend(parse_name(rest)),
            "t" => words.queued.extend(parse_name(rest)),
            "a" => words.appended.extend(parse_appended(rest)),
            _ => {}
        }
    }
    Some(Heard { server, words })
}

fn parse_appended(text: &str) -> Option<(RunKey, (u32, Index))> {
    let (generation, rest) = text.split_once('\t')?;
    let (index, run) = rest.split_once('\t')?;
    Some((parse_name(run)?, (generation.parse().ok()?, Index(index.parse().ok()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> RunKey {
        RunKey::new(Namespace::default(), RunId::new(id).expect("a good id"))
    }

    #[test]
    fn what_is_said_is_heard_and_nonsense_is_passed_over() {
        let words = Words {
            due: Some(Timestamp(7)),
            has_deliveries: true,
            pending: BTreeSet::from([run("a b"), run("c/d")]),
            queued: BTreeSet::from([run("e")]),
            appended: BTreeMap::from([(run("f"), (2, Index(9)))]),
        };
        let heard = parse(&words.payload("me")).expect("it has a server");
        assert_eq!(heard, Heard { server: "me".to_owned(), words });
        assert_eq!(parse("me\nx\np\n\u{e9}\na1\nd-1").map(|heard| heard.words), Some(Words::default()));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let words = Words { pending: (0..1_000).map(|number| run(&format!("run-{number}"))).collect(), ..Words::default() };
        let payload = words.payload("me");
        assert!(payload.len() < 8_000);
        assert!(parse(&payload).expect("it has a server").words.pending.len() > 300);
    }
}
