//! Tests of the parent module.

use onward_core::event::RunStarted;
use onward_core::{Event, Name, Namespace, Payload, RunId};
use onward_store::durable::seal::unseal_message;

use super::*;

fn body() -> Vec<u8> {
    let started = RunStarted::new(Name::new("order").expect("a name"), Payload::null(), 3);
    let events: Vec<Event> = vec![started.into()];
    let mut body = Vec::new();
    Record { index: Index(0), at: Timestamp(1), commit: None, events }.encode_body(&mut body);
    body
}

/// S35: a row with a matching checksum is decoded or reported as damaged; one with another checksum is never decoded.
#[test]
fn mutated_rows_are_refused_or_read_back_and_never_panic() {
    let key = RunKey::new(Namespace::default(), RunId::new("r").expect("an id"));
    let counts = onward_testkit::mutate("rows of events", &[body()], |body| {
        let (index, at) = (Index(0), Timestamp(1));
        let crc = event_crc(7, 0, index, at, body);
        let row = EventRow { rk: 7, generation: 0, index, at, crc, body };
        let Ok(record) = row.decode(&key) else { return false };
        let mut again = Vec::new();
        record.encode_body(&mut again);
        assert_eq!(Record::decode_body(index, at, &again).as_ref(), Ok(&record));
        assert!(EventRow { crc: row.crc ^ 1, ..row }.decode(&key).is_err(), "a wrong checksum was accepted");
        true
    });
    counts.assert_refuses();
}

/// The mutated bytes get a matching checksum.
#[test]
fn mutated_deliveries_are_refused_or_read_back_and_never_panic() {
    let key = RunKey::new(Namespace::default(), RunId::new("r").expect("an id"));
    let started = RunStarted::new(Name::new("order").expect("a name"), Payload::null(), 3);
    let delivery = onward_core::run::OutboxMessage::Start(onward_core::run::NewRun { key, started, signal: None });
    let counts = onward_testkit::mutate("deliveries", &[delivery.to_bytes()], |bytes| {
        let Ok(read) = unseal_message(&seal_bytes(bytes.to_vec())) else { return false };
        assert_eq!(unseal_message(&seal_bytes(read.to_bytes())).expect("it reads back"), read);
        true
    });
    counts.assert_refuses();
}
