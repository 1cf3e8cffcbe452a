//! Tests of the parent module.

use onward_core::Status;

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
    let figures = figures(&counts, Timestamp(5_000));
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
    let figures = figures(&OpenCounts { tasks, ..OpenCounts::default() }, Timestamp(4_000));
    let ages: Vec<f64> = figures[2].samples.iter().map(|sample| sample.value).collect();
    assert_eq!(ages, [2.5, 0.0, 0.0]);
}
