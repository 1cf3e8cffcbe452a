//! Settings of queues by commands: changed one by one, shown, paused, removed.

use serde_json::{Value, json};

use crate::kit::{one_order, run};

#[test]
fn settings_of_a_queue_are_changed_one_by_one() {
    let data = one_order("o");
    let settings = |args: &[&str]| {
        let done = run(data.path(), [&["queue"][..], args, &["--json"]].concat());
        done.json()["settings"].clone()
    };
    let set = settings(&["set", "mail", "--concurrency", "5", "--key-rate", "100/1m", "--weight", "a=3"]);
    let rate = json!({"starts_max": 100, "period_ms": 60_000});
    assert_eq!(set, json!({"concurrency_max": 5, "key_rate": rate, "weights": [{"key": "a", "weight": 3}]}));
    let other = settings(&["set", "mail", "--concurrency", "none", "--key-concurrency", "1", "--weight", "a=1"]);
    assert_eq!(other, json!({"key_concurrency_max": 1, "key_rate": rate}));
    assert_eq!(settings(&["pause", "mail"])["paused"], true);
    assert_eq!(settings(&["show", "mail"])["paused"], true);
    assert_eq!(settings(&["resume", "mail"]), other);
    assert_eq!(settings(&["pause", "default"]), json!({"paused": true}), "another queue");
    assert_eq!(run(data.path(), ["queue", "reset", "mail"]).code, 0);
    assert_eq!(settings(&["show", "mail"]), Value::Null);
    let wrong = run(data.path(), ["queue", "set", "mail", "--rate", "many"]);
    assert!(wrong.code == 2 && wrong.err.contains("`many` is not a value of `--rate`"), "{}", wrong.err);
    let zero = run(data.path(), ["queue", "set", "mail", "--concurrency", "0"]);
    assert!(zero.code == 2 && zero.err.contains("queue_invalid"), "{}", zero.err);
}
