use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn all(number: u64) -> KindDefaults {
    let time = Some(number);
    KindDefaults {
        queue: Some(name(&format!("q{number}"))),
        priority: Some(number as i32),
        retry: Some(RetryPolicy::attempts(number as u32)),
        queued_timeout_ms: time,
        attempt_timeout_ms: time,
        total_timeout_ms: time,
        heartbeat_timeout_ms: time,
        deadline_ms: time,
        key: Some(format!("k{number}")),
    }
}

/// KD1
#[test]
fn a_call_keeps_the_options_that_it_sets_also_those_that_equal_the_built_in_value() {
    let set = TaskOptions { priority: Some(0), retry: Some(RetryPolicy::attempts(1)), ..TaskOptions::default() };
    let mut filled = set.clone();
    filled.fill(&name("mail"), &all(7));
    assert_eq!((filled.priority, &filled.retry), (set.priority, &set.retry));
    assert_eq!((filled.queue.as_ref().map(Name::as_str), filled.heartbeat_timeout_ms), (Some("q7"), Some(7)));
    let from_kind =
        ["queue", "queued_timeout_ms", "attempt_timeout_ms", "total_timeout_ms", "heartbeat_timeout_ms"].map(str::to_owned);
    assert_eq!(filled.from_kind, from_kind);
    let again = filled.clone();
    filled.fill(&name("mail"), &all(9));
    assert_eq!(filled, again, "a second time changes nothing");
}

#[test]
fn a_comparison_ignores_what_came_from_the_kind_and_nothing_else() {
    let set = TaskOptions { priority: Some(1), ..TaskOptions::default() };
    let mut recorded = set.clone();
    recorded.fill(&name("tool.a.b"), &all(7));
    assert_eq!(set.filled_as(&recorded), recorded);
    let other = TaskOptions { priority: Some(2), ..TaskOptions::default() };
    assert_ne!(other.filled_as(&recorded), recorded);
}

/// KD2
#[test]
fn sources_are_merged_option_by_option() {
    let live = KindDefaults { priority: Some(3), ..KindDefaults::default() };
    let merged = live.or(&KindDefaults { queue: Some(name("slow")), priority: Some(4), ..KindDefaults::default() }).or(&all(5));
    assert_eq!(merged, KindDefaults { priority: Some(3), queue: Some(name("slow")), ..all(5) });
}

/// KD2: built-in values are the last.
#[test]
fn defaults_of_a_kind_replace_the_built_in_timeout_of_tools() {
    let filled = |kind: &str, defaults: &KindDefaults| {
        let mut options = TaskOptions::default();
        options.fill(&name(kind), defaults);
        options
    };
    let none = KindDefaults::default();
    assert_eq!(filled("llm.small", &none), TaskOptions::default(), "a task of this kind that no agent scheduled");
    assert_eq!(filled("tool.a.b", &none).attempt_timeout_ms, Some(600_000));
    assert_eq!(filled("tool.a.b", &all(2)).attempt_timeout_ms, Some(2));
    assert_eq!(filled("mail", &none), TaskOptions::default());
}

#[test]
fn options_of_the_other_sort_of_kind_and_times_of_zero_are_refused() {
    let deadline = KindDefaults { deadline_ms: Some(5), ..KindDefaults::default() };
    assert!(deadline.wrong_for(false).is_none() && deadline.wrong_for(true).is_some());
    let tasks = KindDefaults { deadline_ms: None, key: None, ..all(1) };
    assert!(tasks.wrong_for(true).is_none() && tasks.wrong_for(false).is_some());
    assert_eq!(all(1).problem(), None);
    let zero = KindDefaults { total_timeout_ms: Some(0), ..tasks };
    assert_eq!(zero.problem().as_deref(), Some("`total_timeout_ms` is 0; leave it out for no limit"));
}
