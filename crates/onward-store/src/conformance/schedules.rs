//! L23, SR1 to SR4 in a store: a schedule is an internal run whose timer starts each slot once.

use onward_core::event::{OnParentClose, ParentLink};
use onward_core::internal::InternalRuns;
use onward_core::run::{NewRun, OutboxMessage};
use onward_core::schedule::{
    Ended, Ending, Interval, Overlap, PauseSchedule, ScheduleDefinition, ScheduleHead, ScheduleInput, ScheduleOptions, ScheduleSpec,
    ScheduleTarget, TriggerSchedule,
};
use onward_core::schedule_run::{schedule_key, start_schedule};
use onward_core::{Event, Namespace, RunKey, Status, Timestamp};

use super::harness::{Harness, completed, json, key, name, refused, seconds, signal, terminate};
use crate::{Delete, RunQuery, Started};

fn schedule() -> RunKey {
    schedule_key(Namespace::default(), &name("s")).unwrap()
}

/// Returns a schedule of runs `order`, every minute.
fn minutely(overlap: Overlap) -> ScheduleDefinition {
    let target = ScheduleTarget {
        kind: name("order"),
        input: json("{\"n\":1}"),
        is_template: false,
        version: None,
        attributes: Vec::new(),
        deadline_ms: None,
    };
    let every = vec![Interval { every_ms: 60_000, offset_ms: 0 }];
    let options = ScheduleOptions { overlap, ..ScheduleOptions::default() };
    let requester = Some("ada".to_owned());
    ScheduleDefinition { granted: None, requester, target, spec: ScheduleSpec { every, ..ScheduleSpec::default() }, options }
}

async fn create(harness: &Harness, overlap: Overlap) -> Started {
    // The first slot is in a minute.
    harness.clock.set(Timestamp(600_000));
    harness.store().start_run(start_schedule(schedule(), minutely(overlap), 3), None).await.unwrap()
}

async fn head(harness: &Harness) -> ScheduleHead {
    *harness.head_of(&schedule()).await.schedule.unwrap()
}

/// Lets a minute pass, and executes what is due.
async fn pass_a_minute(harness: &Harness) {
    harness.pass(seconds(60));
    while harness.expire().await.timers_fired > 0 {}
}

/// Returns the starts in the outbox, which stay there.
async fn starts(harness: &Harness) -> Vec<NewRun> {
    let messages = harness.store().outbox_messages(1_000).await.unwrap();
    messages.into_iter().filter_map(|(_, message)| if let OutboxMessage::Start(run) = message { Some(run) } else { None }).collect()
}

fn ids(runs: &[NewRun]) -> Vec<String> {
    runs.iter().map(|run| run.key.id.to_string()).collect()
}

/// Completes the only run that is claimable.
async fn complete(harness: &Harness) {
    let mut held = harness.claim_one("w").await;
    harness.commit(&mut held, vec![completed()]).await;
}

const FIRST: &str = "s@1970-01-01T00:11:00Z";
const SECOND: &str = "s@1970-01-01T00:12:00Z";

pub async fn a_schedule_starts_each_slot_once(mut harness: Harness) {
    assert!(create(&harness, Overlap::AllowAll).await.created);
    harness.reopen();
    assert_eq!(harness.expire().await.next_due, Some(Timestamp(660_000)), "SR2");
    harness.clock.set(Timestamp(659_999));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.clock.set(Timestamp(660_000));
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    assert_eq!(harness.expire().await.timers_fired, 0);
    let [run] = &starts(&harness).await[..] else { panic!("one slot is due") };
    assert_eq!((run.key.id.as_str(), &run.started.input, run.started.requester.as_deref()), (FIRST, &json("{\"n\":1}"), Some("ada")));
    // A message that is delivered twice starts one run.
    for created in [true, false] {
        assert_eq!(harness.store().start_run(run.clone(), None).await.unwrap().created, created);
    }
    harness.deliver().await;
    let ParentLink { run: parent, on_parent_close, .. } = harness.head(FIRST).await.parent.unwrap();
    assert_eq!((parent, on_parent_close), (schedule(), OnParentClose::Abandon));
    harness.check_run(&schedule()).await;
}

pub async fn a_definition_that_is_refused_writes_nothing(mut harness: Harness) {
    create(&harness, Overlap::Skip).await;
    let before = (harness.head_of(&schedule()).await, harness.records(schedule().id.as_str()).await);
    let mut wrong = minutely(Overlap::Skip);
    wrong.spec.cron = vec!["61 * * * *".to_owned()];
    let error = refused(harness.store().append_input(schedule(), ScheduleInput::Define(Box::new(wrong)).into()).await, "schedule_invalid");
    assert!(error.to_string().contains("spec.cron[0]"), "{error}");
    harness.reopen();
    assert_eq!((harness.head_of(&schedule()).await, harness.records(schedule().id.as_str()).await), before);
}

pub async fn the_end_of_a_run_starts_the_next_slot_and_brings_no_output(mut harness: Harness) {
    create(&harness, Overlap::BufferAll).await;
    pass_a_minute(&harness).await;
    harness.deliver().await;
    pass_a_minute(&harness).await;
    harness.reopen();
    assert_eq!((ids(&starts(&harness).await).len(), head(&harness).await.buffered.len()), (0, 1));
    complete(&harness).await;
    harness.reopen();
    harness.deliver().await;
    assert_eq!(harness.head(SECOND).await.status, Status::Pending);
    let now = head(&harness).await;
    assert_eq!((now.totals.started, now.totals.completed, now.running.len()), (2, 1, 1));
    let log = harness.records(schedule().id.as_str()).await;
    let is_decision = |event: &Event| matches!(event, Event::RunStarted(_) | Event::ScheduleDecided(_));
    assert!(log.iter().flat_map(|record| &record.events).all(is_decision), "SR3");
    // A late repeat changes nothing.
    let ended = Ended::new(0, Ending::Failed, None);
    harness.store().append_input(schedule(), ScheduleInput::Ended(ended).into()).await.unwrap();
    assert_eq!(head(&harness).await.totals.failed, 0);
    harness.check_run(&schedule()).await;
}

pub async fn slots_of_a_downtime_are_started_or_missed(mut harness: Harness) {
    create(&harness, Overlap::AllowAll).await;
    let mut late = minutely(Overlap::AllowAll);
    late.options.catch_up_ms = Some(90_000);
    harness.store().append_input(schedule(), ScheduleInput::Define(Box::new(late)).into()).await.unwrap();
    harness.reopen();
    harness.pass(seconds(300));
    while harness.expire().await.timers_fired > 0 {}
    harness.reopen();
    assert_eq!(ids(&starts(&harness).await), ["s@1970-01-01T00:14:00Z", "s@1970-01-01T00:15:00Z"]);
    assert_eq!(head(&harness).await.totals.missed, 3);
}

pub async fn a_clock_that_goes_back_decides_nothing_twice(mut harness: Harness) {
    create(&harness, Overlap::AllowAll).await;
    pass_a_minute(&harness).await;
    pass_a_minute(&harness).await;
    harness.clock.set(Timestamp(600_000));
    harness.reopen();
    let pause = ScheduleInput::Pause(PauseSchedule { note: "for a while".to_owned() });
    harness.store().append_input(schedule(), pause.into()).await.unwrap();
    let resume = ScheduleInput::Resume(onward_core::schedule::ResumeSchedule { note: String::new() });
    harness.store().append_input(schedule(), resume.into()).await.unwrap();
    pass_a_minute(&harness).await;
    pass_a_minute(&harness).await;
    assert_eq!(ids(&starts(&harness).await), [FIRST, SECOND]);
    pass_a_minute(&harness).await;
    assert_eq!(starts(&harness).await.len(), 3);
}

pub async fn a_log_that_continues_keeps_the_timer_and_hears_of_earlier_runs(mut harness: Harness) {
    create(&harness, Overlap::AllowAll).await;
    pass_a_minute(&harness).await;
    harness.deliver().await;
    let due = || ScheduleInput::Due(onward_core::schedule::ScheduleDue {}).into();
    while harness.head_of(&schedule()).await.generation == 0 {
        harness.store().append_input(schedule(), due()).await.unwrap();
    }
    harness.reopen();
    let now = harness.head_of(&schedule()).await;
    assert_eq!((now.generation, now.status, now.next_index.0), (1, Status::Waiting, 1));
    assert_eq!(harness.expire().await.next_due, Some(Timestamp(720_000)), "SR2");
    complete(&harness).await;
    harness.deliver().await;
    assert_eq!((head(&harness).await.totals.completed, head(&harness).await.running.len()), (1, 0));
    pass_a_minute(&harness).await;
    assert_eq!(ids(&starts(&harness).await), [SECOND]);
    harness.check_run(&schedule()).await;
}

pub async fn a_deleted_schedule_leaves_its_runs_alone(mut harness: Harness) {
    create(&harness, Overlap::Skip).await;
    pass_a_minute(&harness).await;
    let delete = || Delete::Run { key: schedule(), reason: "x".to_owned() };
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    harness.store().append_input(schedule(), terminate()).await.unwrap();
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    harness.deliver().await;
    assert_eq!(harness.store().delete_runs(delete()).await.unwrap(), 1);
    harness.reopen();
    assert_eq!(harness.head(FIRST).await.status, Status::Pending);
    assert_eq!(harness.expire().await.timers_fired, 0);
    // A new schedule of the same id is another one: it does not hear of the run.
    harness.store().start_run(start_schedule(schedule(), minutely(Overlap::Skip), 4), None).await.unwrap();
    complete(&harness).await;
    harness.deliver().await;
    assert_eq!(head(&harness).await.totals.completed, 0);
}

pub async fn a_schedule_accepts_nothing_else_and_lists_leave_it_out(mut harness: Harness) {
    create(&harness, Overlap::Skip).await;
    harness.store().start_run(super::harness::new_run("r"), None).await.unwrap();
    refused(harness.store().append_input(schedule(), signal(None)).await, "commit_malformed");
    let pause = || ScheduleInput::Pause(PauseSchedule { note: String::new() }).into();
    refused(harness.store().append_input(key("r"), pause()).await, "commit_malformed");
    harness.reopen();
    assert_eq!(harness.claim("w").await.len(), 1, "no worker claims a schedule");
    let list = async |query: RunQuery| -> Vec<String> {
        harness.store().list_runs(query).await.unwrap().runs.iter().map(|head| head.key.id.to_string()).collect()
    };
    assert_eq!(list(RunQuery::default()).await, ["r"]);
    let internal = Some(InternalRuns::Schedules);
    assert_eq!(list(RunQuery { internal, ..RunQuery::default() }).await, ["schedule:s"]);
    assert_eq!(list(RunQuery { internal: Some(InternalRuns::Memos), ..RunQuery::default() }).await, [""; 0]);
}

pub async fn a_template_is_sent_with_its_slot(mut harness: Harness) {
    harness.clock.set(Timestamp(600_000));
    let mut definition = minutely(Overlap::Skip);
    definition.target.is_template = true;
    harness.store().start_run(start_schedule(schedule(), definition, 3), None).await.unwrap();
    let trigger = TriggerSchedule { request_id: name("now"), overlap: None, requested_by: Some("bob".to_owned()) };
    harness.store().append_input(schedule(), ScheduleInput::Trigger(trigger).into()).await.unwrap();
    harness.reopen();
    let messages = harness.store().outbox_messages(10).await.unwrap();
    let [(_, OutboxMessage::StartFromTemplate { run, slot })] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((run.key.id.as_str(), slot.firing.slot, slot.schedule.as_str()), ("s@now:now", Timestamp(600_000), "s"));
    assert_eq!((run.started.requester.as_deref(), &run.started.copied_by[..]), (Some("ada"), &["bob".to_owned()][..]));
}
