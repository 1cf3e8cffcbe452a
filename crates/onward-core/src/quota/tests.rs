use super::*;
use crate::event::{OnParentClose, ParentLink, RunStarted};
use crate::queue::QueueRate;
use crate::{CallId, Namespace, Payload, RunId};

mod model;

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

fn started(kind: &str, parent: Option<&str>) -> RunStarted {
    let link = |id: &str| ParentLink {
        run: key(id),
        generation: 0,
        call_id: CallId::root(0),
        on_parent_close: OnParentClose::Cancel,
        incarnation: None,
        is_spawned: false,
    };
    RunStarted { parent: parent.map(link), ..RunStarted::new(Name::new(kind).unwrap(), Payload::from_json_text("null"), 0) }
}

#[test]
fn starts_of_callers_and_schedules_are_limited_and_those_of_runs_are_not() {
    for (id, kind, parent, is_limited) in [
        ("r", "order", None, true),
        ("t", "task:mail", None, true),
        ("r", "order", Some("schedule:nightly"), true),
        ("r/c", "order", Some("r"), false),
        ("memo:x", "memo:x", None, false),
        ("schedule:nightly", "schedule:nightly", None, false),
    ] {
        assert_eq!(is_limited_start(&key(id), &started(kind, parent)), is_limited, "NQ1: {id}");
    }
    assert!(counts(&Name::new("task:mail").unwrap()) && !counts(&Name::new("memo:x").unwrap()));
}

#[test]
fn a_refusal_names_the_limit_and_the_time_of_the_next_attempt() {
    let rate = QueueRate { starts_max: 1, period_ms: 6_400 };
    let quota = QuotaSettings { runs_open_max: Some(2), start_rate: Some(rate.clone()), ..QuotaSettings::default() };
    let mut starts = QueueStarts::new(Namespace::default(), None, None);
    assert_eq!(quota.admit_start(1, Some(&starts), Timestamp(1_000)), Ok(()));
    starts.add(&rate, 1, Timestamp(1_000));
    let refused = quota.admit_start(1, Some(&starts), Timestamp(2_000)).unwrap_err();
    assert_eq!((refused.limit, refused.max, refused.retry_after_ms), (QuotaLimit::StartRate, 1, 5_400));
    let refused = quota.admit_start(2, Some(&starts), Timestamp(2_000)).unwrap_err();
    assert_eq!((refused.limit, refused.max, refused.retry_after_ms), (QuotaLimit::RunsOpen, 2, 1_000));
    assert_eq!(refused.to_string(), "2 open runs (`runs_open_max`)");
}

#[test]
fn the_day_of_a_quota_ends_at_midnight_utc() {
    let day = 24 * 60 * 60 * 1_000;
    assert_eq!(
        (next_day(Timestamp(0)), next_day(Timestamp(day - 1)), next_day(Timestamp(day))),
        (Timestamp(day), Timestamp(day), Timestamp(2 * day))
    );
}

#[test]
fn parts_of_several_databases_add_up_to_the_quota() {
    let quota = QuotaSettings {
        runs_open_max: Some(10),
        start_rate: Some(QueueRate { starts_max: 7, period_ms: 1_000 }),
        tasks_running_max: Some(0),
        spend_per_day_max: Some(PicoDollars(11)),
        payload_bytes_max: Some(2_000),
        part: None,
    };
    let parts: Vec<QuotaSettings> = (0..3).map(|position| quota.part(position, 3).unwrap()).collect();
    let rate = quota.start_rate.clone().unwrap();
    assert_eq!(parts.iter().filter_map(QuotaSettings::open_max).sum::<u64>(), 10);
    assert_eq!(parts.iter().map(|part| part.own_starts(&rate)).sum::<u32>(), 7);
    assert_eq!(parts.iter().filter_map(QuotaSettings::own_spend).map(|part| part.0).sum::<u64>(), 11);
    assert!(parts.iter().all(|part| part.leases_max() == Some(0) && part.payload_max(9_000) == 2_000));
    assert_eq!(quota.part(0, 8), Err("start_rate.starts_max"));
}

#[test]
fn limits_that_mean_nothing_are_named() {
    let none = QuotaSettings::default;
    for (quota, named) in [
        (QuotaSettings { runs_open_max: Some(1_000_001), ..none() }, "`runs_open_max` is 1000001"),
        (QuotaSettings { start_rate: Some(QueueRate { starts_max: 0, period_ms: 1 }), ..none() }, "`start_rate.starts_max` is 0"),
        (QuotaSettings { tasks_running_max: Some(u32::MAX), ..none() }, "`tasks_running_max` is"),
        (QuotaSettings { payload_bytes_max: Some(1), ..none() }, "`payload_bytes_max` is 1"),
        (QuotaSettings { spend_per_day_max: Some(PicoDollars(u64::MAX)), ..none() }, "`spend_per_day_max` is"),
    ] {
        let problem = quota.problem().unwrap();
        assert!(problem.contains(named), "{problem}");
    }
    assert_eq!(
        QuotaSettings { runs_open_max: Some(0), tasks_running_max: Some(0), ..none() }.problem(),
        None,
        "0 stops a namespace"
    );
}
