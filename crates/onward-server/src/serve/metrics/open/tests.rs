//! Tests of the parent module.

use onward_core::Status;
use onward_core::queue::QueueRate;

use super::*;

fn name(text: String) -> Name {
    Name::new(text).unwrap()
}

/// S30: kinds and queues that clients choose are limited in number; nothing is lost from the sums.
#[test]
fn the_smallest_of_many_kinds_are_summed_as_other() {
    let mut counts = OpenCounts::default();
    for number in 0..1_000 {
        counts.runs.insert((name(format!("kind-{number}")), Status::Waiting), 1);
        let (queue, kind) = (Some(name(format!("queue-{number}"))), name("mail".to_owned()));
        let oldest_at = Some(Timestamp(number));
        counts.tasks.push(TaskCount { queue, kind, queued: 1, running: 0, quarantined: 0, oldest_at });
    }
    counts.runs.insert((name("large".to_owned()), Status::Paused), 7);
    let figures = open_figures(&counts, Timestamp(5_000));
    for figure in &figures[..2] {
        assert!(figure.samples.len() <= 3 * (NAMES_MAX + 1), "{} has {} samples", figure.name, figure.samples.len());
    }
    let sum = |figure: &Figure| figure.samples.iter().map(|sample| sample.value).sum::<f64>();
    assert_eq!((sum(&figures[0]), sum(&figures[1])), (1_007.0, 1_000.0));
    let has =
        |figure: &Figure, text: &str| figure.samples.iter().any(|sample| sample.labels.iter().any(|(_, value)| value == text));
    assert!(has(&figures[0], "large") && has(&figures[0], OTHER) && has(&figures[1], OTHER));
}

#[test]
fn the_oldest_task_has_an_age_only_if_it_could_have_begun() {
    let task = |kind: &str, oldest_at: Option<u64>| {
        let oldest_at = oldest_at.map(Timestamp);
        TaskCount { queue: None, kind: name(kind.to_owned()), queued: 1, running: 0, quarantined: 0, oldest_at }
    };
    let tasks = vec![task("a", Some(1_500)), task("b", Some(9_000)), task("c", None)];
    let figures = open_figures(&OpenCounts { tasks, ..OpenCounts::default() }, Timestamp(4_000));
    let ages: Vec<f64> = figures[2].samples.iter().map(|sample| sample.value).collect();
    assert_eq!(ages, [2.5, 0.0, 0.0]);
}

#[test]
fn limits_of_queues_are_gauges() {
    let settings = QueueSettings {
        concurrency_max: Some(4),
        key_rate: Some(QueueRate { starts_max: 30, period_ms: 60_000 }),
        depth_max: Some(0),
        paused: true,
        ..QueueSettings::default()
    };
    let queue = LimitedQueue { namespace: Namespace::default(), queue: None, settings, throttled_keys: 3 };
    let figures = figures(&Counted { queues: vec![queue], ..Counted::default() }, Timestamp(0));
    let of = |name: &str| {
        let figure = figures.iter().find(|figure| figure.name == name).unwrap();
        let last = |sample: &Sample| sample.labels.last().map(|(label, value)| format!("{label}={value}")).unwrap();
        figure.samples.iter().map(|sample| (last(sample), sample.value)).collect::<Vec<_>>()
    };
    assert_eq!(of("onward_queue_limit"), [("limit=concurrency".to_owned(), 4.0), ("limit=depth".to_owned(), 0.0)]);
    assert_eq!(of("onward_queue_rate_limit"), [("of=key".to_owned(), 0.5)]);
    assert_eq!(of("onward_queue_paused"), [("queue=".to_owned(), 1.0)]);
    assert_eq!(of("onward_queue_throttled_keys"), [("queue=".to_owned(), 3.0)]);
}
