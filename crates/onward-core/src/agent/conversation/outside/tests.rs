//! Tests of the parent module.

use super::*;
use crate::log::CommitHeader;
use crate::log::event::{Divergence, RunStarted, SegmentAbandoned, SignalConsumed, SignalReceived};
use crate::{CallId, CommitId, Epoch};

fn signal(text: &str) -> SignalReceived {
    let entry = OutsideEntry { role: Name::new("user").unwrap(), content: Payload::json(text).unwrap(), idempotency_key: None };
    SignalReceived { name: Name::new(ENTRY_SIGNAL).unwrap(), payload: entry.to_payload(), signal_id: None, sender: None }
}

fn carried(text: &str) -> CarriedSignal {
    let SignalReceived { name, payload, .. } = signal(text);
    CarriedSignal { name, payload, signal_id: None, sender: None }
}

fn consumed(index: u64) -> Event {
    SignalConsumed { call_id: CallId::root(0), name: Name::new(ENTRY_SIGNAL).unwrap(), index: Index(index) }.into()
}

fn commit(index: u64, events: Vec<Event>) -> Record {
    let (n, epoch, commit_id, horizon) = (index, Epoch(1), CommitId(index), Index(0));
    let header = CommitHeader { n, epoch, commit_id, horizon, waits: false, is_while_paused: false };
    Record { index: Index(index), at: Timestamp(index), commit: Some(header), events }
}

#[test]
fn unconsumed_entries_are_pending_also_carried_or_returned_ones() {
    let started =
        RunStarted { mailbox: vec![carried("a"), carried("b")], ..RunStarted::new(Name::new("k").unwrap(), Payload::null(), 1) };
    let divergence =
        Divergence { index: Index(3), recorded: String::new(), attempted: String::new(), nearest: None, hint: String::new() };
    let left = SegmentAbandoned { from: Index(3), to: Index(3), attempt: 1, withdrawn: Vec::new(), divergence };
    let mut log = vec![
        Record::input(Index(0), Timestamp(0), started.into()),
        Record::input(Index(1), Timestamp(1), signal("c").into()),
        commit(2, vec![consumed(0)]),
        commit(3, vec![consumed(0)]),
    ];
    let pending_texts =
        |log: &[Record]| -> Vec<String> { pending_of(log).iter().map(|entry| entry.content.read().unwrap()).collect() };
    assert_eq!(pending_texts(&log), ["c"]);
    log.push(commit(4, vec![left.into()]));
    assert_eq!(pending_texts(&log), ["b", "c"], "entries consumed on an abandoned path are pending again");
}
