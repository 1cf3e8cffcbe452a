//! Schedules: each slot starts one run, wherever the dispatcher is interrupted, and nothing invalid is stored.

use onward_core::api::{
    BackfillScheduleRequest, CancelBackfillRequest, PauseScheduleRequest, PutFlowRequest, PutScheduleReply, PutScheduleRequest,
    ScheduleQuery, ScheduleRequest, ScheduleView, SlotsRequest, TriggerOutcome, TriggerScheduleRequest,
};
use onward_core::budget::Budget;
use onward_core::schedule::{
    Ending, Interval, Overlap, ScheduleDefinition, ScheduleOptions, ScheduleSpec, ScheduleTarget, SkipReason,
};
use onward_core::{KindSchemas, Namespace, Payload, Timestamp};
use onward_runtime::{CallContext, Ceilings, RuntimeError, StartRequest, export_run};
use onward_store::Registration;

use crate::faulty::When;
use crate::kit::*;

/// Crash points of ticks: before or after each of their calls to the store.
const STRIKES: [&str; 6] = ["deliveries", "start_run", "append_input", "finish_deliveries", "read_run", "expire"];

const FIRST: &str = "s@1970-01-01T00:11:00Z";

fn definition(overlap: Overlap) -> ScheduleDefinition {
    let target = ScheduleTarget {
        kind: name("order"),
        input: Payload::from_json_text("{\"n\":1}"),
        is_template: false,
        version: None,
        attributes: Vec::new(),
        deadline_ms: None,
    };
    let every = vec![Interval { every_ms: 60_000, offset_ms: 0 }];
    let options = ScheduleOptions { overlap, ..ScheduleOptions::default() };
    let spec = ScheduleSpec { every, ..ScheduleSpec::default() };
    ScheduleDefinition { target, spec, options, requester: None, granted: None }
}

fn request(definition: ScheduleDefinition) -> PutScheduleRequest {
    PutScheduleRequest { namespace: Namespace::default(), schedule: name("s"), definition, budget: None, force: false }
}

fn about() -> ScheduleRequest {
    ScheduleRequest { namespace: Namespace::default(), schedule: name("s") }
}

fn by(name: &str) -> CallContext {
    CallContext { caller: Some(name.to_owned()), ..CallContext::default() }
}

/// Returns a runtime ten minutes after 1970.
fn kit() -> Harness {
    let kit = Harness::new();
    kit.clock.set(Timestamp(600_000));
    kit
}

async fn put(kit: &Harness, definition: ScheduleDefinition) -> PutScheduleReply {
    kit.runtime.put_schedule(request(definition), by("ada")).await.unwrap()
}

async fn view(kit: &Harness) -> ScheduleView {
    kit.runtime.read_schedule(&about()).await.unwrap()
}

async fn pass_a_minute(kit: &Harness) {
    kit.advance(seconds(60));
    kit.settle().await;
}

fn refused<T: std::fmt::Debug>(answer: Result<T, RuntimeError>, code: &str) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_slot_starts_one_run_wherever_the_dispatcher_is_interrupted() {
    for operation in STRIKES {
        for (when, at) in (0..5).flat_map(|at| [(When::Before, at), (When::After, at)]) {
            let kit = kit();
            put(&kit, definition(Overlap::BufferAll)).await;
            let worker = kit.worker("w");
            for minute in 0..4 {
                if minute == at {
                    kit.store.fail_once(operation, when);
                }
                pass_a_minute(&kit).await;
            }
            kit.settle().await;
            kit.store.clear();
            let mut done = 0;
            // One run after the other: the end of each starts the next.
            while view(&kit).await.totals.completed < 4 {
                let mut held = kit.next_held(&worker).await;
                assert_eq!(kit.head(held.key.id.as_str()).await.requester.as_deref(), Some("ada"));
                kit.complete(&mut held).await;
                kit.settle().await;
                done += 1;
            }
            let view = view(&kit).await;
            assert_eq!((done, view.totals.started, view.running.len()), (4, 4, 0), "{operation} {when:?} {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_with_one_store_start_a_slot_once() {
    let kit = kit();
    let other = kit.other_runtime();
    put(&kit, definition(Overlap::AllowAll)).await;
    for _ in 0..10 {
        kit.advance(seconds(60));
        let (first, second) = tokio::join!(kit.runtime.tick(), other.tick());
        assert!(first.error.is_none() && second.error.is_none());
        kit.settle().await;
    }
    assert_eq!((view(&kit).await.totals.started, view(&kit).await.running.len()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn what_is_invalid_is_refused_and_nothing_is_written() {
    let kit = kit();
    let broken = |change: fn(&mut ScheduleDefinition)| {
        let mut definition = definition(Overlap::Skip);
        change(&mut definition);
        request(definition)
    };
    let cron = |definition: &mut ScheduleDefinition| definition.spec.cron = vec!["0 0 31 2 *".to_owned()];
    let zone = |definition: &mut ScheduleDefinition| definition.spec.time_zone = Some("Mars/Base".to_owned());
    let template = |definition: &mut ScheduleDefinition| {
        (definition.target.is_template, definition.target.input) = (true, Payload::from_json_text("\"{{ nothing }}\""));
    };
    let long = |definition: &mut ScheduleDefinition| {
        definition.target.input = Payload::from_json_text(format!("\"{}\"", "x".repeat(70_000)));
    };
    let reserved = |definition: &mut ScheduleDefinition| definition.target.kind = name("task:mail");
    for (change, code, part) in [
        (cron as fn(&mut ScheduleDefinition), "schedule_invalid", "spec.cron[0]"),
        (zone, "schedule_invalid", "spec.time_zone"),
        (template, "schedule_invalid", "target.input"),
        (long, "schedule_invalid", "target.input"),
        (reserved, "kind_reserved", "task:mail"),
    ] {
        let message = refused(kit.runtime.put_schedule(broken(change), CallContext::default()).await, code);
        assert!(message.contains(part), "{message}");
    }
    let id = PutScheduleRequest { schedule: name("a/b"), ..request(definition(Overlap::Skip)) };
    refused(kit.runtime.put_schedule(id, CallContext::default()).await, "schedule_invalid");
    refused(kit.runtime.read_schedule(&about()).await, "schedule_not_found");
    assert!(kit.runtime.list_schedules(ScheduleQuery::default()).await.unwrap().schedules.is_empty());
}

/// A typing error in the kind is found at once, if workers are there that could have it.
#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_refused_unless_forced() {
    let kit = kit();
    let _worker = kit.worker("w");
    let mut unknown = definition(Overlap::Skip);
    unknown.target.kind = name("ordre");
    refused(kit.runtime.put_schedule(request(unknown.clone()), CallContext::default()).await, "kind_not_found");
    let forced = PutScheduleRequest { force: true, ..request(unknown) };
    assert!(kit.runtime.put_schedule(forced, CallContext::default()).await.unwrap().created);
}

/// SZ2: by the schema of the kind, when it is defined and when it starts.
#[tokio::test(start_paused = true)]
async fn an_input_that_does_not_fit_its_kind_is_refused_and_a_slot_says_why_it_has_no_run() {
    let kit = kit();
    let schema = |text: &'static str| {
        let input = Some(Payload::from_json_text(text));
        vec![KindSchemas { input, ..KindSchemas::empty(Namespace::default(), name("order"), None) }]
    };
    kit.runtime.store().register_kinds(schema("{\"type\":\"array\"}"), Registration::Always).await.unwrap();
    refused(kit.runtime.put_schedule(request(definition(Overlap::Skip)), CallContext::default()).await, "input_invalid");
    kit.runtime.store().register_kinds(schema("{\"type\":\"object\"}"), Registration::Always).await.unwrap();
    kit.advance(seconds(60));
    put(&kit, definition(Overlap::Skip)).await;
    kit.runtime.store().register_kinds(schema("{\"type\":\"array\"}"), Registration::Always).await.unwrap();
    pass_a_minute(&kit).await;
    let view = view(&kit).await;
    let ended = view.history.last().unwrap().ended.clone().unwrap();
    assert_eq!((ended.ending, ended.code.as_deref()), (Ending::Failed, Some("input_invalid")));
}

#[tokio::test(start_paused = true)]
async fn a_template_has_the_slot_in_the_time_zone_of_the_schedule() {
    let kit = kit();
    let mut daily = definition(Overlap::Skip);
    daily.spec = ScheduleSpec { time_zone: Some("Europe/Berlin".to_owned()), ..daily.spec };
    daily.target.is_template = true;
    daily.target.input = Payload::from_json_text(
        "{\"day\":\"{{ slot.date }}\",\"at\":\"{{ slot.local }}\",\"ms\":\"{{ slot.epoch_ms }}\",\"why\":\"{{ cause }} of {{ schedule }}\"}",
    );
    put(&kit, daily).await;
    pass_a_minute(&kit).await;
    let input = kit.runtime.read_run(&key(FIRST)).await.unwrap().input;
    assert_eq!(
        input,
        Payload::from_json_text(
            "{\"at\":\"1970-01-01T01:11:00+01:00\",\"day\":\"1970-01-01\",\"ms\":660000,\"why\":\"clock of s\"}"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn requests_of_people_work_and_a_repeat_is_a_repeat() {
    let kit = kit();
    let first = put(&kit, definition(Overlap::Skip)).await;
    assert_eq!((first.created, put(&kit, definition(Overlap::Skip)).await.created), (true, false));
    assert_eq!(view(&kit).await.revision, 0, "an equal definition changes nothing");
    let trigger = |overlap| TriggerScheduleRequest {
        namespace: Namespace::default(),
        schedule: name("s"),
        request_id: Some(name("one")),
        overlap,
    };
    for _ in 0..2 {
        let reply = kit.runtime.trigger_schedule(trigger(None), by("bob")).await.unwrap();
        assert_eq!((reply.run.as_str(), reply.outcome), ("s@now:one", TriggerOutcome::Started));
        kit.head("s@now:one").await; // It is there without a tick.
    }
    let skipped = TriggerScheduleRequest { request_id: Some(name("two")), ..trigger(None) };
    assert_eq!(kit.runtime.trigger_schedule(skipped, by("bob")).await.unwrap().outcome, TriggerOutcome::Skipped);
    let note = |text: &str| PauseScheduleRequest { namespace: Namespace::default(), schedule: name("s"), note: text.to_owned() };
    let paused = kit.runtime.pause_schedule(note("holidays")).await.unwrap();
    assert_eq!((paused.paused.unwrap().note.as_str(), paused.next.len()), ("holidays", 0));
    kit.settle().await;
    pass_a_minute(&kit).await;
    let resumed = kit.runtime.resume_schedule(note("")).await.unwrap();
    assert_eq!(resumed.history.last().unwrap().skipped.as_ref().unwrap().reason, SkipReason::Paused);
    let backfill = BackfillScheduleRequest {
        namespace: Namespace::default(),
        schedule: name("s"),
        request_id: None,
        from: Timestamp(0),
        until: Timestamp(180_000),
        overlap: Some(Overlap::AllowAll),
    };
    let future = BackfillScheduleRequest { until: Timestamp(u64::MAX), ..backfill.clone() };
    refused(kit.runtime.backfill_schedule(future, CallContext::default()).await, "schedule_invalid");
    kit.runtime.backfill_schedule(backfill, by("bob")).await.unwrap();
    kit.settle().await;
    let run = kit.head("s@1970-01-01T00:01:00Z").await;
    assert_eq!((run.requester.as_deref(), &run.copied_by[..]), (Some("ada"), &["bob".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_deleted_is_gone_and_its_slots_are_not_started_again() {
    let kit = kit();
    put(&kit, definition(Overlap::AllowAll)).await;
    pass_a_minute(&kit).await;
    kit.runtime.delete_schedule(&about()).await.unwrap();
    refused(kit.runtime.delete_schedule(&about()).await, "schedule_not_found");
    assert!(kit.runtime.list_schedules(ScheduleQuery::default()).await.unwrap().schedules.is_empty());
    let run = kit.head(FIRST).await;
    // A new schedule of that id meets the run of the slot when it is filled in.
    put(&kit, definition(Overlap::AllowAll)).await;
    kit.advance(seconds(1));
    let backfill = BackfillScheduleRequest {
        namespace: Namespace::default(),
        schedule: name("s"),
        request_id: None,
        from: Timestamp(660_000),
        until: Timestamp(660_001),
        overlap: None,
    };
    kit.runtime.backfill_schedule(backfill, CallContext::default()).await.unwrap();
    kit.settle().await;
    assert_eq!(view(&kit).await.history.last().unwrap().ended.as_ref().unwrap().ending, Ending::Existed);
    assert_eq!(kit.head(FIRST).await.incarnation, run.incarnation);
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_a_definition_is_that_of_its_runs() {
    let kit = kit();
    let budget = Some(Budget::default().tokens(100));
    kit.runtime.put_schedule(PutScheduleRequest { budget, ..request(definition(Overlap::Skip)) }, by("ada")).await.unwrap();
    pass_a_minute(&kit).await;
    assert_eq!(kit.head(FIRST).await.budget.unwrap().limit.tokens, Some(100));
}

#[tokio::test(start_paused = true)]
async fn no_verb_for_runs_reaches_a_schedule_and_no_list_shows_it() {
    let kit = kit();
    put(&kit, definition(Overlap::Skip)).await;
    refused(kit.runtime.start_run(start("schedule:t")).await, "id_reserved");
    // Lists leave such kinds out, and the retention of memos would remove their runs after a minute.
    for kind in ["schedule:x", "memo:64"] {
        let hidden = onward_runtime::StartRequest { kind: name(kind), ..start("t") };
        refused(kit.runtime.start_run(hidden).await, "kind_reserved");
    }
    assert!(kit.runtime.store().list_runs(Default::default()).await.unwrap().runs.is_empty());
    let slots = SlotsRequest { namespace: Namespace::default(), schedule: Some(name("s")), spec: None, after: None, limit: 2 };
    let slots = kit.runtime.list_slots(slots).await.unwrap().slots;
    assert_eq!(slots.iter().map(|slot| slot.slot.0).collect::<Vec<_>>(), [660_000, 720_000]);
}

/// DF2, DF7: a schedule starts new runs, for which an imported definition does not count.
#[tokio::test(start_paused = true)]
async fn a_schedule_uses_the_current_definition_of_a_flow_and_never_an_imported_one() {
    let (from, to) = (kit(), kit());
    let document = "flow: greet\nsteps:\n  - { name: hello, task: mail }\n".to_owned();
    let define =
        PutFlowRequest { namespace: Namespace::default(), flow: name("greet"), document, expected: None, dry_run: false };
    let version = from.runtime.put_flow(define.clone()).await.unwrap().flow.version;
    from.runtime.start_run(StartRequest { kind: name("greet"), input: Payload::null(), ..start("a") }).await.unwrap();
    to.runtime.import_runs(vec![export_run(&from.runtime, &key("a")).await.unwrap()]).await.unwrap();
    let plain = definition(Overlap::AllowAll);
    let target = ScheduleTarget { kind: name("greet"), input: Payload::null(), ..plain.target.clone() };
    put(&to, ScheduleDefinition { target, ..plain }).await;
    pass_a_minute(&to).await;
    assert_eq!(to.head(FIRST).await.version, None);
    to.runtime.put_flow(define).await.unwrap();
    pass_a_minute(&to).await;
    assert_eq!(to.head("s@1970-01-01T00:12:00Z").await.version, Some(version));
}

/// SZ3: also if the ceiling came after the definition.
#[tokio::test(start_paused = true)]
async fn a_slot_starts_under_the_ceiling_of_its_time() {
    let kit = kit();
    let budget = Some(Budget::default().tokens(100).turns(3));
    kit.runtime.put_schedule(PutScheduleRequest { budget, ..request(definition(Overlap::AllowAll)) }, by("ada")).await.unwrap();
    pass_a_minute(&kit).await;
    let namespaces = [(Namespace::default(), Budget::default().tokens(40).seconds(60))].into();
    kit.runtime.set_ceilings(Ceilings { namespaces, ..Ceilings::default() });
    pass_a_minute(&kit).await;
    let limit = async |id: &str| kit.head(id).await.budget.expect("it has a budget").limit;
    assert_eq!(limit(FIRST).await, Budget::default().tokens(100).turns(3));
    assert_eq!(limit("s@1970-01-01T00:12:00Z").await, Budget::default().tokens(40).turns(3).seconds(60));
    // A schedule without a budget gets the ceiling, and a ceiling that is lifted leaves what was granted.
    put(&kit, ScheduleDefinition { requester: None, ..definition(Overlap::AllowAll) }).await;
    pass_a_minute(&kit).await;
    assert_eq!(limit("s@1970-01-01T00:13:00Z").await, Budget::default().tokens(40).seconds(60));
    kit.runtime.set_ceilings(Ceilings::default());
    pass_a_minute(&kit).await;
    assert!(kit.head("s@1970-01-01T00:14:00Z").await.budget.is_none());
}

/// SZ2: a template is rendered for the next slot when it is defined.
#[tokio::test(start_paused = true)]
async fn a_template_whose_next_input_does_not_fit_its_kind_is_refused_unless_forced() {
    let kit = kit();
    let schema = |text: &'static str| {
        let input = Some(Payload::from_json_text(text));
        vec![KindSchemas { input, ..KindSchemas::empty(Namespace::default(), name("order"), None) }]
    };
    let day = "{\"type\":\"object\",\"properties\":{\"day\":{\"type\":\"string\",\"pattern\":\"^1970-01-01$\"}}}";
    kit.runtime.store().register_kinds(schema(day), Registration::Always).await.unwrap();
    let template = |text: &'static str| {
        let mut template = definition(Overlap::Skip);
        (template.target.is_template, template.target.input) = (true, Payload::from_json_text(text));
        request(template)
    };
    let wrong = template("{\"day\":\"{{ slot.time }}\"}");
    let error = kit.runtime.put_schedule(wrong.clone(), by("ada")).await.unwrap_err();
    assert_eq!((error.code(), error.hint().is_some()), ("input_invalid", true), "{error}");
    refused(kit.runtime.read_schedule(&about()).await, "schedule_not_found");
    assert!(kit.runtime.put_schedule(template("{\"day\":\"{{ slot.date }}\"}"), by("ada")).await.unwrap().created);
    kit.runtime.put_schedule(PutScheduleRequest { force: true, ..wrong }, by("ada")).await.unwrap();
    // The history has a slot that does not fit then.
    pass_a_minute(&kit).await;
    let ended = view(&kit).await.history.last().unwrap().ended.clone().unwrap();
    assert_eq!((ended.ending, ended.code.as_deref(), ended.was_refused), (Ending::Failed, Some("input_invalid"), true));
    let broken = PutScheduleRequest { force: true, ..template("{\"day\":\"{{ slot.nope }}\"}") };
    refused(kit.runtime.put_schedule(broken, by("ada")).await, "schedule_invalid");
}

/// SC10: a caller has the id of a slot.
#[tokio::test(start_paused = true)]
async fn a_slot_whose_id_a_caller_has_taken_is_shown_and_not_counted() {
    let kit = kit();
    put(&kit, definition(Overlap::AllowAll)).await;
    // The same kind and input: only the parent differs.
    let input = Payload::from_json_text("{\"n\":1}");
    let taken = StartRequest { input, ..start(FIRST) };
    kit.runtime.start_run(taken).await.unwrap();
    pass_a_minute(&kit).await;
    let schedule = view(&kit).await;
    let line = schedule.history.last().unwrap();
    assert_eq!(line.started.as_ref().unwrap().run.as_str(), FIRST);
    let ended = line.ended.as_ref().unwrap();
    assert_eq!((ended.ending, ended.code.as_deref()), (Ending::Existed, Some("run_exists")));
    assert_eq!((schedule.totals.started, schedule.totals.failed, schedule.running.len()), (0, 0, 0));
    assert!(kit.head(FIRST).await.parent.is_none(), "it is still the run of the caller");
}

fn fill(request_id: &str, from: u64, until: u64) -> BackfillScheduleRequest {
    BackfillScheduleRequest {
        namespace: Namespace::default(),
        schedule: name("s"),
        request_id: Some(name(request_id)),
        from: Timestamp(from),
        until: Timestamp(until),
        overlap: Some(Overlap::BufferAll),
    }
}

/// SC11
#[tokio::test(start_paused = true)]
async fn a_backfill_does_not_start_a_slot_again_whose_run_was_deleted() {
    let kit = kit();
    put(&kit, definition(Overlap::AllowAll)).await;
    pass_a_minute(&kit).await;
    kit.runtime.terminate_run(&key(FIRST), "").await.unwrap();
    kit.settle().await;
    kit.runtime.delete_run(&key(FIRST), "").await.unwrap();
    kit.runtime.backfill_schedule(fill("b", 660_000, 660_001), by("bob")).await.unwrap();
    kit.settle().await;
    assert!(kit.runtime.read_head(&key(FIRST)).await.is_err());
    let skipped = view(&kit).await.history.last().unwrap().skipped.clone().unwrap();
    assert_eq!((skipped.reason, skipped.count), (SkipReason::AlreadyStarted, 1));
}

#[tokio::test(start_paused = true)]
async fn a_backfill_is_bounded_and_can_be_canceled() {
    let kit = kit();
    kit.clock.set(Timestamp(700_000_000_000));
    put(&kit, definition(Overlap::Skip)).await;
    let error = kit.runtime.backfill_schedule(fill("big", 0, 10_001 * 60_000), by("bob")).await.unwrap_err();
    assert_eq!((error.code(), error.hint()), ("schedule_invalid", Some("split the range into several backfills")), "{error}");
    let begun = kit.runtime.backfill_schedule(fill("b", 0, 1_000 * 60_000), by("bob")).await.unwrap();
    assert_eq!((begun.backfills.len(), begun.running.len(), begun.buffered.len()), (1, 1, 100));
    let cancel = |id: Option<&str>| CancelBackfillRequest {
        namespace: Namespace::default(),
        schedule: name("s"),
        request_id: id.map(name),
    };
    refused(kit.runtime.cancel_backfill(cancel(Some("c"))).await, "schedule_invalid");
    let canceled = kit.runtime.cancel_backfill(cancel(Some("b"))).await.unwrap();
    assert_eq!((canceled.backfills.len(), canceled.running.len(), canceled.buffered.len()), (0, 1, 0));
    refused(kit.runtime.cancel_backfill(cancel(None)).await, "schedule_invalid");
    kit.settle().await;
    let worker = kit.worker("w");
    let mut held = kit.next_held(&worker).await;
    kit.complete(&mut held).await;
    kit.settle().await;
    let after = view(&kit).await;
    assert_eq!((after.totals.started, after.totals.completed, after.running.len()), (1, 1, 0));
    // The id can begin another backfill only under another name: a repeat of the request is a repeat.
    assert!(kit.runtime.backfill_schedule(fill("b", 0, 1_000 * 60_000), by("bob")).await.unwrap().backfills.is_empty());
}
