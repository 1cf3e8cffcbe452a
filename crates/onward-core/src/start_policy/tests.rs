//! Tests of the parent module.

use super::*;
use crate::{Name, Payload, RunId, Timestamp};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn singleton(on_conflict: OnConflict) -> StartPolicy {
    StartPolicy::Singleton(Singleton { key: "k".to_owned(), on_conflict })
}

fn debounce(window_ms: u64, max_wait_ms: Option<u64>) -> StartPolicy {
    StartPolicy::Debounce(Debounce { key: "k".to_owned(), window_ms, max_wait_ms })
}

fn batch(size_max: u32, window_ms: u64) -> StartPolicy {
    StartPolicy::Batch(Batch { key: "k".to_owned(), size_max, window_ms })
}

fn ask(policy: StartPolicy, run: &str, input: &str) -> PolicyAsk {
    let input = Payload::from_json_text(input.to_owned());
    PolicyAsk { policy, run: RunId::new(run).unwrap(), options: RunOptions::default(), input, request_id: None }
}

/// A cell that is led through inputs.
struct Cell(PolicyHead);

impl Cell {
    fn new(policy: &StartPolicy) -> Cell {
        Cell(PolicyHead::new(PolicyCell::of(policy, &name("report"), None), Timestamp(0)))
    }

    fn input(&mut self, input: &PolicyInput, at: u64) -> Vec<PolicyChange> {
        let decision = self.0.decide(input, Timestamp(at)).unwrap();
        let mut folded = self.0.clone();
        decision.changes.iter().for_each(|change| folded.apply(input, change, Timestamp(at)));
        assert_eq!(folded, decision.head, "SP6");
        self.0 = decision.head;
        decision.changes
    }

    /// Returns the answer as `run outcome due`.
    fn ask(&mut self, ask: PolicyAsk, at: u64) -> String {
        let changes = self.input(&PolicyInput::Ask(Box::new(ask.clone())), at);
        let StartAnswer { run, outcome, due_at } = ask.answer(&changes).unwrap();
        let due_at = due_at.map(|at| format!(" {}", at.0)).unwrap_or_default();
        format!("{run} {}{due_at}", outcome.as_str())
    }

    /// Returns the run that the timer starts, if it starts one.
    fn due(&mut self, at: u64) -> Option<String> {
        let changes = self.input(&PolicyInput::Due(PolicyDue {}), at);
        changes.iter().find_map(|change| match change {
            PolicyChange::Started(started) => Some(started.run.to_string()),
            _ => None,
        })
    }
}

#[test]
fn a_debounced_start_is_moved_by_each_later_one_up_to_the_longest_wait() {
    let policy = || debounce(100, Some(250));
    let mut cell = Cell::new(&policy());
    assert_eq!(cell.ask(ask(policy(), "a", "1"), 0), "a held 100");
    assert_eq!(cell.due(99), None);
    assert_eq!(cell.ask(ask(policy(), "b", "2"), 90), "a held 190");
    assert_eq!(cell.ask(ask(policy(), "c", "3"), 180), "a held 250", "SP3");
    // A start that allows a longer wait does not extend that of an earlier one.
    assert_eq!(cell.ask(ask(debounce(100, Some(9_000)), "d", "4"), 240), "a held 250", "SP3");
    assert_eq!(cell.0.held.as_ref().unwrap().inputs, [Payload::from_json_text("4")]);
    assert_eq!(cell.due(250).as_deref(), Some("a"));
    assert_eq!(cell.ask(ask(policy(), "e", "5"), 251), "e held 351");
}

#[test]
fn a_batch_starts_with_its_last_input_or_at_the_end_of_its_window() {
    let mut cell = Cell::new(&batch(3, 100));
    assert_eq!(cell.ask(ask(batch(3, 100), "a", "1"), 0), "a held 100");
    assert_eq!(cell.ask(ask(batch(3, 20), "b", "2"), 10), "a held 20", "SP4");
    assert_eq!(cell.ask(ask(batch(3, 100), "c", "3"), 15), "a started");
    assert_eq!(cell.ask(ask(batch(3, 100), "d", "4"), 16), "d held 116");
    assert_eq!(cell.due(116).as_deref(), Some("d"));
    assert_eq!(cell.ask(ask(batch(1, 100), "e", "5"), 117), "e started");
}

#[test]
fn a_batch_that_is_full_or_has_other_options_starts_before_the_next_input() {
    let policy = || batch(100, 1_000);
    let mut cell = Cell::new(&policy());
    let long = format!("\"{}\"", "x".repeat(60 * 1024));
    assert_eq!(cell.ask(ask(policy(), "a", &long), 0), "a held 1000");
    assert_eq!(cell.ask(ask(policy(), "b", &long), 1), "a held 1000");
    assert_eq!(cell.ask(ask(policy(), "c", &long), 2), "c held 1002", "SP4");
    let options = RunOptions { deadline_ms: Some(5), ..RunOptions::default() };
    assert_eq!(cell.ask(PolicyAsk { options, ..ask(policy(), "d", "1") }, 3), "d held 1003", "SP5");
    let trace = RunOptions { deadline_ms: Some(5), trace: Some("t".to_owned()), ..RunOptions::default() };
    assert_eq!(cell.ask(PolicyAsk { options: trace, ..ask(policy(), "e", "2") }, 4), "d held 1003");
}

#[test]
fn a_singleton_skips_or_replaces_while_its_run_is_open() {
    let (skip, cancel) = (|| singleton(OnConflict::Skip), || singleton(OnConflict::Cancel));
    let mut cell = Cell::new(&skip());
    assert_eq!(cell.ask(ask(skip(), "a", "1"), 0), "a started");
    assert_eq!(cell.ask(ask(skip(), "b", "2"), 1), "a skipped", "SP1");
    assert_eq!(cell.ask(ask(cancel(), "c", "3"), 2), "c held");
    assert_eq!(cell.ask(ask(cancel(), "d", "4"), 3), "c held", "SP2");
    assert_eq!(cell.ask(ask(skip(), "e", "5"), 4), "c skipped");
    let ended =
        |number| PolicyInput::Ended(crate::schedule::Ended { number, ending: crate::schedule::Ending::Canceled, code: None });
    assert_eq!(cell.input(&ended(7), 5), [], "SP7");
    assert!(matches!(&cell.input(&ended(0), 6)[..], [PolicyChange::Ended(_), PolicyChange::Started(_)]));
    assert_eq!(cell.input(&ended(0), 7), [], "SP7");
    assert_eq!(cell.ask(ask(skip(), "f", "6"), 8), "c skipped");
}

#[test]
fn an_idle_cell_ends_after_the_time_for_repeats() {
    let kept = crate::time::millis(KEPT_FOR);
    let mut cell = Cell::new(&batch(1, 10));
    cell.ask(ask(batch(1, 10), "a", "1"), 5);
    assert_eq!(cell.0.wake_at, Some(Timestamp(kept)));
    assert_eq!(cell.input(&PolicyInput::Due(PolicyDue {}), kept - 1), [], "SP7");
    let changes = cell.input(&PolicyInput::Due(PolicyDue {}), kept);
    assert!(matches!(changes[..], [PolicyChange::Wake(NextWake { at: None }), PolicyChange::Closed(_)]), "SP8: {changes:?}");
    // One that holds a start ends when it has started.
    let mut cell = Cell::new(&debounce(10, None));
    cell.ask(ask(debounce(10, None), "a", "1"), kept - 5);
    assert_eq!(cell.input(&PolicyInput::Due(PolicyDue {}), kept), [], "it holds a start");
    assert!(matches!(cell.input(&PolicyInput::Due(PolicyDue {}), kept + 5).last(), Some(PolicyChange::Closed(_))), "SP8");
}

#[test]
fn a_start_outside_of_the_limits_is_refused() {
    let key = |key: &str| StartPolicy::Singleton(Singleton { key: key.to_owned(), on_conflict: OnConflict::Skip });
    let month = crate::time::millis(WINDOW_MAX);
    let refused = [
        key(""),
        key(&"k".repeat(1_025)),
        debounce(0, None),
        debounce(month + 1, Some(month)),
        debounce(10, Some(9)),
        debounce(10, Some(month + 1)),
        batch(0, 10),
        batch(1_001, 10),
        batch(1, 0),
    ];
    for policy in refused {
        let error = ask(policy.clone(), "r", "1").check().unwrap_err();
        assert_eq!((error.code(), error.hint().is_some()), ("start_policy_invalid", true), "{policy:?}");
    }
    for policy in [key(&"k".repeat(1_024)), debounce(month, None), debounce(10, Some(10)), batch(1_000, month)] {
        assert_eq!(ask(policy.clone(), "r", "1").check(), Ok(()), "{policy:?}");
    }
    assert!(ask(key("k"), "r", &"1".repeat(INPUT_BYTES_MAX + 1)).check().is_err());
    let mut image = ask(batch(2, 10), "r", "1");
    image.input = Payload::binary("image/png", vec![1]);
    assert!(matches!(image.check(), Err(StartPolicyRefusal::BatchInput { .. })));
    image.policy = key("k");
    assert_eq!(image.check(), Ok(()));
}

#[test]
fn a_cell_has_two_ids_and_one_context() {
    let of = |policy: &StartPolicy, kind: &str, requester| PolicyCell::of(policy, &name(kind), requester);
    let cell = of(&batch(1, 1), "report", Some("ada"));
    assert_ne!(cell.ids()[0], cell.ids()[1]);
    for id in cell.ids() {
        assert_eq!((policy_of(&id), context_of(&id)), (Some(PolicyType::Batch), Some(cell.context())));
    }
    assert_eq!(context_of(&cell.context()), None);
    assert_eq!((policy_of(&RunId::new("r").unwrap()), context_of(&RunId::new("starts:x:1.0").unwrap())), (None, None));
    // Batches of two credentials are apart, and have the same context; other policies combine the starts of all credentials.
    let other = of(&batch(1, 1), "report", Some("bob"));
    assert!(other.ids() != cell.ids() && other.context() == cell.context());
    assert_eq!(of(&debounce(1, None), "report", Some("ada")), of(&debounce(1, None), "report", None));
    assert_ne!(of(&debounce(1, None), "report", None).ids(), of(&debounce(1, None), "invoice", None).ids());
    assert_ne!(of(&debounce(1, None), "report", None).ids(), of(&singleton(OnConflict::Skip), "report", None).ids());
}

#[test]
fn a_list_of_payloads_is_json_or_keeps_its_items() {
    let json = |text: &str| Payload::from_json_text(text.to_owned());
    assert_eq!(Payload::list(&[json("1"), json("{\"a\": 2}")]), json("[1,{\"a\": 2}]"));
    let items = [json("1"), Payload::sealed("main", vec![7; 20])];
    assert_eq!(Payload::list(&items).list_items().unwrap(), items);
    assert_eq!(json("[1]").list_items(), None);
}
