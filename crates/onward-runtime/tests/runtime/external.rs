//! External runs: they have no worker here, and each of their events is found without reading the whole log.

use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::{Event, Index, Payload, Status};
use onward_runtime::{AppendExternal, AppendedExternal, DriveInput, RuntimeError};

use crate::kit::*;

fn events(expected: u64, count: u64) -> AppendExternal {
    let events = (expected..expected + count).map(|index| Payload::from_json_text(index.to_string())).collect();
    AppendExternal { expected: Some(Index(expected)), events, state: None, append_id: None }
}

fn state(kind: &str, status: Status) -> AppendExternal {
    let state = ExternalState { kind: name(kind), version: None, status, data: Payload::null() };
    AppendExternal { expected: None, events: Vec::new(), state: Some(state), append_id: None }
}

async fn append(kit: &Harness, append: AppendExternal) -> Result<AppendedExternal, RuntimeError> {
    kit.runtime.append_external(&key("r"), append).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_the_kind_gets_neither_the_run_nor_its_queries() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    append(&kit, state("order", Status::Running)).await.unwrap();
    assert!(waits(worker.next_runs(1)).await);
    let answer = kit.runtime.query_run(&key("r"), name("stage"), Payload::null()).await;
    assert_eq!(answer.unwrap_err().code(), "run_external");
    let driven = worker.claim_run(key("r"), DriveInput::Nothing).await;
    assert_eq!(driven.unwrap_err().code(), "run_external");
    append(&kit, state("order", Status::Completed)).await.unwrap();
    assert_eq!(kit.runtime.wait_for_outcome(&key("r")).await.unwrap_err().code(), "run_external");
    assert!(waits(worker.next_runs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_first_result() {
    let kit = Harness::new();
    let once = |append: AppendExternal| AppendExternal { append_id: Some("a".to_owned()), ..append };
    let first = append(&kit, once(events(0, 2))).await.unwrap();
    assert_eq!((first.next_index, first.created, first.repeated), (Index(2), true, false));
    append(&kit, events(2, 3)).await.unwrap();
    let again = append(&kit, once(events(0, 2))).await.unwrap();
    assert_eq!(again, AppendedExternal { created: false, repeated: true, ..first });
    let other = append(&kit, once(events(5, 2))).await.unwrap_err();
    assert_eq!(other.code(), "id_taken", "nothing is lost in silence");
    append(&kit, AppendExternal { append_id: Some(String::new()), ..events(5, 1) }).await.unwrap_err();
    assert_eq!(kit.runtime.read_external(&key("r")).await.unwrap().next_index(), Index(5));
}

#[tokio::test(start_paused = true)]
async fn every_event_is_found_by_the_index_of_its_engine_in_a_few_reads() {
    let kit = Harness::new();
    let mut next = 0;
    for round in 0..400 {
        // Appends of one and of many events, with states in between, sometimes many of them.
        let count = 1 + round % 3;
        append(&kit, events(next, count)).await.unwrap();
        next += count;
        for _ in 0..if round == 200 { 40 } else { round % 2 } {
            append(&kit, state("order", Status::Running)).await.unwrap();
        }
    }
    for from in (0..next).step_by(37).chain([next - 1]) {
        let before = kit.store.calls("read_log");
        let position = kit.runtime.find_external(&key("r"), Index(from)).await.unwrap();
        assert_eq!(position.next_index, Index(next));
        assert!(kit.store.calls("read_log") - before < 12, "{from}");
        let records = kit.runtime.read_log(&key("r"), None, position.at, usize::MAX).await.unwrap();
        let appended: Vec<&ExternalAppended> = records
            .iter()
            .flat_map(|record| &record.events)
            .filter_map(|event| if let Event::ExternalAppended(event) = event { Some(event) } else { None })
            .collect();
        let found = appended.iter().flat_map(|event| event.indexed()).find(|(index, _)| *index == Index(from));
        assert_eq!(found.unwrap().1, &Payload::from_json_text(from.to_string()), "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_outside_engines_run_is_read_and_deleted_as_one() {
    let kit = Harness::new();
    kit.closed("r").await;
    assert_eq!(kit.runtime.read_external(&key("r")).await.unwrap_err().code(), "run_not_external");
    assert_eq!(kit.runtime.delete_external(&key("r"), "").await.unwrap_err().code(), "run_not_external");
    assert_eq!(append(&kit, events(0, 1)).await.unwrap_err().code(), "run_not_external");
    kit.runtime.delete_run(&key("r"), "").await.unwrap();
    append(&kit, state("order", Status::Waiting)).await.unwrap();
    kit.runtime.delete_external(&key("r"), "aborted").await.unwrap();
    assert_eq!(kit.runtime.read_external(&key("r")).await.unwrap_err().code(), "run_not_found");
}

/// JD1: for every verb.
#[tokio::test(start_paused = true)]
async fn a_payload_that_another_door_could_not_show_is_refused() {
    let kit = Harness::new();
    let nested = |depth: usize| Payload::from_json_text("[".repeat(depth) + &"]".repeat(depth));
    let events = |payload: Payload| AppendExternal { events: vec![payload], ..events(0, 0) };
    assert_eq!(append(&kit, events(nested(200_000))).await.unwrap_err().code(), "json_too_deep");
    assert_eq!(append(&kit, events(nested(65))).await.unwrap_err().code(), "json_too_deep");
    append(&kit, events(nested(64))).await.unwrap();
    let deep = kit.runtime.send_update(&key("r"), "u", name("u"), nested(65)).await;
    assert_eq!(deep.err().map(|error| error.code()), Some("json_too_deep"));
    let start = onward_runtime::StartRequest::new(key("s"), name("order"), nested(65), 0);
    assert_eq!(kit.runtime.start_run(start).await.unwrap_err().code(), "json_too_deep");
}

/// JD2: for every verb.
#[tokio::test(start_paused = true)]
async fn a_payload_that_is_declared_json_and_is_none_is_refused() {
    let kit = Harness::new();
    append(&kit, events(0, 1)).await.unwrap();
    for text in [&b"{bad"[..], b"", b" ", b"nonsense", b"1 2", b"\"\xff\"", b"{\"a\":1,}", b"[\"\xc3\"]"] {
        let invalid = || Payload::from_json_text(text.to_vec());
        let signal = || onward_runtime::Signal { name: name("s"), payload: invalid(), signal_id: None };
        let start = |input: Payload, signal| onward_runtime::StartRequest {
            signal,
            ..onward_runtime::StartRequest::new(key("s"), name("order"), input, 0)
        };
        let call = onward_runtime::CallRef::parse(&key("r").namespace, "r~0~0").unwrap();
        let codes = [
            append(&kit, AppendExternal { events: vec![invalid()], ..events(1, 0) }).await.unwrap_err().code(),
            kit.runtime.start_run(start(invalid(), None)).await.unwrap_err().code(),
            kit.runtime.start_run(start(Payload::null(), Some(signal()))).await.unwrap_err().code(),
            kit.runtime.signal_run(&key("r"), signal()).await.unwrap_err().code(),
            kit.runtime.send_update(&key("r"), "u", name("u"), invalid()).await.err().unwrap().code(),
            kit.runtime.query_run(&key("r"), name("q"), invalid()).await.unwrap_err().code(),
            kit.runtime.resolve_promise(&call, Ok(invalid()), "id").await.unwrap_err().code(),
        ];
        assert_eq!(codes, ["payload_invalid"; 7], "{}", text.escape_ascii());
    }
    assert_eq!(kit.runtime.read_head(&key("s")).await.unwrap_err().code(), "run_not_found", "nothing was written");
    let bytes = Payload::binary("text/plain", &b"{bad"[..]);
    append(&kit, AppendExternal { events: vec![bytes], ..events(1, 0) }).await.unwrap();
}
