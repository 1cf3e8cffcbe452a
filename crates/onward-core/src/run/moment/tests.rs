//! Tests of the parent module.

use super::*;
use crate::agent::conversation::entry_id;
use crate::log::event::*;
use crate::run::view::tests::{Script, at, awaited, completed, name, script, signal, task, text};

fn moment(script: &Script, index: u64) -> Moment {
    Moment::of(&script.head.key, &script.records, Index(index)).unwrap()
}

fn set(call_id: u32, value: &str) -> Event {
    StateSet { call_id: at(call_id), key: name("stage"), value: text(value) }.into()
}

fn order() -> Script {
    let consumed = SignalConsumed { call_id: at(1), name: name("paid"), index: Index(4) };
    script(vec![])
        .commit(vec![set(0, "new"), awaited(1, "paid"), task(2)])
        .input(signal("paid"))
        .commit(vec![consumed.into(), set(3, "paid")])
        .input(RunPaused::because(PauseReason::Requested, "lunch"))
        .input(RunResumed::default())
        .input(CancelRequested::new("late".to_owned()))
        .commit(vec![completed()])
}

#[test]
fn a_moment_is_the_run_as_it_was() {
    let order = order();
    let statuses: Vec<&str> = (0..=10).map(|index| moment(&order, index).status.as_str()).collect();
    let expected = ["pending", "running", "running", "waiting", "pending", "running", "waiting", "paused", "pending", "pending"];
    assert_eq!(statuses[..10], expected);
    assert_eq!(statuses[10], "completed");
    let open = |index| moment(&order, index).open_calls.iter().map(CallId::to_string).collect::<Vec<_>>();
    assert_eq!(
        (open(0), open(2), open(3), open(5), open(10)),
        (vec![], vec!["1".into()], vec!["1".into(), "2".into()], vec!["2".into()], vec![])
    );
    let stage = |index| moment(&order, index).state.first().map(|value| value.value.clone());
    assert_eq!((stage(0), stage(1), stage(5), stage(6)), (None, Some(text("new")), Some(text("new")), Some(text("paid"))));
    assert_eq!((moment(&order, 7).pause.is_some(), moment(&order, 8).pause.is_some()), (true, false));
    assert_eq!((moment(&order, 8).cancel_reason, moment(&order, 9).cancel_reason), (None, Some("late".to_owned())));
    assert_eq!((moment(&order, 9).outcome, moment(&order, 10).outcome), (None, Some(Ok(text("out")))));
    let third = moment(&order, 3);
    assert_eq!(
        (third.event.name(), third.commit, third.at, third.counts.tasks_scheduled),
        ("task_scheduled", Some(0), Timestamp(1_001), 1)
    );
}

/// MO1
#[test]
fn later_events_do_not_change_a_moment() {
    let order = order();
    for (position, record) in order.records.iter().enumerate() {
        let known = &order.records[..=position];
        for (index, _) in record.indexed() {
            assert_eq!(Moment::of(&order.head.key, known, index), Some(moment(&order, index.0)));
        }
    }
}

/// MO2
#[test]
fn the_last_moment_is_the_view() {
    let order = order();
    let head = RunHead::rebuild(order.head.key.clone(), &order.records).unwrap();
    let (view, known) = view_at(&order.head.key, &order.records, Index(10)).unwrap();
    assert_eq!((view, known), (RunView::fold(head, &order.records), order.records));
}

#[test]
fn a_log_without_the_event_has_no_moment() {
    let order = order();
    for index in [11, 12, u64::MAX] {
        assert_eq!(Moment::of(&order.head.key, &order.records, Index(index)), None);
    }
    assert_eq!(Moment::of(&order.head.key, &[], Index(0)), None);
}

fn entry(call_id: u32, parent: Option<Hash>, word: &str) -> (Hash, Event) {
    let (role, content) = (name("user"), text(word));
    let id = entry_id(parent, &role, &content);
    let call_id = at(call_id);
    (id, EntryAppended { call_id, id, parent, role, content, quote: None, is_aside: false, idempotency_key: None }.into())
}

#[test]
fn entries_count_until_they_are_abandoned() {
    let (first, one) = entry(0, None, "one");
    let (second, two) = entry(1, Some(first), "two");
    let (other, another) = entry(100_000, Some(first), "another");
    let divergence =
        Divergence { index: Index(2), recorded: String::new(), attempted: String::new(), nearest: None, hint: String::new() };
    let (from, to) = (Index(2), Index(2));
    let left = SegmentAbandoned { from, to, attempt: 1, withdrawn: vec![], divergence };
    let agent = script(vec![]).commit(vec![one]).commit(vec![two]).commit(vec![left.into(), another]);
    let leaf = |index| (moment(&agent, index).leaf, moment(&agent, index).entries);
    assert_eq!(leaf(0), (None, 0));
    assert_eq!((leaf(1), leaf(2)), ((Some(first), 1), (Some(second), 2)));
    assert_eq!((leaf(3), leaf(4)), ((Some(first), 1), (Some(other), 2)), "the second entry is abandoned");
}
