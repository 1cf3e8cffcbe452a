//! `onward webhook …`, beside a running server that applies its changes.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use crate::dev::dev;
use crate::kit::{run, run_with_stdin};

const WEBHOOKS_FILE: &str = "onward.webhooks.json";

#[test]
fn a_hook_is_shown_once_listed_rotated_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), ["webhook", "list"]).assert_output(0, "! no webhooks");
    let made = run(directory.path(), ["webhook", "create", "pay", "--signal", "payment", "--run-id", "/order/id"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let secret = made.out.trim().to_owned();
    assert!(
        secret.starts_with("whsec_") && !made.err.contains(&secret) && made.err.contains("cannot be shown again"),
        "{}",
        made.err
    );
    let mode = std::fs::metadata(directory.path().join(WEBHOOKS_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let given = "a secret of sixteen bytes or more";
    let args = ["webhook", "create", "gh", "--start", "build", "--format", "github", "--secret-file", "-"];
    let made = run_with_stdin(directory.path(), &args, &format!("{given}\n"));
    assert_eq!((made.code, made.out.as_str()), (0, ""), "{}", made.err);
    assert!(!made.err.contains(given));
    let listed = run(directory.path(), ["webhook", "list"]);
    assert!(listed.out.contains("signal payment, run /order/id") && listed.out.contains("start build"), "{}", listed.out);
    assert!(!listed.out.contains(&secret) && !listed.out.contains(given));
    let rotated = run(directory.path(), ["webhook", "rotate", "pay", "--overlap", "1h", "--json"]).json();
    assert_eq!(rotated["secrets"], 2);
    assert_ne!(rotated["secret"].as_str().unwrap(), secret);
    let webhooks = run(directory.path(), ["webhook", "list", "--json"]).json();
    assert_eq!(webhooks["webhooks"][1]["target"]["start"]["kind"], "build");
    assert!(webhooks["webhooks"][0].get("secret").is_none());
    run(directory.path(), ["webhook", "delete", "pay"]).assert_output(0, "pay: deleted");
    run(directory.path(), ["webhook", "rotate", "pay"]).assert_output(
        4,
        "! error[webhook_not_found]: webhook `pay` not found\n! hint: list webhooks with `onward webhook list`",
    );
    assert_eq!(run(directory.path(), ["webhook", "create", "gh", "--start", "x"]).code, 6);
    for wrong in [
        &["x"][..],
        &["x", "--signal", "a"],
        &["x", "--start", "a", "--signal", "b"],
        &["x", "--signal", "a", "--run-id", "order"],
        &["x", "--start", "a", "--format", "custom"],
        &["", "--start", "a"],
    ] {
        assert_eq!(run(directory.path(), ["webhook", "create"].iter().chain(wrong)).code, 2, "{wrong:?}");
    }
    let short = run_with_stdin(
        directory.path(),
        &["webhook", "create", "s", "--start", "a", "--format", "github", "--secret-file", "-"],
        "short",
    );
    assert_eq!(short.code, 2);
    assert!(short.err.starts_with("error[webhook_secret_invalid]: the secret is not usable"), "{}", short.err);
}

/// N4: a server with webhooks writes no secret anywhere, and does not start with a broken file.
#[test]
fn a_server_follows_its_webhooks_and_logs_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = dev(directory.path());
    let made = run(directory.path(), ["webhook", "create", "orders", "--start", "order", "--json"]).json();
    let secret = made["secret"].as_str().unwrap().to_owned();
    let headers = format!("webhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,{secret}\r\n");
    assert_eq!(served.request_with(&headers, "POST", "/v1/webhooks/orders", "{}").0, 401);
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("webhook_refused") && !stderr.contains(&secret), "{stderr}");
    std::fs::write(directory.path().join(WEBHOOKS_FILE), "{").unwrap();
    let refused = run(directory.path(), ["dev", "--port", "0"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.starts_with("error[webhook_file_unusable]: the webhook file "), "{}", refused.err);
}

#[test]
fn a_webhook_can_be_created_before_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("new");
    assert_eq!(run(&data, ["webhook", "create", "orders", "--start", "order"]).code, 0);
    let served = dev(&data);
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "a"}"#).0, 201);
    assert_eq!(served.request("POST", "/v1/webhooks/orders", "{}").0, 401);
}
