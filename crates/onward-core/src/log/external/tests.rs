use super::*;
use crate::log::event::{CancelRequested, SignalReceived};
use crate::{Namespace, RunId};

fn json(text: &str) -> Payload {
    Payload::from_json_text(text.to_owned())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key() -> RunKey {
    RunKey::new(Namespace::default(), RunId::new("r").unwrap())
}

fn events(expected: u64, texts: &[&str]) -> ExternalAppended {
    ExternalAppended { expected: Some(Index(expected)), events: texts.iter().map(|text| json(text)).collect(), state: None }
}

fn state(status: Status) -> ExternalAppended {
    let state = ExternalState { kind: name("pipeline"), version: Some(name("v2")), status, data: json("{}") };
    ExternalAppended { expected: None, events: Vec::new(), state: Some(state) }
}

#[test]
fn a_log_from_outside_goes_on_where_its_engine_stood() {
    let mut bench = Bench::new();
    for event in [events(0, &["1", "2"]), state(Status::Waiting), events(2, &["3"])] {
        bench.append(event).unwrap();
    }
    assert_eq!(wrong_append(&bench.records), None);
    let with = |event: Event| [&bench.records[..], &[Record::input(bench.head.next_index, Timestamp(9), event)]].concat();
    assert_eq!(wrong_append(&with(events(3, &["4"]).into())), None);
    for bad in [events(u64::MAX, &["4"]), events(2, &["4"]), state(Status::Pending)] {
        assert!(wrong_append(&with(bad.into())).is_some());
    }
    assert!(wrong_append(&with(CancelRequested::new(String::new()).into())).is_some());
}

/// A run and its log, as in a store.
struct Bench {
    head: RunHead,
    records: Vec<Record>,
}

impl Bench {
    fn new() -> Bench {
        let run = NewRun::external(key(), events(0, &[]), None);
        let (head, first) = RunHead::start(key(), run.started, Timestamp(1));
        Bench { head, records: vec![first] }
    }

    fn append(&mut self, event: impl Into<Event>) -> Result<Index, Refusal> {
        let before = self.head.clone();
        let at = Timestamp(1 + self.records.len() as u64);
        match self.head.admit_input(Input::new(event), None, at) {
            Ok(admitted) => {
                assert_eq!(admitted.effects, []);
                let index = admitted.record.index;
                self.records.push(admitted.record);
                assert_eq!(RunHead::rebuild(key(), &self.records).as_ref(), Some(&self.head), "L16");
                Ok(index)
            }
            Err(refusal) => {
                assert_eq!(self.head, before, "a refusal changes nothing");
                Err(refusal)
            }
        }
    }

    fn next(&self) -> u64 {
        self.head.external.unwrap().next_index.0
    }
}

#[test]
fn events_are_taken_where_the_log_goes_on_and_nowhere_else() {
    let mut bench = Bench::new();
    bench.append(events(0, &["1", "2"])).unwrap();
    for expected in [0, 1, 3] {
        let refusal = bench.append(events(expected, &["3"])).unwrap_err();
        assert_eq!(refusal, Refusal::LogConflict { key: key(), expected: Index(expected), next: Index(2) });
    }
    bench.append(events(2, &["3"])).unwrap();
    assert_eq!(bench.next(), 3);
    let fenced = ExternalAppended { expected: Some(Index(3)), ..state(Status::Waiting) };
    bench.append(fenced.clone()).unwrap();
    bench.append(events(3, &["4"])).unwrap();
    assert!(matches!(bench.append(fenced), Err(Refusal::LogConflict { .. })));
}

#[test]
fn a_state_alone_needs_no_index_and_takes_none() {
    let mut bench = Bench::new();
    bench.append(events(0, &["1"])).unwrap();
    let index = bench.append(state(Status::Waiting)).unwrap();
    assert_eq!((bench.next(), bench.head.status), (1, Status::Waiting));
    assert_eq!(bench.head.external.unwrap().state_at, Some(index));
    assert_eq!((bench.head.kind.as_str(), bench.head.version.as_ref().unwrap().as_str()), ("pipeline", "v2"));
}

#[test]
fn a_state_behind_its_fence_is_refused_with_its_events() {
    let mut bench = Bench::new();
    bench.append(events(0, &["1"])).unwrap();
    let mut late = state(Status::Completed);
    late.expected = Some(Index(0));
    late.events = vec![json("2")];
    assert!(matches!(bench.append(late), Err(Refusal::LogConflict { .. })));
    assert_eq!((bench.next(), bench.head.status), (1, Status::Running));
}

#[test]
fn a_closed_run_takes_events_and_can_be_open_again() {
    let mut bench = Bench::new();
    bench.append(state(Status::Completed)).unwrap();
    let ended = bench.head.ended_at;
    assert_eq!(ended, Some(Timestamp(2)));
    bench.append(events(0, &["\"RUN_FINISHED\""])).unwrap();
    bench.append(state(Status::Completed)).unwrap();
    assert_eq!(bench.head.ended_at, ended, "the end time stays");
    bench.append(state(Status::Running)).unwrap();
    assert_eq!((bench.head.status, bench.head.ended_at), (Status::Running, None));
}

#[test]
fn an_external_run_is_never_pending_paused_or_terminated() {
    let mut bench = Bench::new();
    assert_eq!(bench.head.status, Status::Running);
    for status in [Status::Pending, Status::Paused, Status::Terminated] {
        assert!(matches!(bench.append(state(status)), Err(Refusal::Malformed { .. })), "{status}");
    }
}

#[test]
fn events_without_an_index_and_appends_of_nothing_are_refused() {
    let mut bench = Bench::new();
    assert!(matches!(bench.append(events(0, &[])), Err(Refusal::Malformed { .. })));
    let without_call_id = ExternalAppended { expected: None, ..events(0, &["1"]) };
    assert!(matches!(bench.append(without_call_id), Err(Refusal::Malformed { .. })));
}

#[test]
fn neither_form_of_run_takes_what_is_for_the_other() {
    let mut bench = Bench::new();
    let signal = SignalReceived { name: name("paid"), payload: json("1"), signal_id: None, sender: None };
    assert_eq!(bench.append(signal), Err(Refusal::External { key: key() }));
    assert_eq!(bench.append(CancelRequested::new(String::new())), Err(Refusal::External { key: key() }));

    let mut started = NewRun::external(key(), events(0, &[]), None).started;
    started.is_external = false;
    let (head, first) = RunHead::start(key(), started, Timestamp(1));
    let mut ordinary = Bench { head, records: vec![first] };
    assert_eq!(ordinary.append(events(0, &["1"])), Err(Refusal::NotExternal { key: key() }));
}

#[test]
fn each_event_knows_its_index() {
    let appended = events(7, &["1", "2"]);
    let indexed: Vec<_> = appended.indexed().map(|(index, event)| (index.0, event.clone())).collect();
    assert_eq!(indexed, [(7, json("1")), (8, json("2"))]);
    assert_eq!(appended.next_index(), Some(Index(9)));
    assert_eq!(state(Status::Running).next_index(), None);
}
