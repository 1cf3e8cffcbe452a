//! Tests of the parent module.

use super::*;
use crate::log::CommitHeader;
use crate::log::event::{Checkpoint, Divergence, RunStarted, SegmentAbandoned, SignalReceived};
use crate::run::ancestry::Origin;
use crate::{CallId, CommitId, Epoch, Namespace, RunId};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn entry(ordinal: u32, parent: Option<Hash>, role: &str, content: &Payload) -> EntryAppended {
    let (call_id, role) = (CallId::root(ordinal), name(role));
    let id = entry_id(parent, &role, content);
    EntryAppended { call_id, id, parent, role, content: content.clone(), quote: None, is_aside: false, idempotency_key: None }
}

fn commit(index: u64, events: Vec<Event>) -> Record {
    let header = CommitHeader {
        n: index,
        epoch: Epoch(1),
        commit_id: CommitId(index),
        horizon: Index(0),
        waits: false,
        is_while_paused: false,
    };
    Record { index: Index(index), at: Timestamp(index), commit: Some(header), events }
}

fn started(leaf: Option<Hash>) -> Record {
    let checkpoint = Checkpoint {
        state: Payload::null(),
        prelude: None,
        awaits: None,
        leaf,
        depth: 0,
        kept: Vec::new(),
        keys: Vec::new(),
        abandoned_children: Vec::new(),
        handoff: None,
        tally: None,
    };
    let started = RunStarted { checkpoint: Some(Box::new(checkpoint)), ..RunStarted::new(name("a"), Payload::null(), 1) };
    Record::input(Index(0), Timestamp(0), started.into())
}

fn text(text: &str) -> Payload {
    Payload::json(text).unwrap()
}

fn texts_of(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.content.read().unwrap()).collect()
}

/// Returns a conversation of one entry per generation, and the entries of each.
fn conversation(count: u32) -> Vec<Vec<Entry>> {
    let mut leaf = None;
    let generation = |generation: u32| {
        let entry = entry(0, leaf, "user", &text(&generation.to_string()));
        leaf = Some(entry.id);
        entries_of(generation, &[started(entry.parent), commit(1, vec![entry.into()])])
    };
    (0..count).map(generation).collect()
}

#[test]
fn a_conversation_is_read_backwards_page_by_page() {
    let generations = conversation(7);
    let page = |leaf, limit| {
        let mut walk = Walk::from(leaf, limit);
        for entries in generations.iter().rev() {
            walk.read(entries);
        }
        let before = walk.before();
        (texts_of(&walk.into_entries()), before)
    };
    let (last, before) = page(Some(generations[6][0].id), 3);
    assert_eq!((last, before), (vec!["4".to_owned(), "5".into(), "6".into()], Some(generations[3][0].id)));
    let (first, before) = page(before, 10);
    assert_eq!((first.len(), before), (4, None));
}

#[test]
fn a_quote_has_the_text_of_the_input_and_a_broken_one_none() {
    let message = text("a long message that nobody wants to keep twice");
    let signal = SignalReceived { name: name("m"), payload: message.clone(), signal_id: None, sender: None };
    let quoted = |index| {
        let quote = Some(Quote { index: Index(index), item: 0 });
        EntryAppended { content: Payload::null(), quote, ..entry(0, None, "user", &message) }
    };
    let log = |index| {
        vec![started(None), Record::input(Index(1), Timestamp(1), signal.clone().into()), commit(2, vec![quoted(index).into()])]
    };
    assert_eq!(entries_of(0, &log(1))[0].content, message);
    assert!(entries_of(0, &log(0)).is_empty() && entries_of(0, &log(9)).is_empty());
}

#[test]
fn what_was_left_is_marked_and_the_leaf_is_on_the_path() {
    let (one, other) = (entry(0, None, "user", &text("one")), entry(1 << 24, None, "user", &text("other")));
    let aside = EntryAppended { is_aside: true, ..entry(2, None, "settings", &text("s")) };
    let divergence =
        Divergence { index: Index(1), recorded: String::new(), attempted: String::new(), nearest: None, hint: String::new() };
    let left = SegmentAbandoned { from: Index(1), to: Index(1), attempt: 1, withdrawn: Vec::new(), divergence };
    let log = [started(None), commit(1, vec![one.into()]), commit(2, vec![left.into(), other.clone().into(), aside.into()])];
    let entries = entries_of(0, &log);
    assert_eq!(entries.iter().map(|entry| entry.is_abandoned).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(leaf_of(&log), Some(other.id));
    assert_eq!(leaf_of(&[started(Some(other.id))]), Some(other.id));
}

#[test]
fn a_context_is_the_last_summary_and_what_it_does_not_cover() {
    let mut generations = conversation(5);
    let covers = generations[2][0].id;
    let summary = Payload::json(&Summary { text: "0 to 2".into(), covers }).unwrap();
    let summary = entry(0, Some(generations[4][0].id), SUMMARY, &summary);
    let last = entry(1, Some(summary.id), "user", &text("5"));
    let leaf = last.id;
    generations.push(entries_of(5, &[started(summary.parent), commit(1, vec![summary.into(), last.into()])]));
    let mut walk = Walk::context(Some(leaf));
    for entries in generations.into_iter().rev() {
        walk.read(&entries);
    }
    assert_eq!(walk.wants(), None);
    let entries = walk.into_entries();
    assert_eq!((entries[0].role.as_str(), texts_of(&entries[1..])), (SUMMARY, vec!["3".to_owned(), "4".into(), "5".into()]));
}

#[test]
fn a_retry_has_the_log_before_it_and_a_fork_has_logs_of_its_own() {
    let key = |id: &str| RunKey::new(Namespace::default(), RunId::new(id).unwrap());
    let before = |run: &str, generation, origins: &[(&str, u32)]| {
        let mut first = started(None);
        if let Some(Event::RunStarted(started)) = first.events.first_mut() {
            let origin = |(run, generation): &(&str, u32)| Origin { generation: *generation, ..Origin::of_start(key(run)) };
            started.origins = origins.iter().map(origin).collect();
            started.generation = generation;
        }
        log_before(&key(run), &first)
    };
    assert_eq!(before("r", 0, &[]), None);
    assert_eq!(before("r", 3, &[]), Some(2));
    assert_eq!(before("r", 3, &[("r", 2)]), Some(1), "a retry has the failed log");
    assert_eq!(before("f", 3, &[("r", 3)]), Some(2));
    assert_eq!(before("f", 3, &[("r", 2), ("r", 3)]), Some(2), "of a retry");
    assert_eq!(before("f", 4, &[("r", 3), ("f", 3)]), Some(2), "retried itself");
    assert_eq!(before("g", 2, &[("r", 2), ("f", 2)]), Some(1), "of a fork");
    assert_eq!(before("f", 0, &[("r", 0)]), None);
}
