//! Tests of the parent module.

use onward_core::event::RunStarted;
use onward_core::{Event, Name, Namespace, Payload, RunId};

use super::*;

fn body() -> Vec<u8> {
    let started = RunStarted::new(Name::new("order").expect("a name"), Payload::null(), 3);
    let events: Vec<Event> = vec![started.into()];
    let mut body = Vec::new();
    Record { index: Index(0), at: Timestamp(1), commit: None, events }.encode_body(&mut body);
    body
}

/// S35: a row with a valid checksum is read or reported as damaged; one with a wrong checksum is never read.
#[test]
fn mutated_rows_are_refused_or_read_back_and_never_panic() {
    let key = RunKey::new(Namespace::default(), RunId::new("r").expect("an id"));
    let counts = onward_testkit::mutate("rows of events", &[body()], |body| {
        let (index, at) = (Index(0), Timestamp(1));
        let crc = event_crc(7, index, at, 0, None, body);
        let row = EventRow { rk: 7, index, at, commit_count: 0, last_commit: None, crc, body };
        let Ok(record) = row.decode(&key) else { return false };
        let mut again = Vec::new();
        record.encode_body(&mut again);
        assert_eq!(Record::decode_body(index, at, &again).as_ref(), Ok(&record));
        assert!(EventRow { crc: row.crc ^ 1, ..row }.decode(&key).is_err(), "a wrong checksum is ignored");
        true
    });
    counts.assert_refuses();
}
