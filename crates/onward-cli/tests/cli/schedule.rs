//! `onward schedule`: schedules of a directory and of a server.

use std::time::Instant;

use serde_json::{Value, json};

use crate::dev::serve;
use crate::kit::{PATIENCE, Ran, one_order, onward, run, run_over, with_remote_worker};

/// Runs `onward schedule next ARGS` where nothing is stored.
fn next(args: &[&str]) -> Ran {
    crate::kit::ran(onward().args(["schedule", "next"]).args(args))
}

#[test]
fn the_next_slots_of_a_specification_need_no_store() {
    let listed = next(&["--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T00:00:00Z", "--limit", "3"]);
    listed.assert_output(
        0,
        "
SLOT Europe/Berlin
2026-03-28T01:30:00Z Sat 2026-03-28 02:30:00 +01:00
2026-03-29T01:00:00Z Sun 2026-03-29 03:00:00 +02:00
2026-03-30T00:30:00Z Mon 2026-03-30 02:30:00 +02:00
",
    );
    let args = ["--every", "12h", "--offset", "1h", "--except-date", "2026-12-24/2026-12-25", "--after", "2026-12-23T13:00:00Z"];
    let slots = next(&[&args[..], &["--limit", "2", "--json"]].concat()).json();
    assert_eq!(slots["slots"][0]["slot"], "2026-12-26T01:00:00.000Z");
    let once = next(&["--at", "2030-01-01T09:00:00+01:00"]);
    assert!(once.out.contains("2030-01-01T08:00:00Z  Tue 2030-01-01 08:00:00 +00:00"), "{}", once.out);
    assert_eq!(next(&["--at", "2020-01-01T00:00:00Z"]).err, "no slots are left\n");
}

#[test]
fn a_specification_is_read_from_a_file_and_options_add_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spec.yaml");
    std::fs::write(&file, "cron: [0 9 * * MON-FRI]\ntime_zone: Europe/Berlin\nexcept:\n  - month: DEC\n").unwrap();
    let path = file.to_str().unwrap();
    let slots =
        next(&["--spec", path, "--at", "2026-11-28T10:00:00Z", "--after", "2026-11-27T09:00:00Z", "--limit", "3", "--json"]);
    let slots: Vec<Value> = slots.json()["slots"].as_array().unwrap().iter().map(|slot| slot["slot"].clone()).collect();
    assert_eq!(slots, ["2026-11-28T10:00:00.000Z", "2026-11-30T08:00:00.000Z", "2027-01-01T08:00:00.000Z"]);
    std::fs::write(&file, "corn: [0 9 * * *]\n").unwrap();
    let unknown = next(&["--spec", path]);
    assert!(unknown.code == 2 && unknown.err.contains("unknown field `corn`"), "{}", unknown.err);
    std::fs::write(&file, "cron: [0 9\n").unwrap();
    let broken = next(&["--spec", path]);
    assert!(
        broken.code == 2 && broken.err.contains("error[schedule_invalid]:") && broken.err.contains("line "),
        "{}",
        broken.err
    );
}

#[test]
fn an_error_is_shown_below_the_character() {
    let wrong = next(&["--cron", "0 9 * * FUN"]);
    let lines: Vec<&str> = wrong.err.lines().collect();
    assert_eq!((wrong.code, &lines[..2]), (2, &["  0 9 * * FUN", "          ^"][..]), "{}", wrong.err);
    assert!(lines[2].starts_with("error[schedule_invalid]: spec.cron[0], character 9: "), "{}", wrong.err);
    assert!(lines[3].starts_with("hint: "), "{}", wrong.err);
    let as_json = next(&["--cron", "0 9 * * FUN", "--json"]);
    let problem: Value = serde_json::from_str(&as_json.err).unwrap();
    assert_eq!((as_json.code, &problem["code"]), (2, &json!("schedule_invalid")));
    for (args, why) in [
        (&["--at", "tomorrow"][..], "must be a time like"),
        (&["--every", "1500"], "must be a duration like"),
        (&["--offset", "1m"], "--every"),
        (&["--cron", "0 9 * * *", "--zone", "Mars"], "`Mars` is no time zone"),
        (&[], "give either the id of a schedule or times"),
        (&["nightly", "--cron", "0 9 * * *"], "give either the id of a schedule or times"),
    ] {
        let refused = next(args);
        assert!(refused.code == 2 && refused.err.contains(why), "{args:?}: {}", refused.err);
    }
}

#[test]
fn a_schedule_is_created_replaced_paused_and_deleted_in_a_directory() {
    let data = one_order("o");
    let schedule = |args: &[&str]| run(data.path(), [&["schedule"], args].concat());
    let create = ["create", "nightly", "--kind", "order", "--cron", "0 2 * * *", "--zone", "Europe/Berlin", "--input"];
    let created = schedule(&[&create[..], &[r#""tea""#]].concat());
    assert!(created.code == 0 && created.err == "schedule nightly is created\n", "{}", created.err);
    assert!(created.out.starts_with("SLOT") && created.out.lines().count() == 6, "{}", created.out);
    assert!(created.out.contains(" 02:00:00 +0"), "{}", created.out);
    let equal = schedule(&[&create[..], &[r#""tea""#]].concat());
    assert_eq!(equal.err, "schedule nightly had this definition already\n");
    let other =
        schedule(&[&create[..], &[r#""{{ slot.date }}""#, "--template", "--overlap", "buffer_all", "--deadline", "1h"]].concat());
    assert!(other.err.starts_with("schedule nightly existed: its definition is replaced (revision "), "{}", other.err);

    let paused = schedule(&["pause", "nightly", "--note", "holidays"]);
    assert_eq!(
        (paused.code, paused.err.as_str()),
        (0, "schedule nightly is paused: its slots are skipped until it is resumed\n")
    );
    let shown = schedule(&["show", "nightly"]).out;
    for part in ["0 2 * * * (Europe/Berlin)", "(template)", "buffer_all, late up to 24 h", ": holidays", "0 started"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = schedule(&["list", "--json"]).json();
    assert_eq!(listed["schedules"][0]["schedule"], "nightly");
    assert_eq!(listed["schedules"][0]["paused"]["note"], "holidays");
    assert!(schedule(&["ls"]).out.contains("paused"));
    let resumed = schedule(&["resume", "nightly"]);
    assert!(resumed.out.starts_with("SLOT") && resumed.err.contains("is active"), "{}{}", resumed.out, resumed.err);
    assert_eq!(schedule(&["next", "nightly", "--limit", "3"]).out.lines().count(), 4);

    let deleted = schedule(&["delete", "nightly"]);
    assert_eq!(deleted.err, "schedule nightly is deleted; runs that it started continue\n");
    let gone = schedule(&["show", "nightly"]);
    assert!(gone.code == 4 && gone.err.contains("error[schedule_not_found]"), "{}", gone.err);
    assert_eq!(schedule(&["list"]).err, "no schedules: create one with `onward schedule create`\n");
}

#[test]
fn a_schedule_of_a_server_starts_runs_by_trigger_and_backfill() {
    let data = tempfile::tempdir().unwrap();
    let served = serve(onward().args(["dev", "--port", "0", "--data"]).arg(data.path()));
    let schedule = |args: &[&str]| run_over(&served.url, [&["schedule"], args].concat());
    with_remote_worker(&served.url, || {
        let create = ["create", "daily", "--kind", "order", "--input", r#""tea""#, "--every", "1d", "--overlap", "allow_all"];
        let unknown = schedule(&["create", "daily", "--kind", "none", "--every", "1d"]);
        assert!(unknown.code == 4 && unknown.err.contains("error[kind_not_found]"), "{}", unknown.err);
        let created = schedule(&[&create[..], &["--attr", "team=ops", "--json"]].concat()).json();
        assert_eq!((&created["created"], &created["schedule"]["attributes"]["team"]), (&json!(true), &json!("ops")));
        let triggered = schedule(&["trigger", "daily", "--request-id", "now"]);
        assert_eq!((triggered.code, triggered.out.as_str()), (0, "daily@now:now: started\n"), "{}", triggered.err);
        let range = ["backfill", "daily", "--from", "2026-01-01T00:00:00Z", "--until", "2026-01-03T00:00:00Z"];
        let backfill = schedule(&[&range[..], &["--overlap", "allow_all", "--json"]].concat()).json();
        assert_eq!(backfill["schedule"], "daily");
        let begin = Instant::now();
        let history = loop {
            let shown = schedule(&["show", "daily"]).out;
            if shown.contains("daily@2026-01-02T00:00:00Z") || begin.elapsed() > PATIENCE {
                break shown;
            }
        };
        for part in ["SLOT", "backfill  daily@2026-01-01T00:00:00Z  running", "trigger   daily@now:now", "3 runs running"] {
            assert!(history.contains(part), "{part}: {history}");
        }
        let skipped = schedule(&["trigger", "daily", "--overlap", "skip"]);
        assert!(skipped.out.contains("not started: another run of the schedule is running"), "{}", skipped.out);
        assert!(schedule(&["show", "daily"]).out.contains("skipped: overlap"));
        let future = schedule(&["backfill", "daily", "--from", "2198-01-01T00:00:00Z", "--until", "2198-01-02T00:00:00Z"]);
        assert!(future.code == 2 && future.err.contains("error[schedule_invalid]"), "{}", future.err);
    });
}
