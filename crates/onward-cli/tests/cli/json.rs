//! `--json`: for every command, a result is one document on stdout and an error is one problem on stderr.

use serde_json::Value;

use crate::kit::{one_order, onward, ran, run};

/// Every command with invalid arguments, and the error code.
const REFUSED: &[(&str, &str)] = &[
    ("demo --nonsense", "usage"),
    ("demo agent --nonsense", "usage"),
    ("chat --agent x", "usage"),
    ("chat --run nope --server http://127.0.0.1:1", "server_unreachable"),
    ("dev --server http://x", "usage"),
    ("server --listen 0.0.0.0:0", "listen_refused"),
    ("run start order --input nonsense", "payload_invalid"),
    ("run start order --at 10000-01-01T00:00:00Z", "start_time_invalid"),
    ("run start order --at 2026-01-01T00:00:00Z --after 1h", "usage"),
    ("run list --cursor ?", "cursor_invalid"),
    ("run children no --server http://127.0.0.1:1", "server_unreachable"),
    ("run show nope", "run_not_found"),
    ("run show order-1 --at 99", "index_out_of_range"),
    ("run timeline nope", "run_not_found"),
    ("run counts --attr =x", "name_invalid"),
    ("run events nope", "run_not_found"),
    ("run entries nope", "run_not_found"),
    ("run entries order-1 --leaf x", "cursor_invalid"),
    ("run entries order-1 --leaf 00112233445566778899aabbccddeeff", "entry_not_found"),
    ("run attach nope", "run_not_found"),
    ("run watch nope", "run_not_found"),
    ("run wait order-1 --timeout 0", "wait_timed_out"),
    ("run signal nope x", "run_not_found"),
    ("run signal order-1 onward.entry", "id_reserved"),
    ("run message nope hello", "run_not_found"),
    ("run append nope user 1", "run_not_found"),
    ("run append order-1 user nonsense", "payload_invalid"),
    ("run branch nope start", "run_not_found"),
    ("run branch order-1 start hello", "no_checkpoint"),
    ("run branch order-1 what", "usage"),
    ("run update nope x", "run_not_found"),
    ("run query order-1 x", "no_compatible_worker"),
    ("run cancel nope", "run_not_found"),
    ("run terminate nope", "run_not_found"),
    ("run pause nope", "run_not_found"),
    ("run resume order-1", "run_not_paused"),
    ("run retry order-1", "run_not_failed"),
    ("run fork order-1 --from 99", "fork_point_invalid"),
    ("run reset nope", "run_not_found"),
    ("run bulk cancel", "filter_empty"),
    ("run delete order-1", "run_busy"),
    ("run deleted --limit 0", "usage"),
    ("export nope", "run_not_found"),
    ("import /nonexistent", "io"),
    ("approval list --run nope", "run_not_found"),
    ("approval decide what --approve", "call_id_invalid"),
    ("promise resolve what", "call_id_invalid"),
    ("promise reject order-1~0~9", "wait_not_found"),
    ("check --run nope --save /dev/null", "run_not_found"),
    ("replay nope", "run_not_found"),
    ("flow validate /nonexistent", "io"),
    ("flow check /nonexistent", "io"),
    ("flow run /nonexistent", "io"),
    ("flow graph /nonexistent", "io"),
    ("flow new", "usage"),
    ("flow schema --nonsense", "usage"),
    ("flow import dive /nonexistent", "io"),
    ("flow apply /nonexistent", "io"),
    ("flow list --server http://127.0.0.1:1", "server_unreachable"),
    ("flow show nope", "flow_not_found"),
    ("flow diff nope", "flow_not_found"),
    ("flow delete nope", "flow_not_found"),
    ("spend --by what", "usage"),
    ("kind defaults --server http://127.0.0.1:1", "server_unreachable"),
    ("kind set mail", "usage"),
    ("queue list --server http://127.0.0.1:1", "server_unreachable"),
    ("queue quarantined --server http://127.0.0.1:1", "server_unreachable"),
    ("queue retry order-1~0~9", "task_not_quarantined"),
    ("queue limits --server http://127.0.0.1:1", "server_unreachable"),
    ("queue reopen llm.x --server http://127.0.0.1:1", "server_unreachable"),
    ("memo invalidate x --server http://127.0.0.1:1", "server_unreachable"),
    ("memo invalidate x --run memo:0", "id_reserved"),
    ("schedule create s", "usage"),
    ("schedule create s --kind order --cron @daily --zone Mars/Base", "schedule_invalid"),
    ("schedule list --server http://127.0.0.1:1", "server_unreachable"),
    ("schedule show nope", "schedule_not_found"),
    ("schedule pause nope", "schedule_not_found"),
    ("schedule resume nope", "schedule_not_found"),
    ("schedule trigger nope", "schedule_not_found"),
    ("schedule backfill nope --from 2026-01-01T00:00:00Z --until 2026-01-02T00:00:00Z", "schedule_not_found"),
    ("schedule next nope", "schedule_not_found"),
    ("schedule delete nope", "schedule_not_found"),
    ("worker list --server http://127.0.0.1:1", "server_unreachable"),
    ("run show memo:0", "id_reserved"),
    ("api GET /v1/runs --server http://127.0.0.1:1", "server_unreachable"),
    ("doctor --nonsense", "usage"),
    ("key create --name x", "usage"),
    ("key list --keys /dev/null/x", "key_file_unusable"),
    ("key revoke nope", "key_file_unusable"),
    ("key rotate nope", "key_file_unusable"),
    ("webhook create", "usage"),
    ("webhook list --webhooks /dev/null/x", "webhook_file_unusable"),
    ("webhook rotate nope", "webhook_file_unusable"),
    ("webhook delete nope", "webhook_file_unusable"),
    ("config show --config /nonexistent", "io"),
    ("completions tcsh", "usage"),
];

/// Every command that returns at once, with a field of its result.
const ANSWERED: &[(&str, &str)] = &[
    ("run list", "runs"),
    ("run show order-1", "awaiting"),
    ("run show order-1 --at 1", "open_calls"),
    ("run timeline order-1", "calls"),
    ("run counts", "counts"),
    ("run children order-1", "runs"),
    ("run entries order-1", "entries"),
    ("run start order --id new", "created"),
    ("run start order --id later --after 1h", "starts_at"),
    ("run signal order-1 x", "index"),
    ("run message order-1 hello", "index"),
    ("run append order-1 user 1 --idempotency-key k", "already_existed"),
    ("run update order-1 x", "update_id"),
    ("run pause order-1", "index"),
    ("run resume order-1", "index"),
    ("run cancel order-1", "index"),
    ("approval list", "approvals"),
    ("run terminate order-1", "index"),
    ("run bulk cancel --kind order --dry-run", "matched"),
    ("run delete order-1", "deleted"),
    ("run deleted", "deleted"),
    ("flow schema", "properties"),
    ("flow list", "flows"),
    ("spend --by tree --since 7d", "rows"),
    ("kind defaults", "defaults"),
    ("kind set mail --retry 3", "defaults"),
    ("queue list", "queues"),
    ("queue quarantined", "tasks"),
    ("worker list", "workers"),
    ("memo invalidate x", "invalidated"),
    ("schedule list", "schedules"),
    ("schedule next --cron @daily", "slots"),
    ("doctor", "checks"),
    ("key create --name ada --scope read", "key"),
    ("key list", "keys"),
    ("webhook create pay --start order", "secret"),
    ("webhook list", "webhooks"),
    ("config show", "settings"),
];

#[test]
fn an_error_is_one_problem_on_stderr_and_the_exit_code_stays() {
    let directory = one_order("order-1");
    for (verb, code) in REFUSED {
        let args: Vec<&str> = verb.split(' ').collect();
        let with = |json: &[&str]| {
            let data = directory.path().to_str().unwrap();
            let target = if verb.contains("--server") { vec![] } else { vec!["--data", data] };
            ran(onward().args(&args).args(json).args(target))
        };
        let (plain, json) = (with(&[]), with(&["--json"]));
        assert_eq!(
            (json.code, json.out.as_str()),
            (plain.code, if verb.starts_with("run delete ") { DELETED } else { "" }),
            "{verb}"
        );
        let problem: Value = serde_json::from_str(&json.err).unwrap_or_else(|_| panic!("{verb}: {}", json.err));
        assert_eq!(json.err.lines().count(), 1, "{verb}");
        assert_eq!(problem["code"], *code, "{verb}: {problem}");
        assert_eq!(problem["type"], format!("urn:onward:error:{code}"));
        assert_eq!(problem["title"], code.replace('_', " "));
        assert!(problem["status"].as_u64().is_some_and(|status| (400..600).contains(&status)), "{verb}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{verb}: {problem}");
        assert!(problem.get("hint").is_some(), "{verb}: {problem}");
        assert!(plain.err.starts_with(&format!("error[{code}]: ")), "{verb}: {}", plain.err);
    }
}

/// Each run is deleted separately, so there is a result besides the error.
const DELETED: &str = "{\"deleted\":[],\"refused\":[\"order-1\"]}\n";

#[test]
fn a_result_is_one_document_on_stdout() {
    let directory = one_order("order-1");
    for (verb, field) in ANSWERED {
        let answer = run(directory.path(), verb.split(' ').chain(["--json"])).json();
        assert!(answer.get(field).is_some(), "{verb}: {answer}");
    }
}

/// A new command must be added to the table.
#[test]
fn no_verb_is_missing_from_the_table() {
    for verb in verbs(&[]) {
        assert!(REFUSED.iter().any(|(known, _)| known.starts_with(&verb)), "`onward {verb}` is not in the table");
    }
}

/// Returns the subcommands in the help of a command, recursively.
fn verbs(above: &[String]) -> Vec<String> {
    let help = ran(onward().args(above).arg("--help")).out;
    let Some((_, commands)) = help.split_once("Commands:\n") else { return vec![above.join(" ")] };
    let names = commands.lines().take_while(|line| line.starts_with("  "));
    let names = names.filter(|line| !line.starts_with("   ")).map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").flat_map(|name| verbs(&[above, &[name]].concat())).collect()
}
