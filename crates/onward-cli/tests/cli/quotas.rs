//! Quotas by commands: changed one by one, shown, applied, removed.

use serde_json::{Value, json};

use crate::kit::{one_order, run};

#[test]
fn limits_of_a_namespace_are_changed_one_by_one() {
    let data = one_order("o");
    let settings = |args: &[&str]| {
        let done = run(data.path(), [&["quota"][..], args, &["--json"]].concat());
        done.json()["settings"].clone()
    };
    let set = settings(&["set", "--runs-open", "5", "--start-rate", "100/1s", "--spend-per-day", "2.50"]);
    let rate = json!({"starts_max": 100, "period_ms": 1_000});
    assert_eq!(set, json!({"runs_open_max": 5, "start_rate": rate, "spend_per_day_max": "2.5"}));
    let other =
        settings(&["set", "--runs-open", "none", "--spend-per-day", "none", "--tasks-running", "3", "--payload-bytes", "4096"]);
    assert_eq!(other, json!({"start_rate": rate, "tasks_running_max": 3, "payload_bytes_max": 4096}));
    assert_eq!(settings(&["show"]), other);
    let of_another = run(data.path(), ["quota", "show", "--namespace", "other", "--json"]);
    assert_eq!(of_another.json()["settings"], Value::Null);
    let text = run(data.path(), ["quota", "show"]);
    assert!(text.out.contains("open runs") && text.out.contains("100 per 1000 ms"), "{}", text.out);
    assert_eq!(run(data.path(), ["quota", "reset"]).code, 0);
    assert_eq!(settings(&["show"]), Value::Null);
    let wrong = run(data.path(), ["quota", "set", "--spend-per-day", "-1"]);
    assert!(wrong.code == 2, "{}", wrong.err);
    let wrong = run(data.path(), ["quota", "set", "--runs-open", "many"]);
    assert!(wrong.code == 2 && wrong.err.contains("`many` is not a value of `--runs-open`"), "{}", wrong.err);
    let large = run(data.path(), ["quota", "set", "--runs-open", "100000000"]);
    assert!(large.code == 2 && large.err.contains("quota_invalid"), "{}", large.err);
}
