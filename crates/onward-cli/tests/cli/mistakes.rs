//! Error messages and exit codes of invalid input.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use onward_core::Timestamp;

use crate::kit::{one_order, onward, ran, run, until};

#[test]
fn what_is_not_there_is_4() {
    let directory = one_order("order-1");
    let expected = "! error[run_not_found]: run nope not found\n! hint: list the runs of this store with `onward run list`";
    for verb in [
        &["run", "show", "nope"][..],
        &["run", "events", "nope"],
        &["run", "signal", "nope", "x"],
        &["run", "cancel", "nope"],
        &["run", "delete", "nope"],
        &["run", "wait", "nope"],
        &["approval", "list", "--run", "nope"],
        &["approval", "decide", "nope~0~1", "--approve"],
    ] {
        run(directory.path(), verb).assert_output(4, expected);
    }
    run(directory.path(), ["approval", "decide", "order-1~0~9", "--approve"]).assert_output(
        4,
        "! error[wait_not_found]: run order-1 has no open approval or promise at 9\n! hint: list the open approvals with `onward approval list`",
    );
}

#[test]
fn a_budget_that_is_none_is_named() {
    let directory = one_order("order-1");
    let hint = "! hint: use for example `--budget tokens=50000 --budget cost=2.50`";
    for (limit, why) in [
        ("dollars=2", "`dollars` is none of tokens, cost, turns, seconds"),
        ("tokens=many", "`tokens` is a whole number, not `many`"),
        ("tokens", "`tokens` is a whole number, not ``"),
        ("turns=-1", "`turns` is a whole number, not `-1`"),
        ("cost=$2", "`cost` is in dollars, like 2.50, and not `$2`"),
    ] {
        let expected = format!("! error[usage]: `--budget {limit}`: {why}\n{hint}");
        run(directory.path(), ["run", "start", "tea", "--budget", limit]).assert_output(2, &expected);
        run(directory.path(), ["run", "resume", "order-1", "--budget", limit]).assert_output(2, &expected);
    }
}

#[test]
fn a_deadline_is_a_duration_and_is_shown() {
    let directory = one_order("order-1");
    let started = run(directory.path(), ["run", "start", "tea", "--id", "late", "--deadline", "90m", "--json"]);
    let time = |field: &str| Timestamp::parse(started.json()[field].as_str().unwrap()).unwrap();
    assert_eq!(time("deadline_at").since(time("created_at")), Duration::from_secs(5_400));
    for limit in ["0s", "soon", "-1m"] {
        assert_eq!(run(directory.path(), ["run", "start", "tea", "--deadline", limit]).code, 2, "{limit}");
    }
}

#[test]
fn what_came_too_late_is_6() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "delete", "order-1"]).assert_output(
        6,
        "! error[run_busy]: run order-1 cannot be deleted: it is not closed\n! hint: end it with `onward run terminate`, wait for its children, and retry; only a closed run can be deleted",
    );
    run(data, ["run", "resume", "order-1"]).assert_output(
        6,
        "! error[run_not_paused]: run order-1 is not paused\n! hint: check its status with `onward run show`; only a paused run can be resumed",
    );
    assert_eq!(run(data, ["run", "signal", "order-1", "payment", "1"]).code, 0);
    until(data, "order-1", "ship");
    run(data, ["approval", "decide", "order-1~0~3", "--approve", "--by", "eve"]).assert_output(
        1,
        "! error[not_a_decider]: eve may not decide order-1~0~3\n! hint: ask one of the deciders that the approval names",
    );
    assert_eq!(run(data, ["approval", "decide", "order-1~0~3", "--approve", "--by", "ada", "--decision-id", "first"]).code, 0);
    run(data, ["approval", "decide", "order-1~0~3", "--reject", "--by", "bob"]).assert_output(
        6,
        "! error[signal_lost]: run order-1 already has this answer: `first` came first, at event #7\n! hint: the first answer stands; this one was not recorded",
    );
    assert_eq!(run(data, ["run", "terminate", "order-1"]).code, 0);
    run(data, ["run", "signal", "order-1", "x"]).assert_output(
        6,
        "! error[run_closed]: run order-1 is terminated\n! hint: a closed run takes no more inputs; start a new one",
    );
}

#[test]
fn a_wait_that_takes_too_long_is_124() {
    let directory = one_order("order-1");
    run(directory.path(), ["run", "wait", "order-1", "--timeout", "0"]).assert_output(
        124,
        "! error[wait_timed_out]: run order-1 has not ended\n! hint: the run is not affected; see what it waits for with `onward run show`",
    );
}

#[test]
fn the_directory_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    run(&directory.path().join("none"), ["run", "list"]).assert_output(
        1,
        "! error[directory_missing]: directory DIR does not exist\n! hint: set `--data DIR` or ONWARD_DATA, or a server with `--server URL`; `onward demo` creates a directory to try",
    );
    run(directory.path(), ["run", "signal", "a", "b"]).assert_output(
        1,
        "! error[directory_foreign]: DIR is not an Onward directory: there is no database in it\n! hint: choose an empty directory or one that Onward created",
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a verb makes no store");
    std::fs::write(directory.path().join("letter.txt"), "dear").unwrap();
    run(directory.path(), ["run", "list"]).assert_output(
        1,
        "! error[directory_foreign]: DIR is not an Onward directory: it contains `letter.txt`\n! hint: choose an empty directory or one that Onward created",
    );
}

#[test]
fn a_directory_in_use_can_be_read_and_not_written() {
    let directory = one_order("order-1");
    let _holder = onward_store_embedded::EmbeddedStore::open(directory.path(), Default::default()).unwrap();
    assert_eq!(run(directory.path(), ["run", "list"]).code, 0);
    run(directory.path(), ["run", "cancel", "order-1"]).assert_output(
        6,
        "! error[directory_locked]: DIR is in use by this or another process\n! hint: stop the process that has it open, or drop the other store; commands that only read work meanwhile",
    );
}

#[test]
fn what_cannot_be_meant_is_2() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "show", &"x".repeat(256)])
        .assert_output(2, "! error[name_invalid]: a run id has at most 255 bytes, this one has 256\n! hint: 1 to 255 bytes of UTF-8 without control characters");
    run(data, ["run", "signal", "order-1", &"é".repeat(128)])
        .assert_output(2, "! error[name_invalid]: a name has at most 255 bytes, this one has 256\n! hint: 1 to 255 bytes of UTF-8 without control characters");
    run(data, ["run", "signal", "order-1", "pay\u{1b}[31m\nment"])
        .assert_output(2, "! error[name_invalid]: a name must not contain control characters\n! hint: 1 to 255 bytes of UTF-8 without control characters");
    run(data, ["run", "signal", "order-1", "payment", "hello"]).assert_output(
        2,
        "! error[payload_invalid]: the payload is not JSON: expected value at line 1 column 1\n! hint: quote a text: '\"hello\"'; use @FILE for a file and - for stdin",
    );
    run(data, ["approval", "decide", "what", "--approve"]).assert_output(
        2,
        "! error[call_id_invalid]: `what` is not the id of an approval, promise or task\n! hint: use the form RUN~GENERATION~CALL; `onward approval list` shows open approvals",
    );
    run(data, ["run", "list", "--cursor", "?"]).assert_output(
        2,
        "! error[cursor_invalid]: invalid page cursor `?`\n! hint: start without a cursor; a cursor is valid only for the query that returned it",
    );
}

#[test]
fn a_wrong_command_line_is_2_and_harmless() {
    let one = |args: &[&OsStr]| {
        let output = ran(onward().args(args));
        assert_eq!((output.code, output.out.as_str()), (2, ""));
        assert!(!output.err.contains('\u{1b}'), "{:?}", output.err);
        output.err.lines().next().unwrap().to_owned()
    };
    assert_eq!(one(&[OsStr::new("rum")]), "error[usage]: unrecognized subcommand 'rum'");
    assert_eq!(
        one(&[OsStr::new("run"), OsStr::new("show")]),
        "error[usage]: the following required arguments were not provided:"
    );
    assert_eq!(one(&[OsStr::new("\u{1b}[31mred")]), "error[usage]: unrecognized subcommand '\\u{1b}[31mred'");
    let not_text = OsStr::from_bytes(b"order-\xff");
    assert!(one(&[OsStr::new("run"), OsStr::new("show"), not_text]).starts_with("error[usage]: invalid UTF-8"));
    let undecided = ["approval", "decide", "x~0~1"].map(OsStr::new);
    assert_eq!(one(&undecided), "error[usage]: the following required arguments were not provided:");
    let both = ["approval", "decide", "x~0~1", "--approve", "--reject"].map(OsStr::new);
    assert!(one(&both).contains("cannot be used with"));
}

/// S29: data of a run cannot move the cursor or imitate a line.
#[test]
fn run_data_is_escaped_wherever_it_is_shown() {
    let directory = one_order("order-\u{202e}1");
    let data = directory.path();
    let evil = "a\u{1b}]0;x\u{7}\nb\u{9b}2J\u{202e}";
    assert_eq!(run(data, ["run", "cancel", "order-\u{202e}1", "--reason", evil]).code, 0);
    let payload = serde_json::to_string(evil).unwrap();
    assert_eq!(run(data, ["run", "signal", "order-\u{202e}1", "note", &payload]).code, 0);
    for verb in [
        &["run", "list"][..],
        &["run", "show", "order-\u{202e}1"],
        &["run", "events", "order-\u{202e}1"],
        &["run", "events", "order-\u{202e}1", "--json"],
        &["run", "show", "order-\u{202e}1", "--json"],
    ] {
        let output = run(data, verb);
        assert_eq!(output.code, 0, "{}", output.err);
        assert!(!output.out.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{7f}']), "{:?}", output.out);
    }
    let events = run(data, ["run", "events", "order-\u{202e}1", "--from", "4"]);
    events.assert_output(
        0,
        "
# AFTER EVENT WHAT
4 +T cancel_requested a\\u{1b}]0;x\\u{7}\\nb\\u{9b}2J\\u{202e}
5 +T signal_received note \"a\\u001b]0;x\\u0007\\nb\\u{9b}2J\\u{202e}\"
",
    );
}

/// F29: every command of an older version refuses a directory of a newer one and names the remedy.
#[test]
fn a_directory_of_a_newer_program_is_refused_and_left_untouched() {
    let directory = one_order("order-1");
    let data = directory.path();
    let (database, format) = (data.join("onward.db"), onward_store_embedded::FORMAT + 1);
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[60..64].copy_from_slice(&format.to_be_bytes());
    bytes[8184..8192].fill(0); // the checksum of the page; 0 means none
    std::fs::write(&database, bytes).unwrap();
    let contents = || -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name() != "onward.lock");
        let mut files: Vec<_> = files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect();
        files.sort();
        files
    };
    let before = contents();
    for verb in [
        &["server", "--listen", "127.0.0.1:0"][..],
        &["dev", "--port", "0"],
        &["run", "list"],
        &["run", "start", "order"],
        &["run", "signal", "order-1", "payment", "1"],
        &["run", "events", "order-1"],
        &["doctor"],
    ] {
        let refused = run(data, verb);
        assert_ne!(refused.code, 0, "{verb:?}: {}", refused.out);
        let text = format!("{}{}", refused.out, refused.err);
        assert!(text.contains(&format!("was written by a newer Onward: format {format}, ")), "{verb:?}: {text}");
        assert!(text.contains("use the newer program; the directory was not changed"), "{verb:?}: {text}");
        assert!(contents() == before, "{verb:?} has changed the directory");
    }
}
