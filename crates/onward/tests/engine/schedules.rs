//! Schedules as programs use them, in every place that a run can be executed.

use onward::prelude::*;
use onward::{
    Ending, Error, FiringCause, HistoryEntry, Overlap, Schedule, ScheduleHandle, ScheduleView, Timestamp, TriggerOutcome,
};
use onward_core::schedule::ScheduleSpec;
use onward_store::Clock;
use serde_json::{Value, json};

use crate::site::{eventually, everywhere};

const REPORT: Workflow<Value, Value> = Workflow::new("report");

async fn report(_: Ctx, input: Value) -> Result<Value> {
    Ok(json!({"of": input}))
}

/// Waits until it may end.
async fn slow(ctx: Ctx, _: ()) -> Result<u32> {
    ctx.signal("end").recv().await
}

fn hourly() -> Schedule {
    Schedule::every(hours(1)).of(&REPORT).input(&json!("all"))
}

/// Returns the history once a line of it is as wanted.
async fn history(schedule: &ScheduleHandle, wanted: impl Fn(&HistoryEntry) -> bool) -> Vec<HistoryEntry> {
    eventually("the history has the line", async || {
        let view = schedule.read().await.unwrap();
        view.history.iter().any(&wanted).then_some(view.history)
    })
    .await
}

fn has_completed(entry: &HistoryEntry) -> bool {
    entry.ended.as_ref().is_some_and(|ended| ended.ending == Ending::Completed)
}

everywhere! {
    async fn a_slot_starts_a_run_whose_input_is_rendered(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        site.clock.advance(hours(100));
        let input = json!({"day": "{{ slot.date }} {{ slot.time }}", "by": "{{ schedule }}", "cause": "{{ cause }}"});
        let daily = Schedule::cron("0 2 * * *").zone("Europe/Berlin").of(&REPORT).template(&input);
        let put = onward.put_schedule("daily", daily).await;
        if site.is_sealed {
            assert_eq!(put.err().unwrap().code(), "schedule_invalid", "the engine cannot read the template");
            return;
        }
        let handle = put.unwrap();
        let slots = handle.next_slots(2).await.unwrap();
        assert_eq!(slots[1].slot.0 - slots[0].slot.0, 86_400_000);
        assert_eq!(handle.read().await.unwrap().next[..2], slots);
        site.pass(&onward, hours(24)).await;
        let run = handle.run_at::<Value>(slots[0].slot);
        let day = &slots[0].slot.to_string()[..10];
        assert_eq!(run.result().await.unwrap(), json!({"of": {"day": format!("{day} 02:00:00"), "by": "daily", "cause": "clock"}}));
        let lines = history(&handle, has_completed).await;
        let firing = lines[0].started.as_ref().unwrap();
        assert_eq!((firing.run.as_str(), firing.cause), (run.id(), FiringCause::Clock));
    }

    async fn a_trigger_starts_one_run_for_each_id(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        let handle = onward.put_schedule("hourly", hourly()).await.unwrap();
        handle.pause("maintenance").await.unwrap();
        let triggered = handle.trigger::<Value>().id("one").await.unwrap();
        assert_eq!((triggered.run.id(), triggered.outcome), ("hourly@now:one", TriggerOutcome::Started));
        assert_eq!(triggered.run.result().await.unwrap(), json!({"of": "all"}));
        let again = handle.trigger::<Value>().id("one").await.unwrap();
        assert_eq!(again.run.result().await.unwrap(), json!({"of": "all"}));
        history(&handle, has_completed).await;
        let view = handle.read().await.unwrap();
        assert_eq!((view.totals.started, view.paused.unwrap().note.as_str()), (1, "maintenance"));
        assert!(view.next.is_empty());
        assert!(!handle.resume("").await.unwrap().next.is_empty());
    }

    async fn overlap_decides_while_a_run_is_running(site) {
        let onward = site.builder().await.workflow("slow", slow).start().await.unwrap();
        let handle = onward.put_schedule("slow", Schedule::every(days(1)).of("slow")).await.unwrap();
        let first = handle.trigger::<u32>().id("first").await.unwrap();
        let skipped = handle.trigger::<u32>().id("second").await.unwrap();
        assert_eq!(skipped.outcome, TriggerOutcome::Skipped);
        assert!(matches!(skipped.run.result().await, Err(Error::Runtime(error)) if error.code() == "run_not_found"));
        let waiting = handle.trigger::<u32>().id("third").overlap(Overlap::BufferOne).await.unwrap();
        assert_eq!(waiting.outcome, TriggerOutcome::Buffered);
        let third = tokio::spawn(async move { waiting.run.result().await });
        for (run, end) in [("first", 1), ("third", 3)] {
            let run = onward.run::<u32>(&format!("slow@now:{run}")).unwrap();
            eventually("the run exists", async || run.view().await.ok()).await;
            run.signal("end", &end).await.unwrap();
        }
        assert_eq!(first.run.result().await.unwrap(), 1);
        assert_eq!(third.await.unwrap().unwrap(), 3, "the handle waits for a start that comes later");
    }

    async fn a_backfill_starts_each_slot_of_its_range_once(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        site.clock.advance(hours(50));
        let handle = onward.put_schedule("hourly", hourly()).await.unwrap();
        let now = site.clock.now();
        let until = Timestamp(now.0 - now.0 % 3_600_000);
        let from = until.before(hours(3));
        handle.backfill(from, until).id("b").await.unwrap();
        for at in 0..3 {
            let slot = from.after(hours(at));
            assert_eq!(handle.run_at::<Value>(slot).result().await.unwrap(), json!({"of": "all"}));
        }
        handle.backfill(from, until).id("again").await.unwrap();
        let is_done = async || {
            let view = handle.read().await.unwrap();
            (view.backfills.is_empty() && view.running.is_empty()).then_some(view.totals.completed)
        };
        assert_eq!(eventually("the backfills are done", is_done).await, 3);
    }

    async fn a_declared_schedule_is_stored_at_the_start_and_stays_if_it_is_equal(site) {
        let view = async |schedule: Schedule| -> ScheduleView {
            let builder = site.builder().await.workflow(&REPORT, report).schedule("hourly", schedule);
            let onward = builder.start().await.unwrap();
            let views = onward.schedules().await.unwrap();
            assert_eq!(views.len(), 1);
            let read = onward.schedule("hourly").unwrap().read().await.unwrap();
            onward.shutdown().await;
            read
        };
        let first = view(hourly()).await;
        let equal = view(hourly()).await;
        assert_eq!((equal.revision, equal.updated_at), (first.revision, first.updated_at));
        let other = view(hourly().overlap(Overlap::AllowAll).except_date("2026-12-24/2027-01-01")).await;
        assert_eq!((other.revision, other.definition.options.overlap), (first.revision + 1, Overlap::AllowAll));
    }

    async fn a_schedule_that_cannot_work_is_refused(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        onward.start(&REPORT, &json!(1)).await.unwrap().result().await.unwrap(); // its worker is known now
        let refused = async |schedule: Schedule| onward.put_schedule("s", schedule).await.err().map(|error| error.code());
        assert_eq!(refused(hourly().and_cron("61 * * * *")).await, Some("schedule_invalid"));
        assert_eq!(refused(hourly().zone("Mars/Olympus")).await, Some("schedule_invalid"));
        assert_eq!(refused(Schedule::every(hours(1)).of("unknown")).await, Some("kind_not_found"));
        assert_eq!(refused(Schedule::every(hours(1))).await, Some("name_invalid"), "a schedule without a kind");
        assert_eq!(refused(hourly().template(&json!("{{ no.such }}"))).await, Some("schedule_invalid"));
        let missing = onward.schedule("s").unwrap();
        assert_eq!(missing.read().await.err().unwrap().code(), "schedule_not_found");
        assert_eq!(refused(Schedule::every(hours(1)).of("unknown").force()).await, None);
        missing.delete().await.unwrap();
        assert_eq!(missing.trigger::<()>().await.err().unwrap().code(), "schedule_not_found");
        assert!(onward.schedules().await.unwrap().is_empty());
        let spec = ScheduleSpec { cron: vec!["0 0 1 1 *".to_owned()], ..ScheduleSpec::default() };
        assert_eq!(onward.preview_slots(spec, 2).await.unwrap().len(), 2);
    }
}
