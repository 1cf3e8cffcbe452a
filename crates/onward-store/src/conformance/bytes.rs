//! L22: payload bytes in are payload bytes out.

use onward_core::event::{RunFailed, StepCompleted};
use onward_core::run::{Input, NewRun};
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{Event, Failure, Index, Payload};

use super::harness::{Harness, call_id, json, key, name, new_run, refused, seconds, signal, task};
use crate::{INLINE_BYTES_MAX, PAYLOAD_BYTES_MAX, READ_BYTES_MAX};

pub async fn bytes_in_are_bytes_out(mut harness: Harness) {
    let large: Vec<u8> = (0..INLINE_BYTES_MAX as u32 * 2 + 1).map(|number| (number * 31 % 251) as u8).collect();
    let payloads = [
        json(r#"{"b" : 9223372036854775808, "a":-0, "a":1e400}"#),
        json(r#""\u0000""#),
        json("not json\n"),
        json(""),
        Payload::binary("application/octet-stream", vec![0xff, 0x00, 0xfe]),
        Payload::binary("text/plain", ""),
        Payload::binary("image/png", vec![7; INLINE_BYTES_MAX]),
        Payload::binary("image/png", large.clone()),
        // The same bytes again, as another type.
        Payload::from_json_text(large),
    ];
    let mut run = new_run("r");
    run.started.input = payloads[0].clone();
    let mut held = harness.start_held_as(run).await;
    for payload in &payloads {
        let (step, output) = (name("step"), payload.clone());
        let (call_id, attempt) = (call_id(0), 1);
        let event = StepCompleted { call_id, name: step, input_hash: None, output, attempt, took_ms: 0, input: None };
        harness.commit(&mut held, vec![event.into()]).await;
    }
    let failure = Failure::fatal("no").with_details(payloads[7].clone());
    harness.commit(&mut held, vec![RunFailed { failure, attempts: None }.into()]).await;
    harness.reopen();
    let records = harness.store().read_log(key("r"), None, Index(0), 1_000).await.unwrap();
    let mut found = Vec::new();
    records.iter().flat_map(|record| &record.events).for_each(|event| event.visit_payloads(&mut |payload| found.push(payload)));
    let expected: Vec<&Payload> = [&payloads[0]].into_iter().chain(&payloads).chain([&payloads[7]]).collect();
    assert_eq!(found, expected);
    let types: Vec<&str> = found.iter().map(|payload| payload.content_type()).collect();
    assert_eq!(types, expected.iter().map(|payload| payload.content_type()).collect::<Vec<_>>());
}

pub async fn a_payload_over_the_limit_writes_nothing(harness: Harness) {
    let huge = Payload::binary("text/plain", vec![b'x'; PAYLOAD_BYTES_MAX + 1]);
    let store = harness.store();
    let mut run = new_run("r");
    run.started.input = huge.clone();
    refused(store.start_run(run, None).await, "payload_too_large");
    assert_eq!(store.read_run(key("r"), None).await.unwrap(), None);

    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let before = harness.head("r").await;
    let mut large: Input = signal(Some("a"));
    let Event::SignalReceived(event) = &mut large.event else { unreachable!("it is a signal") };
    event.payload = huge.clone();
    refused(harness.append("r", large.clone()).await, "payload_too_large");
    refused(store.start_run(NewRun { signal: Some(large.into()), ..new_run("r") }, None).await, "payload_too_large");
    let failure = Failure::fatal("no").with_details(huge.clone());
    refused(store.commit(held.commit(vec![RunFailed { failure, attempts: None }.into()])).await, "payload_too_large");
    let claimed = harness.claim_tasks("t", 1).await.remove(0);
    let report = store.report_task(claimed.id.clone(), claimed.claim, TaskReport::Completed(huge), seconds(30)).await;
    refused(report, "payload_too_large");
    assert_eq!(harness.head("r").await, before);
    // The worker still holds the task, and the signal's id is unused.
    store.report_task(claimed.id, claimed.claim, TaskReport::Completed(json("1")), seconds(30)).await.unwrap();
    assert!(!harness.append("r", signal(Some("a"))).await.unwrap().repeated);
}

/// A log of large payloads is read in parts that fit into memory, whatever the requested limit.
pub async fn a_read_of_large_records_ends_early(mut harness: Harness) {
    harness.start("r").await;
    for _ in 0..6 {
        let mut large: Input = signal(None);
        let Event::SignalReceived(event) = &mut large.event else { unreachable!("it is a signal") };
        event.payload = Payload::binary("text/plain", vec![b'x'; READ_BYTES_MAX / 2]);
        harness.append("r", large).await.unwrap();
    }
    harness.reopen();
    let (mut from, mut sizes) = (Index(0), Vec::new());
    loop {
        let records = harness.store().read_log(key("r"), None, from, 1_000).await.unwrap();
        let Some(last) = records.last() else { break };
        assert_eq!(crate::payloads::is_long(&records), records.len() > 1, "there may be more behind it");
        from = last.next_index();
        sizes.push(records.len());
    }
    assert_eq!((sizes, from), (vec![3, 2, 2], Index(7)));
}
